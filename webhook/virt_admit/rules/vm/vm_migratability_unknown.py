"""It cannot be told whether a virtual machine that must live-migrate can do so.

**Why.** With ``LiveMigrate`` a VM that cannot migrate blocks drains for ever. Something that decides on it was not to be
seen: a claim that does not exist yet, an instance type, a default of the cluster.

**Fix.** Show it, with ``--cluster`` or ``--live``, or look again once it exists.
"""

from collections.abc import Iterator

from virt_admit.model import messages
from virt_admit.model.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt import effective, migratability, vms
from virt_admit.model.kubevirt.migratability import Migratable
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    if not vms.vmi_spec(obj).is_map:
        return
    strategy = effective.strategy(obj, context.cluster)
    if strategy.value != "LiveMigrate":
        return
    assessment = context.cached(migratability.assess, obj)
    if assessment.migratable is Migratable.UNKNOWN:
        yield Finding(
            strategy.path,
            f"{strategy.phrase}, but whether it can migrate depends on what was not seen: {messages.names(assessment.unseen)}",
            value=strategy.value,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL, VMIRS, VMI),
    reads=migratability.READS,
    action=Action.AUDIT,
    at_admission=False,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition",),
)
