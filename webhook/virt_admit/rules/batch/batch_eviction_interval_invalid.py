"""The time between batches of evictions is no duration, zero or negative.

**Why.** Without a pause batch follows batch: in effect all VMs are stopped at once. What is no duration passes
the schema; HyperConverged refuses it, KubeVirt only on updates.

**Fix.** Write a duration such as ``1m0s``, which is the default.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import workload_updates
from virt_admit.model.objects import Object
from virt_admit.model.units import parse_duration, show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    interval = workload_updates.block(obj)["batchEvictionInterval"]
    if not interval.present:
        return
    try:
        nanoseconds = parse_duration(interval.value)
    except ValueError as error:
        yield Finding(interval.path, str(error))
        return
    if nanoseconds <= 0:
        yield Finding(interval.path, f"{show(interval.value)} leaves no pause between batches of evictions; write 1m0s")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go#sync",),
)
