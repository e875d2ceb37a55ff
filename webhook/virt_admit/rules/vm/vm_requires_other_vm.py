"""A virtual machine that should live-migrate may run only next to another pod.

**Why.** The target pod of a migration needs a node on which a matching pod already runs. Two VMs
that require each other, or one that requires itself, can never leave their node one by one, so the
drain of the node never completes. KubeVirt reports such a VM as migratable all the same.

**Fix.** Use preferred affinity, or a topology with several nodes such as a zone, or set
``evictionStrategy: None``.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import NODE, POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubevirt.instances import migratability
from virt_admit.model.kubevirt.launcher import vmi_affinity
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("affinity",),
    reads=union(migratability.READS, {NODE: ("metadata.labels",)}),
    action=Action.WARN,
    event="MigrationImpossible",
    sources=(
        "kubevirt/kubevirt#3535",
        (
            "kubernetes/kubernetes:pkg/scheduler/framework/plugins/interpodaffinity/"
            "filtering.go#satisfyPodAffinity"
        ),
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#createTargetPod",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    affinity = vmi_affinity.affinity(obj)
    required = [term for term in vmi_affinity.required_affinity(obj) if term.selector is not None]
    if not required or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    for term in required:
        if _is_one_node(term.topology_key, context.cluster):
            alike = vmi_affinity.matches_itself(obj, term)
            other = "a pod like itself" if alike else "a pod that this selects"
            yield Finding(
                affinity.path,
                f"it may run only on a node with {other}, so it cannot migrate alone and a drain "
                "hangs. Use preferred affinity.",
            )
            return


def _is_one_node(key: str, cluster: Cluster) -> bool:
    """Return whether each domain of the topology is a single node."""
    if key == HOSTNAME:
        return True
    try:
        values = [node.labels[key] for node in nodes.of_kubevirt(cluster) if key in node.labels]
    except Unseen:
        return False
    return bool(values) and len(set(values)) == len(values)
