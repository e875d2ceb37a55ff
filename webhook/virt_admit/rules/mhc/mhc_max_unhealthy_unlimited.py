"""A MachineHealthCheck can remediate all of its machines at once.

**Why.** When a zone or a network fails, every node stops reporting although its machine is intact.
Without a limit the check deletes all machines, and no capacity remains.

**Fix.** Set ``maxUnhealthy`` below the number of machines; 40% is usual.
"""

from virt_admit.model.kubernetes.int_or_percent import IntOrPercent, allowed_unhealthy
from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, rule, show


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    sources=("Workload Availability, Machine health checks 6.3.2.1",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    limit_field = _limit_field(view)
    if limit_field is None or view.deliberate:
        return
    field, limit = limit_field
    selection = context.cached(check_scope.selected, obj)
    if _is_control_plane(view, selection):
        return
    everything = limit.percent and limit.number == 100
    if not everything:
        selection.demand_all()
    size = len(selection)
    if size >= 2 and allowed_unhealthy(limit, size, view.limit_of) >= size:
        affected = f"all {size} machines" if not selection.unseen else "all machines"
    elif everything and selection.unseen:
        affected = "all machines"
    else:
        return
    verb = "remediate" if view.external or view.template.present else "delete"
    written, remedy = str(limit), "Use a lower value such as 40%."
    if view.range.present:
        written, remedy = show(field.value), "Lower its upper end."
    yield Finding(
        field.path,
        f"{written} sets no limit: a zone or network outage would {verb} {affected} at once. "
        f"{remedy}",
        value=str(limit),
    )


def _limit_field(view: HealthCheck) -> tuple[Field, IntOrPercent] | None:
    """Return the field that limits remediation, and its value; None if the value is not valid."""
    if not view.range.present:
        limit = view.known_limit()
        return (view.limit, limit) if limit is not None else None
    try:
        return view.range, IntOrPercent(view.read_range()[1])
    except ValueError:
        return None


def _is_control_plane(view: HealthCheck, selection: Selection) -> bool:
    """Return whether the check selects the control plane.

    Another rule covers it, and in Cluster API its controller protects the quorum.
    """
    if view.kind is CAPI_MHC:
        return any(
            requirement.key == machines.CAPI_CONTROL_PLANE_LABEL
            for requirement in view.selector.requirements
        )
    return machines.selects_control_plane(view.selector) or bool(machines.control_plane(selection))
