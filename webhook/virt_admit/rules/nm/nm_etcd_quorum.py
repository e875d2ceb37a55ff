"""A control-plane node is to be drained while etcd cannot spare it.

**Why.** On OpenShift a PodDisruptionBudget guards the etcd members. If it allows no disruption and the member on this
node is well, taking the node away risks the quorum, and with it the API. The older operator
(``nodemaintenance.kubevirt.io``) looks for a budget that OpenShift 4.11 and later no longer have: it checks nothing.

**Fix.** Wait until all etcd members are well (``oc get pods -n openshift-etcd``), or maintain the node whose member is
broken.
"""

from collections.abc import Iterator

from virt_admit.model import nodes, selectors
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import CLUSTER_VERSION, INFRASTRUCTURE, NM, NM_KUBEVIRT, NODE, PDB, POD
from virt_admit.model.objects import Object
from virt_admit.model.reads import CONDITIONS, NAME
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule

ETCD = "openshift-etcd"


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    cluster, name = context.cluster, maintenance.node(obj)
    node = cluster.get(NODE, "", name.text) if name.text else None
    if node is None or not nodes.is_control_plane(node) or not _is_openshift(cluster):
        return
    refusal = _refusal(node.name, cluster)
    if refusal:
        yield Finding(
            name.path,
            f"etcd cannot spare the member on control-plane node {node.name}: {refusal}; wait until all are well",
        )


def _is_openshift(cluster: Cluster) -> bool:
    """Whether the cluster has objects of config.openshift.io, of which every OpenShift has one.

    Raises:
        Unseen: neither kind can be seen.
    """
    if any(cluster.known(kind) for kind in (INFRASTRUCTURE, CLUSTER_VERSION)):
        return True
    return any(True for kind in (INFRASTRUCTURE, CLUSTER_VERSION) for _ in cluster.list(kind))


def _refusal(node: str, cluster: Cluster) -> str:
    """Who says no; empty: nobody (medik8s/common:pkg/etcd/etcd.go#IsEtcdDisruptionAllowed)."""
    budgets = list(cluster.list(PDB, ETCD))
    if len(budgets) != 1:
        return f"there are {len(budgets)} PodDisruptionBudgets in {ETCD}, not one"
    budget = budgets[0]
    if (budget.at("status", "disruptionsAllowed").integer or 0) >= 1:
        return ""
    selector = selectors.parse(budget.at("spec", "selector").value)
    for pod in cluster.list(POD, ETCD):
        if pod.at("spec", "nodeName").text == node and selector.matches(pod.labels):
            ready = pod.condition("Ready")["status"].text
            return f"PodDisruptionBudget {budget.name} allows no disruption" if ready in ("True", "Unknown") else ""
    return ""


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    reads={
        NODE: ("metadata.labels",),
        INFRASTRUCTURE: NAME,
        CLUSTER_VERSION: NAME,
        PDB: ("spec.selector", "status.disruptionsAllowed"),
        POD: ("metadata.labels", "spec.nodeName", *CONDITIONS),
    },
    operations=(Operation.CREATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/common:pkg/etcd/etcd.go", "OpenShift Virtualization, Nodes 10.1"),
)
