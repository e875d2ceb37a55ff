"""Nodes whose kubelet refuses Longhorn's instance manager: the engine of a volume does not run
there, so that none is attached.

A volume that an NFS server shares is attached to the node of that server alone. Sources:
longhorn/longhorn-manager:controller/instance_manager_controller.go,
:controller/share_manager_controller.go, :k8s/pkg/apis/longhorn/v1beta2/volume.go#AccessMode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from virt_admit.forecasts.placement.components import longhorn_starts
from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import stopped_managers
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import LONGHORN_MANAGER, LONGHORN_VOLUME, PV, PVC
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, find_named, volume_of
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    longhorn_starts.READS,
    {
        LONGHORN_VOLUME: ("spec.accessMode", "spec.dataEngine", "spec.migratable"),
        PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
        PVC: ("spec.volumeName",),
    },
)
_OF_ONE_NODE: Final = ("rwo", "rwop")


def doubt(
    namespace: str, claims: Iterable[str], nodes: Collection[str], cluster: Cluster
) -> Problem | None:
    """Return that a pod with these claims may not start on any of the nodes that take it; None:
    one of them runs the engines of its volumes, as far as is known.
    """
    refused = _refused(cluster)
    if not refused:
        return None
    engines = sorted({_engine(namespace, claim, cluster) for claim in claims})
    causes = {
        node: cause
        for node in sorted(nodes)
        for engine in engines
        if (cause := refused.get((node, engine))) is not None
    }
    if not causes or not all(node in causes for node in nodes):
        return None
    first, *others = causes.values()
    why = names((f"on {node} {cause.words}" for node, cause in causes.items()), 300)
    only = f"only {names(causes)} can take it, and Longhorn attaches no volume there"
    return Problem(f"{only}: {why if others else first.words}", first.remedy)


def any_refused(cluster: Cluster) -> bool:
    """Return whether the kubelet of a node refuses instance managers."""
    return bool(_refused(cluster))


@cached
def _refused(cluster: Cluster) -> Mapping[tuple[str, str], HeldVolume]:
    """Return why the kubelet refuses the instance managers, by node and data engine."""
    places = {
        (each.at("spec", "nodeID").text or "", stopped_managers.data_engine(each))
        for each in cluster.known(LONGHORN_MANAGER)
    }
    found = ((place, stopped_managers.refused(*place, cluster)) for place in places)
    return {place: cause for place, cause in found if cause is not None}


def _engine(namespace: str, claim: str, cluster: Cluster) -> str:
    """Return the data engine of a volume whose engine certainly runs on the node of its pod;
    empty: of no such volume.
    """
    volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
    csi = volume.at("spec", "csi") if volume is not None else None
    if volume is None or csi is None or csi["driver"].text != longhorn_starts.DRIVER:
        return ""
    own = find_named(cluster, LONGHORN_VOLUME, csi["volumeHandle"].text or volume.name)
    if own is None:
        return ""
    spec = own["spec"]
    local = spec["migratable"].boolean is True or spec["accessMode"].text in _OF_ONE_NODE
    return stopped_managers.data_engine(own) if local else ""
