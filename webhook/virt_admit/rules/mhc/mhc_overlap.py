"""Two MachineHealthChecks select the same machine.

**Why.** Each check counts against its own limit. Together they can remediate more machines at a
time than either allows. For each condition the shorter time applies.

**Fix.** Select every machine with one check only: use one label per check, or exclude machines with
``NotIn``.
"""

from collections.abc import Iterable

from virt_admit.model.kubernetes.kinds import CAPI_MHC, MHC
from virt_admit.model.kubernetes.labels import NO_POSITIONS, Selection
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, rule, union


@rule(
    kinds=(MHC, CAPI_MHC),
    reads=union(machines.SELECT_READS, {MHC: (), CAPI_MHC: ()}),
    action=Action.WARN,
    sources=(
        (
            "kubernetes-sigs/cluster-api:docs/book/src/tasks/automated-machine-management/"
            "healthchecking.md"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    rivals, unseen = gather(check_scope.rivals(view, context.cluster))
    if rivals:
        shared = _shared(context.cached(check_scope.selected, obj), rivals)
        machine_names = (
            names((machine.name for machine in shared.objects), 50) or "the same machines"
        )
        yield Finding(
            view.selector_field.path,
            f"also selected by {names((rival.check.obj.name for rival in rivals), 50)}: "
            f"{machine_names}. Together the checks can remediate more machines than either allows. "
            "Select each machine once.",
        )
    if unseen:
        yield Unseen(unseen)


def _shared(selection: Selection, rivals: Iterable[WatchedNodes]) -> Selection:
    """Return the machines that any rival also selects."""
    common = NO_POSITIONS
    for rival in rivals:
        common |= selection.positions & rival.selection.positions
        if len(common) == len(selection):
            break
    return selection.among(common)
