"""The migration network gives no IP addresses.

**Why.** The virt-handler pod of every node joins this network and ends at its start if its
interface there has no IP address: "no IP found on migration0". KubeVirt replaces the pods one after
the other and stops at the first. On that node no VM can be migrated, stopped or started.

**Fix.** Give the NetworkAttachmentDefinition an ``ipam`` with addresses for all nodes, such as
whereabouts, before KubeVirt uses it. A virt-handler pod that crashes has to be deleted afterwards,
as it keeps its interface.
"""

from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NAD, POD
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.settings import migration_limits, migration_network
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(migration_network.JOINED_READS, {NAD: ("spec.config",), HCO: ()}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/migration.go#FindMigrationIP",
        "kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    network = migration_limits.network(obj)
    if network is None:
        return
    namespace, name = network[0] or obj.namespace or "default", network[1]
    definition = context.cluster.get(NAD, namespace, name)
    if definition is None or not migration_network.lacks_ipam(definition):
        return
    if _is_written(obj, network, context.cluster):
        return
    if not _works(name, context.cluster):
        yield Finding(
            migration_limits.block(obj)["network"].path,
            f"network {namespace}/{name} has no ipam, so each new virt-handler gets no IP address "
            "there and ends. Add one such as whereabouts, or remove the network.",
            command=about("edit", definition, NAD),
        )


def _is_written(obj: Object, network: tuple[str, str], cluster: Cluster) -> bool:
    """Whether HyperConverged writes the setting into a KubeVirt: the finding is there, and a change
    of KubeVirt is taken back.
    """
    owner = obj.owned_by(HCO.kind)
    found = cluster.get(HCO, obj.namespace, owner) if owner else None
    return found is not None and migration_limits.network(found) == network


def _works(network: str, cluster: Cluster) -> bool:
    """Whether a virt-handler has an address on the network, as routers may give one."""
    return any(migration_network.has_joined(pod, network) for pod in cluster.list(POD))
