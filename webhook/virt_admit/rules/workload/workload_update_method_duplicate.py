"""A workload update method is listed twice.

**Why.** The second entry has no effect. Often the author intended the other method.

**Fix.** Remove the second entry, or write the other method.
"""

from virt_admit.forecasts.drain import workload_updates
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    fixable=True,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/"
            "workload-updater.go#getUpdateData"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
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
