"""A drain shuts a virtual machine down.

**Why.** With ``None``, and with ``LiveMigrateIfPossible`` on a VM that cannot migrate, a drain
interrupts the guest. This may be intended, but the owners of the VM should know about it before the
maintenance window. A VM that only its node can run, as with disks that are local to it, stays down
until that node is back.

**Fix.** Nothing, if this is intended. Otherwise remove the cause that prevents migration, and set
``LiveMigrate``.
"""

from functools import partial

from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import first_known
from virt_admit.model.kubernetes.kinds import NODE, POOL, VM
from virt_admit.model.kubevirt.instances import (
    expand,
    lifecycle,
    migratability,
    node_local_volumes,
    vms,
)
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.problems import problem_of
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
    reads=union(migratability.READS, node_local_volumes.READS, {NODE: ("metadata.labels",)}),
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
    then: str = "restarts" if outcomes.drain is Then.RESTARTED else outcomes.drain
    if outcomes.drain is Then.RESTARTED:
        try:
            node, disks = _only_node(vm, context)
        except Unseen:
            then = "restarts, unless only its node has its disks"
        else:
            if node:
                # without the name of the node, so that VMs of several nodes are one line
                then = "restarts on its node only, so it is down until that node is back"
                remedy = "Plan for that" + (", or use disks of all nodes." if disks else ".")
    # no edit of the VM changes that on a single node
    stays_down = outcomes.drain is Then.RESTARTED and not cause
    alone = nodes.alone(context.cluster) if stays_down else ""
    message = f"{strategy.phrase} lets a drain shut the guest down{why}. With runStrategy {run} "
    yield Finding(
        strategy.path,
        f"{message}the VM {then}. {remedy}",
        value=(strategy.value, run),
        problem=problem_of(cause, vm) if cause else None,
        command=shell("virt-admit", "drain", argument(alone)) if alone else "",
    )


def _only_node(vm: Object, context: Context) -> tuple[str, bool]:
    """Return the only node that can run a VM, and whether its disks are the cause; empty: other
    nodes can, as far as their number, its disks and the hosts that it names tell.

    Raises:
        Unseen: nothing says so, and a claim or its volume cannot be read.
    """
    if only := nodes.alone(context.cluster):
        return only, False  # with LiveMigrate the drain of this node would never end
    pin = permanent_constraints.pin(context.cached(expand.expand, vm))
    if pin is not None and len(pin.hosts) == 1:
        return next(iter(pin.hosts)), False
    claims = filter(None, map(migratability.claim_of, vms.vmi_spec(vm)["volumes"].items()))
    space, cluster = vms.namespace_of(vm), context.cluster
    found = (
        partial(node_local_volumes.only_node, space, claim.text, cluster)
        for claim in claims
        if claim.text
    )
    return first_known(found) or "", True


def _remedy(vm: Object, context: Context) -> str:
    """Return what helps a VM whose strategy is None:
    with LiveMigrate a VM that cannot migrate would block drains.
    """
    assessment = context.cached(migratability.assess, vm)
    if assessment.migratable is Migratable.NO:
        is_off = vm.at("status", "printableStatus").text == "Stopped"  # no condition says it yet
        cannot = "When it runs, it cannot" if is_off else "It cannot"
        return f"{cannot} migrate: {assessment.reasons[0].name}."
    if assessment.migratable is not Migratable.YES:
        return "Set LiveMigrate if it can migrate."
    chosen = vms.vmi_spec(vm)["evictionStrategy"].present
    return (
        "It could migrate, if that is preferred." if chosen else "Set LiveMigrate: it can migrate."
    )
