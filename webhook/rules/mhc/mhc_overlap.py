"""Two MachineHealthChecks select the same machine.

**Why.** Each of them counts its own limit. Together they can take more machines at a time than either allows, and the
shorter times of both win.

**Fix.** Give every machine to one check: one label for each check, or exclude with ``NotIn``.
"""

from collections.abc import Iterator

from webhook.model import health, machines
from webhook.model.kinds import CAPI_MACHINE, CAPI_MHC, MACHINE, MHC
from webhook.model.machines import Selection, Watch
from webhook.model.objects import Object
from webhook.model.texts import names
from webhook.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.fact(health.view, obj)
    if view.handler:
        return
    mine = context.fact(machines.selected, obj)
    everybody = machines.watches(context.cluster, view.kind)
    rivals = [watch for watch in everybody.of(obj.namespace) if _is_rival(watch, view, mine)]
    if rivals:
        shared = _shared(mine, rivals)
        whom = f" {names((machine.name for machine in shared), 50)}" if shared else " the same machines"
        yield Finding(
            view.selector_field.path,
            f"selects{whom} like {names((rival.check.obj.name for rival in rivals), 50)}; each counts its own limit, "
            "together they take more",
        )
    everybody.demand_all()
    mine.demand_all()


def _shared(mine: Selection, rivals: list[Watch]) -> tuple[Object, ...]:
    """The machines that some rival selects, too."""
    common: frozenset[int] = frozenset()
    for rival in rivals:
        common |= mine.positions & rival.selection.positions
        if len(common) == len(mine):
            break
    return Selection(mine.index, common, mine.unseen).machines


def _is_rival(watch: Watch, view: health.HealthCheck, mine: Selection) -> bool:
    other = watch.check
    if other.handler or other.obj.name == view.obj.name or other.cluster_name != view.cluster_name:
        return False
    if not mine.positions.isdisjoint(watch.selection.positions):
        return True
    return bool(mine.unseen) and not view.selector.errors and other.selector == view.selector


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    reads=(MACHINE, CAPI_MACHINE, MHC, CAPI_MHC),
    action=Action.WARN,
    check=check,
    sources=("kubernetes-sigs/cluster-api:docs/book/src/tasks/automated-machine-management/healthchecking.md",),
)
