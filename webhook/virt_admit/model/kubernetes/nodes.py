"""The nodes of the cluster, by their labels and roles."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, each, keeps, unlisted
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Field, Object

ETCD: Final = "node-role.kubernetes.io/etcd"
TALOS: Final = "Talos ("
"""How a node that runs Talos begins the name of its system: ``Talos (v1.11.5)``."""
CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Either label, with any value, makes a Node part of the control plane."""

WORKER: Final = "node-role.kubernetes.io/worker"

HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of a Node with the name of its host, which is often that of the Node."""

SCHEDULABLE: Final = "kubevirt.io/schedulable"
"""Label of nodes that virt-handler serves. Its value changes often,
because it follows the heartbeat.
"""

HARVESTER: Final = "harvesterhci.io/managed"
"""Label of nodes that Harvester manages."""

NAMESPACE_SELECTOR: Final = "openshift.io/node-selector"
"""Annotation of a namespace: OpenShift merges it into the node selector of every pod there."""


def every(cluster: Cluster) -> Sequence[Object]:
    """Return the nodes of the cluster, for their labels, lasting taints and allocatable resources.

    An informer or a scan reads either all nodes or none. The known nodes therefore count as all of
    them, even those from a plain manifest file.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    found = cluster.cached(_every)
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def _every(cluster: Cluster) -> Sequence[Object] | Unseen:
    try:
        known = each(cluster, NODE, _lasting) if keeps(cluster) else cluster.known(NODE)
        return known or tuple(cluster.list(NODE))
    except Unseen as unseen:
        return unseen


def _lasting(node: Object) -> Object:
    """Return a node without what changes while it serves: a cordon, conditions, heartbeats,
    annotations.

    The taints of the node controllers go too: they repeat the cordon and the conditions.
    """
    taints = [taint.value for taint in node.at("spec", "taints").items() if not is_of_moment(taint)]
    allocatable = node.at("status", "allocatable")
    return Object(
        {
            "apiVersion": NODE.api_version,
            "kind": NODE.kind,
            "metadata": {"name": node.name, "labels": node.metadata["labels"].value},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable.value} if allocatable.present else {},
        }
    )


def is_of_moment(taint: Field) -> bool:
    """Whether a taint repeats a cordon or a condition of its node."""
    return (taint["key"].text or "").startswith("node.kubernetes.io/")


def written(taint: Field) -> str:
    """Return a taint as kubectl writes it, such as ``dedicated=gpu:NoSchedule``."""
    value = taint["value"].text
    return f"{taint['key'].text}{f'={value}' if value else ''}:{taint['effect'].text}"


def toleration(taint: Field) -> dict[str, Any]:
    """Return what tolerates a taint, and nothing else."""
    value = taint["value"].text
    same = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": taint["key"].text, **same, "effect": taint["effect"].text}


def of_kubevirt(cluster: Cluster) -> tuple[Object, ...]:
    """Return the nodes with the label ``kubevirt.io/schedulable``, whatever its value.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    every(cluster)
    return cluster.cached(_of_kubevirt)


def _of_kubevirt(cluster: Cluster) -> tuple[Object, ...]:
    found = cluster.cached(_every)
    if isinstance(found, Unseen):
        return ()
    return tuple(node for node in found if SCHEDULABLE in node.labels)


def alone(cluster: Cluster) -> str:
    """Return the name of the only node that runs VMs; empty: there are several or none, or more
    may exist than were read."""
    try:
        found = of_kubevirt(cluster) or every(cluster)
    except Unseen:
        return ""
    return _only(found, cluster)


def single(cluster: Cluster) -> str:
    """Return the name of the only node, so that pods without a guest have no other one; empty:
    there are several or none, or more may exist than were read."""
    try:
        return _only(every(cluster), cluster)
    except Unseen:
        return ""


def may_be_single(cluster: Cluster) -> bool:
    """Return whether no second node is known."""
    try:
        return len(every(cluster)) <= 1
    except Unseen:
        return True


def _only(found: Sequence[Object], cluster: Cluster) -> str:
    return found[0].name if len(found) == 1 and not unlisted(cluster, NODE) else ""


def is_of_harvester(node: Object) -> bool:
    """Return whether Harvester manages a node."""
    return node.labels.get(HARVESTER) == "true"


def has_harvester(cluster: Cluster) -> bool:
    """Return whether Harvester manages a known node."""
    return any(map(is_of_harvester, cluster.known(NODE)))


def only_of_harvester(cluster: Cluster) -> str:
    """Return the only node of a Harvester cluster; empty: there are more, or that is not known.

    Its upgrade drains nothing: it stops all VMs, and waits until they have ended. Source:
    harvester/harvester:package/upgrade/upgrade_node.sh#command_single_node_upgrade.
    """
    return single(cluster) if has_harvester(cluster) else ""


def is_control_plane(node: Object) -> bool:
    """Whether a Node is part of the control plane."""
    return any(label in node.labels for label in CONTROL_PLANE)


def votes_in_etcd(node: Object) -> bool:
    """Whether RKE2, k3s or Harvester run a member of etcd on a Node: also on a witness,
    which runs no API server.
    """
    return ETCD in node.labels


def is_server(node: Object) -> bool:
    """Whether a Node has a part of the control plane, or a member of etcd alone."""
    return is_control_plane(node) or votes_in_etcd(node)


def internal_addresses(node: Object) -> list[str]:
    """Return the addresses of a node by which the cluster reaches it."""
    known = node.at("status", "addresses").items()
    return [each["address"].text or "" for each in known if each["type"].text == "InternalIP"]


def lies_in(address: str, network: str) -> bool:
    """Return whether an address is in a network, as in ``10.0.2.0/24``. False: one is not valid."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
