"""Volumes of Longhorn that have to become healthy before Harvester empties a node in an upgrade.

Its pre-drain job looks at each volume with a running engine. It asks no VM to leave before all of
them are healthy: only then it shuts VMs down that cannot migrate, and taints the node. On up to two
nodes, two replicas are enough for it. Source: harvester/harvester:package/upgrade/upgrade_node.sh
#wait_longhorn_engines #command_pre_drain (equal in 1.1 to 1.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import unplaced_replicas
from virt_admit.forecasts.placement.components.longhorn.unplaced_replicas import UnplacedReplica
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.node_updates import harvester_upgrades

TAINT: Final = "kubevirt.io/drain"
"""What the job sets, whatever KubeVirt is set to."""
READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    unplaced_replicas.READS,
    {
        NODE: (f"metadata.labels.{nodes.HARVESTER}", "spec.taints", "spec.unschedulable"),
        LONGHORN_VOLUME: (
            *("status.state", "status.robustness"),
            *("status.kubernetesStatus", "status.conditions.lastTransitionTime"),
        ),
    },
)
_BEFORE: Final = ("Pre-draining", "PreDraining")
"""The states of a node whose job has not ended."""
_FEW: Final = 2
"""Nodes up to which the job does not ask for healthy volumes."""

_USUAL: Final = timedelta(minutes=30)
"""A replica on the node that was updated before is rebuilt by then, or being rebuilt."""


class MutualWait(NamedTuple):
    """A volume whose missing replica only the node that waits for it could take."""

    volume: Object
    short: UnplacedReplica

    @property
    def why(self) -> str:
        """What the job waits for and why, as a noun with clauses."""
        known = self.volume.at("status", "kubernetesStatus")
        claim, space = known["pvcName"].text, known["namespace"].text
        of = f" (claim {space}/{claim})" if claim and space else ""
        return (
            f"Longhorn volume {self.volume.name}{of} to become healthy: {self.short.why}. The "
            "upgrade has cordoned that node before, so both wait for each other, and no VM is "
            "asked to leave meanwhile"
        )

    def remedy(self, node: str) -> str:
        """Return what ends it, in the imperative."""
        again = "Longhorn then rebuilds the replica there, and the upgrade goes on by itself"
        fewer = self.short.fewer
        other = f"; or {fewer}, and raise it again after the upgrade" if fewer else ""
        uncordon = shell("kubectl", "uncordon", argument(node))
        return typed(f"Uncordon {node} until that volume is healthy", uncordon, f"{again}{other}")


def asks(cluster: Cluster) -> bool:
    """Return whether Harvester waits until volumes are healthy: not with one node or two, of which
    one is away meanwhile.
    """
    return sum(map(nodes.is_of_harvester, cluster.known(NODE))) > _FEW


@cached
def unhealthy(cluster: Cluster) -> Sequence[Object]:
    """Return the attached volumes that say that they are not healthy."""
    found = (each for each in cluster.known(LONGHORN_VOLUME) if _is_sick(each))
    return sorted(found, key=lambda each: each.name)


def _is_sick(volume: Object) -> bool:
    status = volume["status"]
    sick = status["robustness"].text in ("degraded", "faulted")
    return sick and status["state"].text == "attached"


def of_node(node: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the volumes that the job of a node waits for; empty: none that is known, or it has
    passed them.
    """
    every = harvester_upgrades.going(cluster)
    states = [harvester_upgrades.state(order, node.name) for order, _ in every]
    before = any(state in _BEFORE for state in states) and asks(cluster)
    passed = any(taint["key"].text == TAINT for taint in node.at("spec", "taints").items())
    return unhealthy(cluster) if before and not passed else ()


def mutual(node: Object, cluster: Cluster) -> MutualWait | None:
    """Return the volume for which a cordoned node waits, while its replica waits for that node;
    None: there is none, or it may pass by itself.
    """
    if not node.at("spec", "unschedulable").boolean:
        return None
    for volume in of_node(node, cluster):
        short, asked = unplaced_replicas.of(volume, cluster), volume.condition("Scheduled")
        lasts = clock.has_lasted(asked["lastTransitionTime"].text, _USUAL, cluster)
        if lasts and short is not None and node.name in short.away:
            return MutualWait(volume, short)
    return None
