"""A virtual machine must live-migrate, but whether it can migrate cannot be determined.

**Why.** With ``LiveMigrate`` a VM that cannot migrate blocks drains forever. virt-admit could not read data that decides
this, such as a claim that does not exist yet, an instance type or a cluster default.

**Fix.** Provide the data with ``--cluster`` or ``--live``, or run the check again after the object exists.
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
            f"{strategy.phrase} blocks drains if the VM cannot migrate, which cannot be determined without "
            f"{messages.names(assessment.unseen)}. Provide it with --cluster or --live.",
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
