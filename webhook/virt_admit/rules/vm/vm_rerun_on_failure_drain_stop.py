"""A virtual machine with RerunOnFailure stays off after a drain.

**Why.** A drain shuts the guest down cleanly, so KubeVirt treats its run as a success.
``RerunOnFailure`` restarts a VM only after a failure, so a routine drain or upgrade switches the VM
off permanently. (The documentation says that the VM is recreated on another node; the code does not
do that.)

**Fix.** Use ``runStrategy: Always``. If the VM can migrate, ``evictionStrategy: LiveMigrate``
avoids the shutdown.
"""

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.kinds import POOL, VM
from virt_admit.model.kubevirt.instances import expand, migratability, vms
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.rule import (
    Action,
    Context,
    DrainAdvice,
    Finding,
    Findings,
    Object,
    Unseen,
    rule,
    union,
)


@rule(
    kinds=(VM, POOL),
    only_with=("runStrategy",),
    reads=union(migratability.READS, {VM: ("status.printableStatus",)}),
    action=Action.WARN,
    drain_advice=DrainAdvice.STAYS_OFF,
    sources=(
        "kubevirt/kubevirt#9823",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    run = vms.vm_spec(vm)["runStrategy"]
    if run.value != "RerunOnFailure" or not vms.vmi_spec(vm).is_map:
        return
    strategy = context.cached(expand.strategy, vm)
    if strategy.value not in ("None", "LiveMigrateIfPossible"):
        return
    assessment = context.cached(migratability.assess, vm)
    if strategy.value == "LiveMigrateIfPossible" and assessment.migratable is not Migratable.NO:
        if assessment.migratable is Migratable.UNKNOWN:
            yield from map(Unseen, assessment.unseen)
        return
    why = "" if strategy.value == "None" else " because the VM cannot migrate"
    instead = (
        ", or evictionStrategy: LiveMigrate" if assessment.migratable is Migratable.YES else ""
    )
    off = vm.at("status", "printableStatus").text == "Stopped"
    advice = (
        "It is shut down now, perhaps on purpose: Always would start it." if off else "Use Always"
    )
    yield Finding(
        run.path,
        f"with {strategy.phrase} a drain shuts the guest down{why}, and RerunOnFailure then keeps "
        f"it off. {advice}{'' if off else f'{instead}.'}",
        value=(run.value, strategy.value),
        # a guest that was shut down on purpose is not to be started by a remedy for drains
        max_action=Action.AUDIT if off else Action.DENY,
        command=_seen(vm) if off else "",
    )


def _seen(vm: Object) -> str:
    space = argument(vms.namespace_of(vm))
    return shell("virt-admit", "explain", argument(f"vm/{vm.name}"), "-n", space)
