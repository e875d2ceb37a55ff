"""A health check lists no node conditions.

**Why.** The schema does not require the list. Without it the check only replaces machines that
failed, whose node never joined, or whose node was deleted. A node that stopped reporting a day ago
counts as healthy.

**Fix.** List ``Ready`` with status ``"False"`` and with status ``"Unknown"``, 300s each. For a
check that only handles deleted nodes, list a condition that no node has.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=(
                "!self.apiVersion.startsWith('cluster.x-k8s.io/') && (self.kind == "
                f"'NodeHealthCheck' ? {cel.present('self.?spec.?unhealthyConditions')} : true) && "
                f"{cel_checks.CONDITIONS}.size() == 0"
            ),
            path="'spec.unhealthyConditions'",
            message=(
                "'no conditions are listed: a node that stops reporting is never remediated. List "
                """Ready with status ' + '"False" and with status "Unknown", each with a time of """
                "300s.'"
            ),
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:install/"
            "0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    # the schema adds both
    if view.has_entries or (view.kind is NHC and not view.conditions.present):
        return
    if view.kind is not CAPI_MHC:
        yield Finding(
            view.conditions.path,
            "no conditions are listed: a node that stops reporting is never remediated. List Ready "
            f'with status "False" and with status "Unknown", each with {view.time_key}: '
            f"{view.usual_time}.",
            value=None,  # an absent list and an empty one are the same finding
            cause=Cause.REQUIRED,
        )
    elif _idle(view):
        yield Finding(
            view.conditions.path,
            "no conditions are listed and the start-up timeout is 0: the check never remediates a "
            'machine. List Ready with status "False" and with status "Unknown".',
            cause=Cause.REQUIRED,
            max_action=Action.WARN,
        )


def _idle(view: HealthCheck) -> bool:
    """Return whether a Cluster API check without node conditions has no other criterion."""
    criteria = (view.machine_conditions, view.obj.at("spec", "checks", "unhealthyExpressions"))
    return view.known_startup_time() == 0 and not any(any(field.items()) for field in criteria)
