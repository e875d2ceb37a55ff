"""A drain shuts a virtual machine down.

**Why.** With ``None``, and with ``LiveMigrateIfPossible`` on a VM that cannot migrate, a drain
interrupts the guest. This may be intended, but the owners of the VM should know about it before the
maintenance window.

**Fix.** Nothing, if this is intended. Otherwise remove the cause that prevents migration, and set
``LiveMigrate``.
"""

from virt_admit.model.kubernetes.kinds import POOL, VM
from virt_admit.model.kubevirt.instances import expand, lifecycle, migratability, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.problems import problem_of
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, Unseen, rule


@rule(
    kinds=(VM, POOL),
    reads=migratability.READS,
    action=Action.AUDIT,
    drain_advice=DrainAdvice.STRATEGY,
    at_admission=False,
    sources=("kubevirt/kubevirt:pod-eviction-admitter.go#admitLauncherPod",),
)
def check(vm: Object, context: Context) -> Findings:
    run = vms.run_strategy(vms.vm_spec(vm))
    outcomes = lifecycle.RUN_STRATEGY.get(run or "")
    if outcomes is None or run == "Halted" or not vms.vmi_spec(vm).is_map:
        return
    strategy = context.cached(expand.strategy, vm)
    cause = ""
    if strategy.value == "LiveMigrateIfPossible":
        assessment = context.cached(migratability.assess, vm)
        if assessment.migratable is Migratable.UNKNOWN:
            yield from map(Unseen, assessment.unseen)
        if assessment.migratable is not Migratable.NO:
            return
        cause = assessment.reasons[0].name
    elif strategy.value != "None":
        return
    why = f" ({cause})" if cause else ""
    remedy = "Make it migratable if its guest must not stop." if cause else _remedy(vm, context)
    then = "restarts" if outcomes.drain is Then.RESTARTED else outcomes.drain
    yield Finding(
        strategy.path,
        f"{strategy.phrase} lets a drain shut the guest down{why}. With runStrategy {run} the VM "
        f"{then}. {remedy}",
        value=(strategy.value, run),
        problem=problem_of(cause, vm) if cause else None,
    )


def _remedy(vm: Object, context: Context) -> str:
    """Return what helps a VM whose strategy is None:
    with LiveMigrate a VM that cannot migrate would block drains.
    """
    assessment = context.cached(migratability.assess, vm)
    if assessment.migratable is Migratable.NO:
        return f"It cannot migrate: {assessment.reasons[0].name}."
    if assessment.migratable is not Migratable.YES:
        return "Set LiveMigrate if it can migrate."
    chosen = vms.vmi_spec(vm)["evictionStrategy"].present
    return (
        "It could migrate, if that is preferred." if chosen else "Set LiveMigrate: it can migrate."
    )
