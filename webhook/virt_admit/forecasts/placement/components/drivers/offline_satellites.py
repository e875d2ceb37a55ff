"""Guests on LINSTOR's volumes whose node has no satellite that runs: DRBD goes on there, and
nothing changes it.

A migration needs two primaries. LINSTOR's driver sets that option for the volume, and the
satellites of both nodes apply it. Source: piraeusdatastore/linstor-csi:pkg/client/linstor.go#Attach
(PropertyAllowTwoPrimaries).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from virt_admit.forecasts.placement.components.drivers import node_agents
from virt_admit.forecasts.placement.components.drivers.node_agents import LINSTOR
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, PVC
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    node_agents.READS, {PVC: ("spec.volumeName",), PV: ("spec.csi.driver", "spec.volumeMode")}
)


def doubt(node: str, namespace: str, claims: Iterable[str], cluster: Cluster) -> Problem | None:
    """Return why a guest may not be able to leave a node with its volumes; None: no doubt."""
    down = node_agents.of_driver(LINSTOR, node, cluster)
    for claim in claims if down is not None else ():
        volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
        if volume is None or volume.at("spec", "csi", "driver").text != LINSTOR:
            continue
        if down is not None and volume.at("spec", "volumeMode").text == "Block":
            reason = (
                f"a second node may open claim {claim} only once LINSTOR's satellite on {node} "
                f"allows that, which does not run ({down.words})"
            )
            return Problem(reason, down.remedy)
    return None
