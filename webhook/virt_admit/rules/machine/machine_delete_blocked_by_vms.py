"""A machine is deleted although a VM blocks the drain of its node or finds no room.

**Why.** The deletion drains the node first and respects disruption budgets even if the node is
unreachable. A VM that must live-migrate and cannot, or that waits for a controller outside
KubeVirt, stays on the node. The machine then stays in ``Deleting``.

**Fix.** Fix what keeps the VM from migrating, or set ``evictionStrategy: LiveMigrateIfPossible`` or
``None`` and restart it, or stop it.
"""

from virt_admit.forecasts.drain import capacity, machine_vms
from virt_admit.model.kubernetes.kinds import MACHINE
from virt_admit.model.remediation import machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, names, rule


@rule(
    kinds=(MACHINE,),
    reads=capacity.READS,
    operations=(Operation.DELETE,),
    action=Action.WARN,
    event="DrainBlocked",
    sources=(
        "openshift/machine-api-operator:pkg/controller/machine/drain_controller.go#drainNode",
    ),
)
def check(machine: Object, context: Context) -> Findings:
    evictions = machine_vms.evictions(machine, context.cluster)
    if evictions.blocking:
        yield Finding(
            machine.metadata["name"].path,
            "these VMs would block the drain of its node, so the machine would stay in Deleting: "
            f"{names((vmi.full_name for vmi in evictions.blocking), 80)}. Stop them first.",
            value=machine.name,
        )
    yield from evictions.unseen
    if evictions.reactions and (
        short := capacity.shortage(context.cluster, machines.node_name(machine))
    ):
        yield Finding(
            machine.metadata["name"].path,
            f"the drain of its node finds no {short.reason}. {short.remedy}, or stop VMs.",
            value=machine.name,
        )
