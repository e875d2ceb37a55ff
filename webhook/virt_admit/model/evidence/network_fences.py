"""Fences that cut a node off from its storage, by its address.

Rook sets one for a node with the taint out-of-service, and lifts it after the taint. Each other
one, such as that of a failover between sites, is lifted by what set it. Rook takes the addresses
from what has a volume of that node open at that moment, which is the next node if its operator was
away meanwhile. It does not change a fence that exists, and sets none from 1.20 on. Sources:
rook/rook (before 1.20):pkg/operator/ceph/cluster/watcher.go#handleNodeFailure, #fenceRbdImage,
#createNetworkFence, #fenceResourceName; issue rook/rook#14832;
csi-addons/kubernetes-csi-addons:docs/networkfence.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NETWORK_FENCE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = {
    CEPH_CLUSTER: (),
    NETWORK_FENCE: (
        *("metadata.ownerReferences", "spec.cidrs", "spec.driver", "spec.fenceState"),
        "status.result",
    ),
    NODE: ("spec.taints", "status.addresses", "status.conditions.type", "status.conditions.status"),
}
_OF_ROOK: Final = {"rbd": ".rbd.csi.ceph.com", "cephfs": ".cephfs.csi.ceph.com"}
"""How Rook calls its drivers in the name of a fence, and the ends of their own names."""

_REFUSED: Final = re.compile(
    r"(?i)transport endpoint shutdown|\(108\)|exit status 108\b|bl(?:ock|ack)-?list"
)
"""What a client gets from Ceph that is on its blocklist: ESHUTDOWN."""


NEXT_TIME: Final = "; for the next time: "
"""Begins the last step of the remedy."""


class WrongFence(NamedTuple):
    """A fence that cuts off a node for which it was not set."""

    fence: Object
    meant: Object
    """The node for which Rook has set it, by its name."""
    cidrs: tuple[str, ...]
    """Those that cover the node that is cut off."""
    also: bool | None
    """Whether it covers the meant node too. None: not known, as it has more addresses than known
    ones, or the node has none."""

    def words(self, node: str) -> str:
        """What is wrong, as a sentence without its end."""
        own = names(nodes.internal_addresses(self.meant))
        meant = f"{self.meant.name}{f' ({own})' if own else ''}"
        covers = "as well as" if self.also else "instead of"
        set_for = f" {covers} {meant}, for which Rook has set it"
        return (
            f"NetworkFence {self.fence.name} (spec.fenceState Fenced, spec.cidrs "
            f"{names(self.cidrs)}) cuts {node} off from this storage"
            f"{f', and Rook has set it for {meant}' if self.also is None else set_for}"
        )

    @property
    def lift(self) -> str:
        """The command that lifts the fence. Rook sets no other one as long as it exists."""
        data = {"spec": {"fenceState": "Unfenced"}}
        return merge_patch(NETWORK_FENCE, self.fence.name, "", data)

    @property
    def remedy(self) -> str:
        """What ends it, with the command and what comes after it."""
        then = (
            f"then see that ceph osd blocklist ls does not name {names(self.cidrs)} any more, and "
            "start the guests again"
        )
        if self._is_tainted:
            then += f"; keep the NetworkFence itself until {self.meant.name} has lost its taint"
        then += (
            f"{NEXT_TIME}Rook 1.20 and later sets none by itself, so taint a lost node only once "
            "it is off for certain"
        )
        return f"{self.lifted}; {then}"

    @property
    def lifted(self) -> str:
        """What lifts it, with the command."""
        return typed(f"lift the fence once {self._before}", self.lift)

    @property
    def _before(self) -> str:
        """What has to be certain before the fence is lifted."""
        if self.meant.is_true("Ready"):
            return f"{self.meant.name} runs no guest any more that it ran before it was lost"
        kept = ", as this fence does not cut it off" if self.also is False else ""
        return f"{self.meant.name} is off for certain{kept}"

    @property
    def _is_tainted(self) -> bool:
        taints = self.meant.at("spec", "taints").items()
        return any(each["key"].text == "node.kubernetes.io/out-of-service" for each in taints)


def is_of_fence(error: str) -> bool:
    """Return whether an error is what a client gets that is cut off from Ceph."""
    return _REFUSED.search(error) is not None


def wrong(node: Object, driver: str, cluster: Cluster) -> Iterator[WrongFence]:
    """Yield the fences of other nodes that cut off this one, and work.

    The deletion of a fence does not lift it (csi-addons/kubernetes-csi-addons:internal/controller/
    csiaddons/networkfence_controller.go#Reconcile).

    ``driver``: whose storage it is; empty: that of any.
    """
    own = nodes.internal_addresses(node)
    for fence in _of(node, cluster):
        meant = _meant(fence, node, cluster)
        of_driver = not driver or fence.at("spec", "driver").text == driver
        works = fence.at("status", "result").text == "Succeeded"
        if meant is not None and of_driver and works:
            yield WrongFence(fence, meant, tuple(_covering(fence, own)), _covers(fence, meant, own))


def _covers(fence: Object, meant: Object, own: Sequence[str]) -> bool | None:
    """Return whether a fence covers a node too, besides these addresses; None: not known."""
    addresses = nodes.internal_addresses(meant)
    if any(_covering(fence, addresses)):
        return True
    others = len(list(fence.at("spec", "cidrs").items())) - len(list(_covering(fence, own)))
    return None if others or not addresses else False


def _meant(fence: Object, node: Object, cluster: Cluster) -> Object | None:
    """Return the other node for which Rook has set a fence; None: this one, or no known one."""
    named = next(_named(fence, cluster), "")
    return find(cluster, NODE, "", named) if named not in ("", node.name) else None


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


def is_cut_off(node: Object, cluster: Cluster) -> bool:
    """Return whether a known fence cuts off an address of a node."""
    return next(_of(node, cluster), None) is not None


def _of(node: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known fences that cut off an address of a node."""
    addresses = nodes.internal_addresses(node)
    for fence in cluster.known(NETWORK_FENCE):
        if fence.at("spec", "fenceState").text != "Unfenced" and any(_covering(fence, addresses)):
            yield fence


def _covering(fence: Object, addresses: Sequence[str]) -> Iterator[str]:
    """Yield the networks of a fence in which one of these addresses lies."""
    for each in fence.at("spec", "cidrs").items():
        if any(nodes.lies_in(address, each.text or "") for address in addresses):
            yield each.text or ""


def _is_of_rook(fence: Object, node: Object, cluster: Cluster) -> bool:
    """Return whether Rook has set a fence for a node, and lifts it after the taint."""
    return node.name in _named(fence, cluster)


def _named(fence: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the node after which Rook has named a fence.

    Before 1.14 the name of the node is that of the fence (rook/rook:pkg/operator/ceph/cluster/
    watcher.go#createNetworkFence of 1.13).
    """
    driver = fence.at("spec", "driver").text or ""
    for kind, end in _OF_ROOK.items():
        for ceph in cluster.known(CEPH_CLUSTER) if driver.endswith(end) else ():
            name = fence.name.removesuffix(f"-{kind}-{ceph.namespace}")
            if name != fence.name:
                yield name
    if driver.endswith(_OF_ROOK["rbd"]) and fence.owned_by(CEPH_CLUSTER.kind):
        yield fence.name
