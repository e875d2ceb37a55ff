"""A node is cordoned although a VM would block its drain or find no room.

**Why.** ``kubectl drain`` usually follows a cordon. KubeVirt refuses the eviction of a VM that must
live-migrate and cannot, or that waits for a controller outside KubeVirt, and the drain retries
forever. A VM that finds no room on the other nodes cannot migrate, or stays down.

**Fix.** Free or add what is short. For each VM that blocks choose one: fix the reason in its
condition ``LiveMigratable``; set ``evictionStrategy: LiveMigrateIfPossible`` or ``None`` and
restart it; or stop it before the drain.
"""

from virt_admit.forecasts.drain import capacity, vmi_evictions
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Operation, names, rule


@rule(
    kinds=(NODE,),
    reads=capacity.READS,
    operations=(Operation.UPDATE,),
    action=Action.WARN,
    event="DrainBlocked",
    sources=(
        "OpenShift Virtualization, Node maintenance 11.2.2",
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go"
        ),
    ),
)
def check(node: Object, context: Context) -> Findings:
    cordon = node.at("spec", "unschedulable")
    if not cordon.boolean or context.old is None or context.old.at(*cordon.path).boolean:
        return
    evictions = vmi_evictions.evictions(context.cluster, node.name)
    if evictions.blocking:
        yield Finding(
            cordon.path,
            "these VMs would block a drain: "
            f"{names((vmi.full_name for vmi in evictions.blocking), 90)}. {evictions.remedy}",
        )
    yield from evictions.unseen
    if short := capacity.shortage(context.cluster, node.name):
        yield Finding(cordon.path, f"a drain finds no {short.reason}. {short.remedy}, or stop VMs.")
