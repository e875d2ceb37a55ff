"""A MachineHealthCheck can delete more than one control-plane machine at a time.

**Why.** Several unhealthy control-plane machines mean a problem in etcd or a running update.
Deleting machines then can cost etcd its quorum, and the cluster with it. The controller gives
control-plane machines no special treatment.

**Fix.** Write ``maxUnhealthy: 1``, as documented. Do not use a percentage, because it grows with
the control plane.
"""

from virt_admit.model.kubernetes.int_or_percent import allowed_unhealthy
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.rule import MACHINE, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC,),
    reads={MACHINE: ("metadata.labels",)},
    action=Action.DENY,
    sources=("Workload Availability, Machine health checks 6.3.2.1",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    limit = view.known_limit()
    if limit is None or view.handler or (not limit.percent and limit.number <= 1):
        return
    selection = context.cached(check_scope.selected, obj)
    masters = len(machines.control_plane(selection))
    if not masters and not machines.selects_control_plane(view.selector):
        selection.demand_all()
        return
    total = max(len(selection), machines.CONTROL_PLANE_SIZE) if selection.unseen else len(selection)
    allowed = allowed_unhealthy(limit, total or machines.CONTROL_PLANE_SIZE, view.limit_of)
    if allowed > 1:
        yield Finding(
            view.limit.path,
            f"{limit} allows deleting {allowed} control-plane machines at a time, which can cost "
            "etcd its quorum. Write maxUnhealthy: 1.",
            value=str(limit),
        )
    elif allowed == 1 and masters == len(selection):
        yield Finding(
            view.limit.path,
            f"{limit} allows deleting 1 control-plane machine today, but more when the control "
            "plane grows. Write maxUnhealthy: 1.",
            value=str(limit),
            max_action=Action.WARN,
        )
