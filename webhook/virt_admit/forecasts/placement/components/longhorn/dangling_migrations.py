"""Migratable volumes of Longhorn that were detached amid a migration, and keep it.

In the status: Longhorn ends the migration before all else, and needs an engine with a node for
that. Without one it tries again and again, and detaches the volume each time. In the spec, while
that names no other node: before 1.7 Longhorn attaches no such volume, and takes the migration back
only once nothing asks for its target. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#processMigration,
:controller/volume_attachment_controller.go#handleVolumeMigration #isVolumeFullyDetached,
:datastore/longhorn.go#GetNewCurrentEngineAndExtras;
longhorn/website:content/kb/troubleshooting-migratable-rwx-volume-stuck-in-detaching-loop.md;
longhorn/longhorn#8735 (1.7.0), #11479 (1.10.0).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_ENGINE,
    LONGHORN_VOLUME,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped

READS: Final[Reads] = union(
    longhorn_copies.OF_RUNNING_RELEASE,
    {
        LONGHORN_VOLUME: (
            "spec.migrationNodeID",
            "spec.migratable",
            "spec.nodeID",
            "status.currentMigrationNodeID",
            "status.state",
        ),
        LONGHORN_ENGINE: ("spec.nodeID", "spec.volumeName", "status.currentState"),
        LONGHORN_ATTACHMENT: ("spec",),
        VOLUME_ATTACHMENT: (
            "metadata.creationTimestamp",
            "spec.nodeName",
            "spec.source.persistentVolumeName",
        ),
    },
)
_STOPPED: Final = "stopped"
_PATIENCE: Final = timedelta(minutes=2)
"""So long the CSI driver of Longhorn waits for an attachment."""
_FIXED: Final = (1, 10)
_CANCELLED: Final = (1, 7)
"""The first release that takes a migration out of the spec of a detached volume."""


def of(volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that a migration of a volume was never ended, so that no node can attach it; None: it
    migrates, or needs nothing, or that is not certain.
    """
    left = volume.at("status", "currentMigrationNodeID").text
    wanted = volume.at("spec", "migrationNodeID").text
    state = volume.at("status", "state").text
    if (
        not left
        or volume.at("spec", "migratable").boolean is not True
        or state not in ("detaching", "detached", "attaching")
    ):
        return None
    if wanted:
        return _unfinished(volume, wanted, cluster) if wanted == left else None
    if _may_be_used(volume, left, cluster):
        return None
    reason = (
        f"Longhorn still has a migration of it to {left} in its status (currentMigrationNodeID), "
        "which its spec does not want (migrationNodeID is empty) and which Longhorn cannot end "
        "without an engine. So the volume goes from detaching to detached again and again (now "
        f"{state}){_known_fault(volume, _FIXED, cluster)}. This does not end by itself; the data "
        "is not concerned"
    )
    way = (
        "stop the VM; then take that migration out of the status of the volume "
        f"({_patch(volume, 'status')}), and start the VM once the volume stays detached"
    )
    return HeldVolume(reason, way, lasts=True)


def _unfinished(volume: Object, target: str, cluster: Cluster) -> HeldVolume | None:
    """Return that a volume which is detached is still to migrate, so that it is not attached, not
    even to the node that its only ticket names; None: it may be, or that is not certain.
    """
    if (
        volume.at("spec", "nodeID").text
        or volume.at("status", "state").text != "detached"
        or target not in _ticket_nodes(volume, cluster)
        or not () < longhorn_copies.running_release(volume, cluster) < _CANCELLED
        or _has_engine(volume, cluster)
        or any(_is_new(each, cluster) for each in volume_users.attachments(volume.name, cluster))
    ):
        return None
    reason = (
        f"a migration of it to {target} was interrupted: Longhorn has migrationNodeID {target} in "
        f"its spec and currentMigrationNodeID {target} in its status, but no nodeID. So it neither "
        f"ends the migration nor attaches the volume{_known_fault(volume, _CANCELLED, cluster)}. "
        "This does not end by itself; the data is not concerned"
    )
    way = (
        "stop the VM; then take that migration out of the spec, if it is still there "
        f"({_patch(volume, 'spec')}), and out of the status ({_patch(volume, 'status')}), and "
        "start the VM once the volume stays detached"
    )
    return HeldVolume(reason, way, lasts=True)


def _patch(volume: Object, part: str) -> str:
    """Return the command that takes a migration out of the spec or the status of a volume."""
    field = {"spec": "migrationNodeID", "status": "currentMigrationNodeID"}[part]
    options = ("--subresource=status",) if part == "status" else ()
    return merge_patch(
        LONGHORN_VOLUME, volume.name, volume.namespace, {part: {field: ""}}, *options
    )


def _may_be_used(volume: Object, left: str, cluster: Cluster) -> bool:
    """Return whether an engine of a volume may run, or something may still want it on the node to
    which it migrated.
    """
    wanted = left in _ticket_nodes(volume, cluster)
    attached = any(
        each.at("spec", "nodeName").text == left or _is_new(each, cluster)
        for each in volume_users.attachments(volume.name, cluster)
    )
    return _has_engine(volume, cluster) or wanted or attached


def _ticket_nodes(volume: Object, cluster: Cluster) -> set[str | None]:
    """Return the nodes that Longhorn's tickets for a volume name."""
    return {
        ticket["nodeID"].text
        for each in volume_users.tickets_of(volume.name, cluster)
        for _, ticket in each.at("spec", "attachmentTickets").entries()
    }


def _has_engine(volume: Object, cluster: Cluster) -> bool:
    """Return whether an engine of a volume may run: one has a node, or not all are known."""
    if any(unlisted(cluster, kind) for kind in (LONGHORN_ENGINE, VOLUME_ATTACHMENT)):
        return True
    engines = entry(cluster, _engines, volume.name) or ()
    return not engines or any(
        each.at("spec", "nodeID").text or each.at("status", "currentState").text != _STOPPED
        for each in engines
    )


def _is_new(attachment: Object, cluster: Cluster) -> bool:
    """Return whether Longhorn may still end the migration before it attaches the volume."""
    age = clock.age(attachment, cluster)
    return age is None or age < _PATIENCE


def _engines(cluster: Cluster) -> dict[str, list[Object]]:
    known = cluster.known(LONGHORN_ENGINE)
    return grouped(known, lambda each: each.at("spec", "volumeName").text or "")


def _known_fault(volume: Object, fixed: tuple[int, int], cluster: Cluster) -> str:
    """Return which release of Longhorn ends such a migration; empty: this one should."""
    release, named = longhorn_copies.running_release(volume, cluster), ".".join(map(str, fixed))
    if not release:
        return f", as releases before {named} do"
    return f", a fault that Longhorn {named} corrects" if release < fixed else ""
