"""Fences that cut a node off from its storage, by its address.

Rook sets one for a node with the taint out-of-service, and lifts it after the taint. Each other
one, such as that of a failover between sites, is lifted by what set it. Sources:
rook/rook:pkg/operator/ceph/cluster/watcher.go#handleNodeFailure, #fenceResourceName;
csi-addons/kubernetes-csi-addons:docs/networkfence.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import about
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NETWORK_FENCE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {
    CEPH_CLUSTER: (),
    NETWORK_FENCE: ("spec.cidrs", "spec.driver", "spec.fenceState"),
    NODE: ("status.addresses",),
}
_OF_ROOK: Final = {"rbd": ".rbd.csi.ceph.com", "cephfs": ".cephfs.csi.ceph.com"}
"""How Rook calls its drivers in the name of a fence, and the ends of their own names."""


def before_taint(node: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return what ends a fence that Rook does not lift, and the command about it; None: the taint
    of the node may go first.
    """
    other = next(
        (each for each in _of(node, cluster) if not _is_of_rook(each, node, cluster)), None
    )
    if other is None:
        return None
    set_by = f"who set NetworkFence {other.name}, which cuts it off from its storage"
    lift = "lift that first (spec.fenceState: Unfenced), and remove its taint then"
    way = f"check {node.name} and see {set_by}; {lift}"
    return way, about("describe", other, NETWORK_FENCE)


def after_taint(node: Object, cluster: Cluster) -> str:
    """Return what is to be known of the fences of a node when its taint goes, as the end of a
    sentence; empty: nothing.
    """
    own = next((each for each in _of(node, cluster) if _is_of_rook(each, node, cluster)), None)
    if own is not None:
        cuts = f"NetworkFence {own.name}, which cuts it off from its storage"
        return f", after which Rook lifts {cuts}"
    unseen = unlisted(cluster, NETWORK_FENCE)
    return ", after you see that no NetworkFence names its address" if unseen else ""


def _of(node: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known fences that cut off an address of a node."""
    addresses = nodes.internal_addresses(node)
    for fence in cluster.known(NETWORK_FENCE):
        cidrs = [each.text or "" for each in fence.at("spec", "cidrs").items()]
        covers = any(nodes.lies_in(address, cidr) for cidr in cidrs for address in addresses)
        if covers and fence.at("spec", "fenceState").text != "Unfenced":
            yield fence


def _is_of_rook(fence: Object, node: Object, cluster: Cluster) -> bool:
    """Return whether Rook has set a fence for a node, and lifts it after the taint."""
    driver = fence.at("spec", "driver").text or ""
    return any(
        driver.endswith(end) and fence.name == f"{node.name}-{kind}-{ceph.namespace}"
        for kind, end in _OF_ROOK.items()
        for ceph in cluster.known(CEPH_CLUSTER)
    )
