"""A NodeMaintenance drains a node whose VMs find no room on other nodes.

**Why.** No other node accepts VMs, or the VMs do not fit on the other nodes at the same time:
requests, affinity and quotas count. The target pods stay Pending. KubeVirt gives up each migration
after five minutes and repeats it forever, so the drain does not complete.

**Fix.** First uncordon or repair another node that runs KubeVirt, free or add what is short, or
stop the VMs. If pods cannot be read, or there are more than 3,000, only ``virt-admit drain``
computes room.
"""

from virt_admit.forecasts.drain import capacity, vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.reads import CONDITIONS
from virt_admit.model.messages import names
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule, union


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=union({NODE: ("metadata.labels", "spec.unschedulable", *CONDITIONS)}, capacity.READS),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    event="MigrationImpossible",
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    evictions = vmi_evictions.evictions(context.cluster, node.text or "")
    yield from evictions.unseen
    if migrating := evictions.having(Effect.MIGRATES):
        others = (other for other in context.cluster.list(NODE) if other.name != node.text)
        if not any(permanent_constraints.ready(other) for other in others):
            yield Finding(
                node.path,
                "no other node is Ready and accepts VMs, so these VMs cannot migrate and the drain "
                f"hangs: {names((vmi.full_name for vmi in migrating), 80)}. Uncordon or repair a "
                "node first.",
            )
            return
    if short := capacity.shortage(context.cluster, node.text or ""):
        yield Finding(node.path, f"the drain finds no {short.reason}. {short.remedy}, or stop VMs.")
