"""Whether etcd of OpenShift lets an operator of medik8s disrupt a control-plane node.

Source: medik8s/common:pkg/etcd/etcd.go#IsEtcdDisruptionAllowed.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PDB, POD
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads

ETCD: Final = "openshift-etcd"

READS: Final[Reads] = {
    PDB: ("spec.selector", "status.disruptionsAllowed"),
    POD: ("metadata.labels", "spec.nodeName", *CONDITIONS),
}


def refusal(node: str, cluster: Cluster) -> str:
    """Return why etcd allows no disruption of a node; empty if it does.

    A node whose own guard pod is missing or not ready is disrupted already, so it takes nothing more from the quorum.

    Raises:
        Unseen: the budget or the guard pods could not be read.
    """
    budgets = list(cluster.list(PDB, ETCD))
    if len(budgets) != 1:
        return f"{ETCD} has {len(budgets)} PodDisruptionBudgets instead of 1"
    (budget,) = budgets
    if (budget.at("status", "disruptionsAllowed").integer or 0) >= 1:
        return ""
    selector = selectors.parse(budget.at("spec", "selector").value)
    for pod in cluster.list(POD, ETCD):
        if pod.at("spec", "nodeName").text == node and selector.matches(pod.labels):
            ready = pod.condition("Ready")["status"].text
            return f"PodDisruptionBudget {budget.name} allows no disruption" if ready in ("True", "Unknown") else ""
    return ""
