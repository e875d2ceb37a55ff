"""What names a node for a volume of Longhorn: while anything does, the node may use the volume.

A pod names it first, then Kubernetes' attachment, Longhorn's ticket, the spec of the volume, and
last an engine (longhorn/longhorn-manager:controller/volume_attachment_controller.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_VOLUME,
    POD,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import grouped
from virt_admit.model.scheduler.pods import claim_users

READS: Final[Reads] = {
    LONGHORN_ATTACHMENT: ("spec",),
    LONGHORN_VOLUME: (
        "spec.migrationNodeID",
        "spec.nodeID",
        "status.currentMigrationNodeID",
        "status.currentNodeID",
        "status.kubernetesStatus",
    ),
    POD: ("spec.nodeName", "spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
    VOLUME_ATTACHMENT: ("spec.nodeName", "spec.source.persistentVolumeName"),
}
PLACES: Final = (
    ("spec", "nodeID"),
    ("spec", "migrationNodeID"),
    ("status", "currentNodeID"),
    ("status", "currentMigrationNodeID"),
)


def is_named(name: str, volume: Object | None, node: str, cluster: Cluster) -> bool:
    """Return whether anything that is known names a node for a volume, which may be gone."""
    own = volume is not None and node in nodes(volume)
    tickets = (
        ticket["nodeID"].text
        for each in tickets_of(name, cluster)
        for _, ticket in each.at("spec", "attachmentTickets").entries()
    )
    return own or node in tickets or is_used(name, volume, node, cluster)


def nodes(volume: Object) -> Iterator[str]:
    """Yield the nodes that a volume itself names."""
    yield from filter(None, (volume.at(*each).text for each in PLACES))


def claim_of(volume: Object | None) -> tuple[str, str]:
    """Return the namespace and the name of the claim of a volume; empty: not known."""
    if volume is None:
        return "", ""
    seen = volume.at("status", "kubernetesStatus")
    return seen["namespace"].text or "", seen["pvcName"].text or ""


def is_used(name: str, volume: Object | None, node: str, cluster: Cluster) -> bool:
    """Return whether a known pod of a node has the claim of a volume, or Kubernetes attached it
    there.
    """
    found = [attachments(name, cluster)]
    if volume is not None:
        known = volume.at("status", "kubernetesStatus", "pvName").text
        found.append(attachments(known or name, cluster))
        found.append(claim_users(*claim_of(volume), cluster))
    return any(each.at("spec", "nodeName").text == node for each in chain(*found))


def attachments(volume: str, cluster: Cluster) -> Sequence[Object]:
    """Return Kubernetes' known attachments of a PersistentVolume."""
    return entry(cluster, _attachments, volume) or ()


def _attachments(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    known = cluster.known(VOLUME_ATTACHMENT)
    return grouped(known, lambda each: each.at("spec", "source", "persistentVolumeName").text or "")


def tickets_of(volume: str, cluster: Cluster) -> Sequence[Object]:
    """Return Longhorn's known attachments of a volume, which hold its tickets."""
    return entry(cluster, _tickets, volume) or ()


def _tickets(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    known = cluster.known(LONGHORN_ATTACHMENT)
    return grouped(known, lambda each: each.at("spec", "volume").text or "")
