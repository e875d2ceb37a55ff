"""Volumes of Longhorn whose replicas with data are all on nodes without an instance manager.

Longhorn starts no such replica, and marks it as failed while the volume is not attached. A volume
of one replica on a drained node waits until that is uncordoned: Longhorn makes no instance manager
on a cordoned node. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#openVolumeDependentResources
#canInstanceManagerLaunchReplica; harvester/harvester#8704, harvester/docs#1016.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import (
    longhorn_copies,
    stopped_managers,
    volume_users,
)
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_REPLICA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import command_of, names
from virt_admit.model.node_updates import harvester_upgrades

READS: Final[Reads] = union(
    longhorn_copies.READS,
    stopped_managers.READS,
    volume_users.READS,
    harvester_upgrades.READS,
    {LONGHORN_REPLICA: ("spec.dataEngine", "spec.lastHealthyAt", "status.currentState")},
)


class StrandedReplicas(NamedTuple):
    """All replicas of a volume that have its data."""

    volume: Object
    nodes: tuple[str, ...]
    first: HeldVolume
    """Why the instance manager of the first node does not run."""
    words: str
    repository: str = ""
    """The VM of the volume if an upgrade of Harvester under way waits for it, while it has cordoned
    these nodes; empty: none does.
    """

    @property
    def held(self) -> HeldVolume:
        """Why the volume is not attached, and what changes it."""
        found = self.first._replace(words=self.words, of_node=False)
        command = command_of(found.remedy)
        if not self.repository or " uncordon " not in command:
            return found
        way = (
            f"uncordon {self.nodes[0]}, and cordon it again once VM {self.repository} runs, for "
            "which the upgrade waits"
        )
        return found._replace(remedy=typed(way, command))


def of(volume: Object, cluster: Cluster) -> StrandedReplicas | None:
    """Return the replicas of a volume, if none of those with data can start; None: one can, or that
    is not known.
    """
    known = entry(cluster, longhorn_copies.by_volume, volume.name) or ()
    with_data = [each for each in known if _has_data(each)]
    if not with_data or unlisted(cluster, LONGHORN_REPLICA):
        return None
    found: dict[str, HeldVolume] = {}
    for replica in with_data:
        node = replica.at("spec", "nodeID").text or ""
        engine = stopped_managers.data_engine(replica)
        stopped = stopped_managers.of_node(node, engine, cluster) if node else None
        if stopped is None or replica.at("status", "currentState").text == "running":
            return None
        found.setdefault(node, stopped)
    nodes = tuple(sorted(found))
    first = found[nodes[0]]
    if len(with_data) == 1:
        own = with_data[0].name.removeprefix(f"{volume.name}-")
        wanted = volume.at("spec", "numberOfReplicas").integer
        asked = f", numberOfReplicas {wanted}" if wanted == 1 else ""
        words = f"its only replica (…-{own}{asked}) is on {nodes[0]}, where {first.words}"
    else:
        of_first = "" if len(nodes) == 1 else f": on {nodes[0]}"
        words = (
            f"all its {len(with_data)} replicas are on {names(nodes)}, where no instance manager "
            f"runs{of_first}, {first.words}"
        )
    return StrandedReplicas(volume, nodes, first, words, _repository(volume, cluster))


def _repository(volume: Object, cluster: Cluster) -> str:
    """Return the VM with the files of the release to which Harvester is updated, if a volume is
    that of its disk."""
    namespace, claim = volume_users.claim_of(volume)
    for order, _ in harvester_upgrades.going(cluster) if claim else ():
        name = f"upgrade-repo-{order.name}"
        if claim.startswith(f"{name}-") and namespace == order.namespace:
            return f"{namespace}/{name}"
    return ""


def _has_data(replica: Object) -> bool:
    spec = replica["spec"]
    return bool(spec["healthyAt"].text or spec["lastHealthyAt"].text)
