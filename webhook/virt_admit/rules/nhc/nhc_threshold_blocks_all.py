"""The limit of a NodeHealthCheck allows no unhealthy node.

**Why.** With ``minHealthy`` equal to all nodes, or ``maxUnhealthy`` equal to 0, one unhealthy node
already stops remediation, so the check never acts. A ``maxUnhealthy`` above the number of nodes is
an error at run time. Percentages round up: ``minHealthy: 90%`` of 4 nodes is 4.

**Fix.** Allow at least one unhealthy node: ``maxUnhealthy: 1``. To pause the check, add a reason to
``pauseRequests``.
"""

from virt_admit.model.kubernetes.int_or_percent import IntOrPercent, LimitKind, allowed_unhealthy
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.rule import NHC, NODE, Action, Context, Finding, Findings, Object, count, rule


@rule(
    kinds=(NHC,),
    reads={NODE: ("metadata.labels",)},
    action=Action.WARN,
    sources=(
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#getMinHealthy"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    limit = nhc.known_limit() if nhc.limit.present else None
    if limit is None:
        return
    if _blocks_any_number(limit, nhc.limit_of):
        yield Finding(
            nhc.limit.path,
            f"{limit} allows no unhealthy node, so nothing is ever remediated. To pause the check, "
            "use pauseRequests.",
        )
        return
    nodes = context.cached(check_scope.selected, obj)
    nodes.demand_all()
    size = len(nodes)
    if size and not allowed_unhealthy(limit, size, nhc.limit_of):
        if nhc.limit_of is LimitKind.NODE_MAX_UNHEALTHY:
            problem = (
                f"{limit} is more than the {count(size, 'selected node')}, so the operator stops "
                "with an error"
            )
        else:
            problem = f"{limit} allows 0 of {count(size, 'node')} to be unhealthy"
        yield Finding(
            nhc.limit.path, f"{problem}: nothing is ever remediated. Write maxUnhealthy: 1."
        )


def _blocks_any_number(limit: IntOrPercent, limit_of: LimitKind) -> bool:
    if limit_of is LimitKind.NODE_MIN_HEALTHY:
        return limit == IntOrPercent(100, percent=True)
    return limit.number == 0
