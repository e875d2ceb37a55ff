"""Updates of nodes: a node without a pool, a pool that another operator has paused, and a lost quorum."""

from tests.healthy.openshift import pool

from .case import NODES, Incident, cluster, dead, only
from .openshift import masters, workers


def roles(items, name, *more):
    only(items, "Node", name)["metadata"]["labels"] |= {f"node-role.kubernetes.io/{role}": "" for role in more}


def node_of_two_custom_pools() -> Incident:
    items = [*workers(), pool("worker", NODES[:2], target="2", updated=0), pool("infra", []), pool("gpu", [])]
    roles(items, "n3", "infra", "gpu")
    says = ("stops at n3: n3 matches the custom MachineConfigPools gpu, infra", "begins now, ends +10 min: n1")
    source = "https://github.com/openshift/machine-config-operator/pull/571"
    return Incident(source, items, "upgrade", 1, says, ("Next: n3",))


def master_of_a_custom_pool() -> Incident:
    items = [*workers(), *masters(), pool("master", ("m0", "m1", "m2")), pool("worker", NODES), pool("observed", [])]
    roles(items, "m2", "observed")
    says = (
        "Yes:",
        "m2 is updated with the masters, so the configuration of MachineConfigPool observed never reaches it",
    )
    return Incident("https://github.com/openshift/runbooks/pull/311", items, "upgrade", 0, says)


def reboot_without_quorum() -> Incident:
    items = cluster()
    for name in NODES:
        roles(items, name, "control-plane")
    says = (
        "n3 does not report for 5 h 00: a reboot of n1 leaves 1 of 3 control-plane nodes, too few for etcd",
        "Repair n3 first, or remove it and its member of etcd and add a new node",
    )
    source = "https://github.com/hcloud-k8s/terraform-hcloud-kubernetes/issues/183"
    return Incident(source, dead(items, "n3"), "upgrade", 1, says, ("Yes",))


def incidents() -> list[Incident]:
    return [reboot_without_quorum(), node_of_two_custom_pools(), master_of_a_custom_pool()]
