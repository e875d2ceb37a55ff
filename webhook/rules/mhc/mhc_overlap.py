"""Two MachineHealthChecks select the same machine.

**Why.** Each of them counts its own limit. Together they can take more machines at a time than either allows, and the
shorter times of both win.

**Fix.** Give every machine to one check: one label for each check, or exclude with ``NotIn``.
"""

from collections.abc import Iterable, Iterator

from webhook.model import health, watching
from webhook.model.cluster import Unseen, gather
from webhook.model.kinds import CAPI_MACHINE, CAPI_MHC, MACHINE, MHC
from webhook.model.labels import NOBODY, Selection
from webhook.model.objects import Object
from webhook.model.texts import names
from webhook.model.watching import Watch
from webhook.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    view = context.fact(health.view, obj)
    rivals, unseen = gather(watching.rivals(view, context.cluster))
    if rivals:
        shared = _shared(context.fact(watching.selected, obj), rivals)
        whom = names((machine.name for machine in shared.objects), 50) or "the same machines"
        yield Finding(
            view.selector_field.path,
            f"selects {whom} like {names((rival.check.obj.name for rival in rivals), 50)}; each counts its own limit, "
            "together they take more; select each machine once",
        )
    if unseen:
        yield Unseen(unseen)


def _shared(mine: Selection, rivals: Iterable[Watch]) -> Selection:
    """The machines that some rival selects, too."""
    common = NOBODY
    for rival in rivals:
        common |= mine.positions & rival.selection.positions
        if len(common) == len(mine):
            break
    return mine.among(common)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    reads=(MACHINE, CAPI_MACHINE, MHC, CAPI_MHC),
    action=Action.WARN,
    check=check,
    sources=("kubernetes-sigs/cluster-api:docs/book/src/tasks/automated-machine-management/healthchecking.md",),
)
