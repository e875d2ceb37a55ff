"""A MachineSet scales down although a VM blocks the drain of a machine to be deleted or finds no
room.

**Why.** A machine is drained before it is deleted. A VM that must live-migrate and cannot, or that
waits for a controller outside KubeVirt, blocks the drain. The machine then stays in ``Deleting``.

**Fix.** Mark other machines for deletion, fix what keeps the VM from migrating, or stop it.
"""

from virt_admit.forecasts.drain import capacity, machine_vms
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import MACHINE_SET
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import machines
from virt_admit.model.remediation.machines import ScaleDown
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule, union


@rule(
    kinds=(MACHINE_SET,),
    reads=union(machines.SET_READS, capacity.READS),
    operations=(Operation.UPDATE,),
    subresources=("scale",),
    action=Action.WARN,
    event="DrainBlocked",
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "openshift/machine-api-operator:pkg/controller/machineset/delete_policy.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    change = machines.scale_down(obj, context.old, context.subresource, context.cluster)
    if change is None:
        return
    members = machines.of_set(change.machine_set, context.cluster)
    blocking: list[str] = []
    short: Problem | None = None
    for machine in _deleted_first(members, change):
        evictions = machine_vms.evictions(machine, context.cluster)
        blocking += [f"{vmi.full_name} (on {machine.name})" for vmi in evictions.blocking]
        yield from evictions.unseen
        if evictions.reactions and not short:
            try:
                short = capacity.shortage(context.cluster, machines.node_name(machine))
            except Unseen as unseen:
                yield unseen
    if blocking:
        yield Finding(
            obj.at("spec", "replicas").path,
            f"these VMs would block the drains, so scaling down would hang: {names(blocking, 90)}. "
            "Stop them or mark other machines.",
        )
    if short:
        yield Finding(
            obj.at("spec", "replicas").path,
            f"the drains find no {short.reason}. {short.remedy}, or mark other machines.",
        )
    members.demand_all()


def _deleted_first(members: Selection, change: ScaleDown) -> tuple[Object, ...]:
    """Return the machines that are deleted first: all of them without replicas,
    else those that are marked.
    """
    return tuple(
        machine for machine in members.objects if change.after == 0 or machines.goes_first(machine)
    )
