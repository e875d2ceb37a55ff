"""A virtual machine that is rerun on failure is shut down by a drain, and stays off.

**Why.** A drained guest is shut down in an orderly way, which ends its run as a success. ``RerunOnFailure`` starts a VM
again after a failure only, so a routine drain or upgrade switches it off for good. (Documents say that it is recreated
elsewhere; the code does not do that.)

**Fix.** Use ``runStrategy: Always``. If the VM can migrate, ``evictionStrategy: LiveMigrate`` spares it the shutdown.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen
from virt_admit.model.kinds import POOL, VM
from virt_admit.model.kubevirt import effective, migratability, vms
from virt_admit.model.kubevirt.migratability import Migratable
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(vm: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    run = vms.vm_spec(vm)["runStrategy"]
    if run.value != "RerunOnFailure" or not vms.vmi_spec(vm).is_map:
        return
    strategy = effective.strategy(vm, context.cluster)
    if strategy.value not in ("None", "LiveMigrateIfPossible"):
        return
    assessment = context.cached(migratability.assess, vm)
    if strategy.value == "LiveMigrateIfPossible" and assessment.migratable is not Migratable.NO:
        if assessment.migratable is Migratable.UNKNOWN:
            yield from map(Unseen, assessment.unseen)
        return
    why = "" if strategy.value == "None" else ", it cannot migrate"
    instead = ", or evictionStrategy: LiveMigrate" if assessment.migratable is Migratable.YES else ""
    yield Finding(
        run.path,
        f"a drain shuts the guest down ({strategy.phrase}{why}), which is no failure: RerunOnFailure leaves it off; "
        f"use Always{instead}",
        value=(run.value, strategy.value),
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL),
    reads=migratability.READS,
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt#9823", "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy"),
)
