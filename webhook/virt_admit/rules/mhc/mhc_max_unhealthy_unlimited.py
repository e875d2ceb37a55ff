"""A MachineHealthCheck may remediate all of its machines at once.

**Why.** When a zone or a network fails, every node falls silent, and nothing is wrong with the machines. Without a brake
all of them are deleted; none is left to run anything.

**Fix.** Let ``maxUnhealthy`` be less than the number of machines: 40% is usual.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.labels import Selection
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation import health_checks, machines, watching
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.units import IntOrPercent, allowed_unhealthy
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    limit_text = _brake(view)
    if limit_text is None or view.deliberate:
        return
    field, limit = limit_text
    selection = context.cached(watching.selected, obj)
    if _is_control_plane(view, selection):
        return
    everything = limit.percent and limit.number == 100
    if not everything:
        selection.demand_all()
    size = len(selection)
    if size >= 2 and allowed_unhealthy(limit, size, view.limit_of) >= size:
        whom = f"all {size} machines" if not selection.unseen else "all machines"
    elif everything and selection.unseen:
        whom = "all machines"
    else:
        return
    yield Finding(
        field.path,
        f"{limit} is no brake: when a zone or the network fails, {whom} go at once; 40% is usual",
        value=str(limit),
    )


def _brake(view: HealthCheck) -> tuple[Field, IntOrPercent] | None:
    """The field that stops remediation, and its limit; None where it cannot be read."""
    if not view.range.present:
        limit = view.known_limit()
        return (view.limit, limit) if limit is not None else None
    try:
        return view.range, IntOrPercent(view.read_range()[1])
    except ValueError:
        return None


def _is_control_plane(view: HealthCheck, selection: Selection) -> bool:
    """The control plane has a rule of its own, and in Cluster API a controller that minds its quorum."""
    if view.kind is CAPI_MHC:
        return any(each.key == machines.CAPI_CONTROL_PLANE_LABEL for each in view.selector.requirements)
    return machines.selects_control_plane(view.selector) or bool(machines.control_plane(selection))


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    check=check,
    sources=("Workload Availability, Machine health checks 6.3.2.1",),
)
