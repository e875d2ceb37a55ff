"""A workload update method is listed twice.

**Why.** The second entry has no effect. Often the author intended the other method.

**Fix.** Remove the second entry, or write the other method.
"""

from collections.abc import Iterator

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    seen: set[str] = set()
    for item in workload_updates.listed(obj).items():
        if item.value not in workload_updates.METHODS:
            continue
        if item.value in seen:
            yield Finding(
                item.path,
                f"{item.value} is listed twice; the second entry has no effect. Remove it.",
                cause=Cause.DUPLICATE,
                fix=(Patch("remove", item.path),),
                why="it is listed before",
            )
        seen.add(item.value)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    fixable=True,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#getUpdateData",),
)
