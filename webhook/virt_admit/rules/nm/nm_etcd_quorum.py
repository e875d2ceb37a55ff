"""A NodeMaintenance drains a control-plane node whose etcd member is needed for quorum.

**Why.** On OpenShift a PodDisruptionBudget protects the etcd members. If it allows no disruption
and the member on this node is healthy, draining the node risks the quorum and with it the API. The
older operator (``nodemaintenance.kubevirt.io``) looks for a budget that OpenShift 4.11 and later do
not have, so it checks nothing.

**Fix.** Wait until all etcd members are healthy (``oc get pods -n openshift-etcd``), or choose the
node whose member is broken.
"""

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import CLUSTER_VERSION, INFRASTRUCTURE, NM, NM_KUBEVIRT, NODE
from virt_admit.model.kubernetes.reads import NAME, union
from virt_admit.model.remediation import etcd_guard, maintenance
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Operation, rule


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=union(
        etcd_guard.READS, {NODE: ("metadata.labels",), INFRASTRUCTURE: NAME, CLUSTER_VERSION: NAME}
    ),
    operations=(Operation.CREATE,),
    action=Action.DENY,
    sources=("medik8s/common:pkg/etcd/etcd.go", "OpenShift Virtualization, Nodes 10.1"),
)
def check(obj: Object, context: Context) -> Findings:
    cluster, name = context.cluster, maintenance.node(obj)
    node = cluster.get(NODE, "", name.text) if name.text else None
    if node is None or not nodes.is_control_plane(node) or not _is_openshift(cluster):
        return
    refusal = etcd_guard.refusal(node.name, cluster)
    if refusal:
        yield Finding(
            name.path,
            f"draining control-plane node {node.name} risks the etcd quorum: {refusal}. Wait until "
            "all members are healthy.",
        )


def _is_openshift(cluster: Cluster) -> bool:
    """Return whether the cluster has objects of config.openshift.io,
    as every OpenShift cluster has.

    Raises:
        Unseen: neither kind can be read.
    """
    if any(cluster.known(kind) for kind in (INFRASTRUCTURE, CLUSTER_VERSION)):
        return True
    return any(True for kind in (INFRASTRUCTURE, CLUSTER_VERSION) for _ in cluster.list(kind))
