"""A NodeMaintenance drains a node whose VMs must migrate, but no other node accepts VMs.

**Why.** The target pods of the migrations stay Pending. KubeVirt gives up each attempt after five minutes and repeats
it forever, so the drain does not complete.

**Fix.** First uncordon or repair another node that runs KubeVirt, or stop the VMs.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen
from virt_admit.model.kinds import NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubevirt import drain, effective, placement, vmis
from virt_admit.model.kubevirt.lifecycle import Eviction
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.reads import CONDITIONS, union
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    node = maintenance.node(obj)
    evictions = drain.evictions(context.cluster, node.text or "")
    yield from evictions.unseen
    migrating = evictions.having(Eviction.MIGRATES)
    if not migrating:
        return
    others = (other for other in context.cluster.list(NODE) if other.name != node.text)
    if not any(placement.ready(other) for other in others):
        yield Finding(
            node.path,
            f"no other node is Ready and accepts VMs, so these VMs cannot migrate and the drain hangs: "
            f"{names((vmi.full_name for vmi in migrating), 80)}. Uncordon or repair a node first.",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    reads=union(vmis.READS, effective.STRATEGY_READS, {NODE: ("metadata.labels", "spec.unschedulable", *CONDITIONS)}),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    event="MigrationImpossible",
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
    ),
)
