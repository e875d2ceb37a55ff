"""Nodes that Harvester does not promote to its control plane, as too few zones have nodes.

With three nodes or more Harvester promotes two of them, so that the loss of one is survived. As
soon as a node of the control plane has a zone label, it takes only nodes of other zones, and none
until three zones have nodes that may be of the control plane. Source: harvester/harvester:
pkg/controller/master/node/promote_controller.go#selectPromoteNode; harvester/harvester#6546.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import names
from virt_admit.model.node_updates.rancher.nodeless_machines import PROMOTION

ZONE: Final = "topology.kubernetes.io/zone"
_ROLE: Final = "node-role.harvesterhci.io/"
_WANTED: Final = 3
"""Nodes of the control plane, and zones (defaultSpecManagementNumber)."""
_ROLES: Final = (*reversed(nodes.CONTROL_PLANE), nodes.ETCD)
"""The labels of its control plane, in the order in which Harvester reads them."""

READS: Final[Reads] = {
    NODE: (
        *("metadata.deletionTimestamp", "metadata.labels"),
        f"metadata.annotations.{PROMOTION}",
        *CONDITIONS,
    )
}


class UnpromotedNodes(NamedTuple):
    """Nodes that could be of the control plane, and are not for their zones."""

    names: Sequence[str]
    servers: Sequence[str]
    """Nodes of the control plane."""
    zones: Sequence[str]
    """Those of all these nodes."""
    moves: Mapping[str, str]
    """The nodes to which another zone is to be given, as many as zones lack; and that zone."""

    @property
    def reason(self) -> str:
        """Return why they are not promoted, as a clause."""
        number = len(self.servers)
        own, have = ("only node", "has") if number == 1 else (f"{number} nodes", "have")
        return (
            f"Harvester has not promoted {names(self.names, 160)} to the control plane: its {own} "
            f"{have} label {ZONE}, and with that Harvester waits for nodes in "
            f"{_WANTED} zones, while the only {'one is' if len(self.zones) == 1 else 'ones are'} "
            f"{names(self.zones)}"
        )

    @property
    def told(self) -> Sequence[str]:
        """Return those of which a finding is enough: the ones that get another zone, or else one of
        which a cluster may have a hundred.
        """
        return [name for name in self.names if name in self.moves] or self.names[:1]

    @property
    def remedy(self) -> str:
        """How Harvester promotes them. What else goes by zones is not known."""
        steps = [
            shell("kubectl", "label", "node", argument(name), f"{ZONE}={zone}", "--overwrite")
            for name, zone in self.moves.items()
        ]
        own = "a zone of its own" if len(self.moves) == 1 else "zones of their own"
        words = (
            f"Unless volumes or affinities go by these zones, give {names(self.moves)} {own}, "
            "after which Harvester promotes one node after the other"
        )
        return typed(words, " && ".join(steps), "or remove that label from all nodes")


@cached
def known(cluster: Cluster) -> UnpromotedNodes | None:
    """Return the nodes that are not promoted for their zones alone; None: there are none, another
    reason may hold them, or that is not known.
    """
    every = sorted(cluster.known(NODE), key=lambda each: each.name)
    servers = [each for each in every if _is_server(each)]
    others = [each for each in every if not _is_server(each) and _may_be(each)]
    witnesses = [each for each in every if each.labels.get(f"{_ROLE}witness") is not None]
    zones = {zone for each in (*servers, *others) if (zone := each.labels.get(ZONE, ""))}
    if (
        unlisted(cluster, NODE)
        or not nodes.has_harvester(cluster)
        or witnesses  # at most one of them counts, as another kind
        or not 0 < len(servers) < _WANTED <= len(servers) + len(others)
        or any(each.deleted or each.annotation(PROMOTION).text in _HOLDS for each in every)
        or any(
            each.annotation(PROMOTION).text == _COMPLETE and not _is_server(each) for each in every
        )
        or not any(each.labels.get(ZONE) for each in servers)
        or len(zones) >= _WANTED
    ):
        return None
    used = {""}
    same = []
    for each in (*servers, *others):
        zone = each.labels.get(ZONE, "")
        if zone in used:
            same.append(each)
        used.add(zone)
    # if any has the label, Harvester promotes no others
    same.sort(key=lambda each: (_is_server(each), f"{_ROLE}management" not in each.labels))
    return UnpromotedNodes(
        [each.name for each in others],
        [each.name for each in servers],
        sorted(zones),
        {each.name: _own_zone(each.name, zones) for each in same[: _WANTED - len(zones)]},
    )


def of_loss(lost: Set[str], cluster: Cluster) -> UnpromotedNodes | None:
    """Return the nodes that are not promoted if their promotion would let the API survive this
    loss; None: three nodes of a control plane survive the loss of one alone.
    """
    found = known(cluster)
    if found is None or len(lost & {*found.servers, *found.names}) > 1:
        return None
    return found


def _own_zone(node: str, zones: Set[str]) -> str:
    """Return a zone after the name of a node that no other one has."""
    name = node[:_LONGEST].rstrip("-._")
    return f"{name}-zone" if name in zones else name


_LONGEST: Final = 58
"""Characters of a zone: a value of a label has 63."""
_COMPLETE: Final = "complete"
_HOLDS: Final = ("running", "failed", "unknown")
"""The states of a promotion in which Harvester begins no other."""


def _is_server(node: Object) -> bool:
    """Return whether Harvester counts a node as of its control plane (pkg/util/node.go
    #IsManagementRole)."""
    own = (node.labels.get(key) for key in _ROLES)
    return next((each for each in own if each is not None), "") == "true"


def _may_be(node: Object) -> bool:
    """Return whether Harvester would promote a node. It passes cordoned ones in newer releases: one
    more zone would count then, so they are taken here."""
    return (
        node.labels.get(nodes.HARVESTER) is not None
        and node.labels.get(f"{_ROLE}worker") is None
        and node.is_true("Ready")
        and not any(
            each["status"].text == "True" and each["type"].text != "Ready"
            for each in node.at("status", "conditions").items()
        )
    )
