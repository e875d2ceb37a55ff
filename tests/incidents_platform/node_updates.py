"""Updates of nodes: a node without a pool, a pool that another operator has paused,
and a lost quorum.
"""

import json

from tests.healthy.openshift import pool
from tests.healthy.parts import ago, budget, deployment, namespaces, obj

from .case import NODES, Incident, cluster, dead, only
from .openshift import masters, workers


def roles(items, name, *more):
    only(items, "Node", name)["metadata"]["labels"] |= {
        f"node-role.kubernetes.io/{role}": "" for role in more
    }


def node_of_two_custom_pools() -> Incident:
    items = [
        *workers(),
        pool("worker", NODES[:2], target="2", updated=0),
        pool("infra", []),
        pool("gpu", []),
    ]
    roles(items, "n3", "infra", "gpu")
    says = (
        "leaves out n3: n3 matches the custom MachineConfigPools gpu, infra",
        "begins now, ends +10 min: n1",
    )
    source = "https://github.com/openshift/machine-config-operator/pull/571"
    return Incident(source, items, "upgrade", 1, says, ("Next: n3",))


def master_of_a_custom_pool() -> Incident:
    items = [
        *workers(),
        *masters(),
        pool("master", ("m0", "m1", "m2")),
        pool("worker", NODES),
        pool("observed", []),
    ]
    roles(items, "m2", "observed")
    says = (
        "Yes:",
        (
            "m2 is updated with the masters, so the configuration of MachineConfigPool observed "
            "never reaches it"
        ),
    )
    return Incident("https://github.com/openshift/runbooks/pull/311", items, "upgrade", 0, says)


def reboot_without_quorum() -> Incident:
    items = cluster()
    for name in NODES:
        roles(items, name, "control-plane")
    says = (
        (
            "n3 does not report for 5 h: a reboot of n1 leaves 1 of 3 control-plane nodes, too few "
            "for etcd"
        ),
        "Repair n3 first, or remove it and its member of etcd and add a new node",
    )
    source = "https://github.com/hcloud-k8s/terraform-hcloud-kubernetes/issues/183"
    return Incident(source, dead(items, "n3"), "upgrade", 1, says, ("Yes",))


def lock_of_kured() -> Incident:
    """kured drains a node that a budget never lets become empty,
    and the other nodes wait for its lock.
    """
    items = cluster("n1")
    for name in NODES:
        notes = only(items, "Node", name)["metadata"]["annotations"]
        for mark in ("kured-most-recent-reboot-needed", "kured-reboot-in-progress"):
            notes[f"weave.works/{mark}"] = ago(hours=9)
    value = {
        "nodeID": "n1",
        "metadata": {"unschedulable": False},
        "created": ago(hours=9),
        "TTL": 0,
    }
    notes = {"weave.works/kured-node-lock": json.dumps(value)}
    items.append(
        obj("DaemonSet", "apps/v1", "kured", "kube-system", metadata={"annotations": notes})
    )
    labels = {"app": "gitea"}
    items += [
        *namespaces("git"),
        *deployment("gitea", "git", ["n1"], labels),
        budget("gitea", "git", labels, 1, available=1),
    ]
    says = (
        "PodDisruptionBudget git/gitea: minAvailable is 1 for 1 pod",
        "n2, n3 wait for the lock of kured (DaemonSet kube-system/kured), which n1 has for 9 h",
        "kured goes on by itself once n1 is empty",
    )
    source = "https://github.com/mysticaltech/terraform-hcloud-kube-hetzner/issues/1497"
    return Incident(source, items, "upgrade", 1, says, ("administrator ends the maintenance",))


def incidents() -> list[Incident]:
    return [
        lock_of_kured(),
        reboot_without_quorum(),
        node_of_two_custom_pools(),
        master_of_a_custom_pool(),
    ]
