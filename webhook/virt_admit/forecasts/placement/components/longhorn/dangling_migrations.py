"""Migratable volumes of Longhorn that were detached amid a migration, and keep it in their status.

Longhorn ends the migration before all else, and needs an engine with a node for that. Without one
it tries again and again, and detaches the volume each time. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#processMigration,
:datastore/longhorn.go#GetNewCurrentEngineAndExtras;
longhorn/website:content/kb/troubleshooting-migratable-rwx-volume-stuck-in-detaching-loop.md;
longhorn/longhorn#11479 (1.10.0).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import volume_users
from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_ENGINE,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import fields, grouped

READS: Final[Reads] = {
    LONGHORN_VOLUME: (
        "spec.migrationNodeID",
        "spec.migratable",
        "status.currentMigrationNodeID",
        "status.state",
    ),
    LONGHORN_ENGINE: ("spec.nodeID", "spec.volumeName", "status.currentState"),
    LONGHORN_ATTACHMENT: ("spec",),
    LONGHORN_SETTING: ("value",),
    VOLUME_ATTACHMENT: (
        "metadata.creationTimestamp",
        "spec.nodeName",
        "spec.source.persistentVolumeName",
    ),
}
_STOPPED: Final = "stopped"
_PATIENCE: Final = timedelta(minutes=2)
"""So long the CSI driver of Longhorn waits for an attachment."""
_FIXED: Final = (1, 10)
_RELEASE: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})\.")


def of(volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that a migration of a volume was never ended, so that no node can attach it; None: it
    migrates, or needs nothing, or that is not certain.
    """
    left = volume.at("status", "currentMigrationNodeID").text
    state = volume.at("status", "state").text
    if (
        not left
        or volume.at("spec", "migrationNodeID").text
        or volume.at("spec", "migratable").boolean is not True
        or state not in ("detaching", "detached", "attaching")
        or _may_be_used(volume, left, cluster)
    ):
        return None
    reason = (
        f"Longhorn still has a migration of it to {left} in its status (currentMigrationNodeID), "
        "which its spec does not want (migrationNodeID is empty) and which Longhorn cannot end "
        "without an engine. So the volume goes from detaching to detached again and again (now "
        f"{state}){_known_fault(volume, cluster)}. This does not end by itself; the data is not "
        "concerned"
    )
    patch = merge_patch(
        LONGHORN_VOLUME,
        volume.name,
        volume.namespace,
        {"status": {"currentMigrationNodeID": ""}},
        "--subresource=status",
    )
    way = (
        f"stop the VM; then take that migration out of the status of the volume ({patch}), and "
        "start the VM once the volume stays detached"
    )
    return HeldVolume(reason, way, lasts=True)


def _may_be_used(volume: Object, left: str, cluster: Cluster) -> bool:
    """Return whether an engine of a volume may run, or something may still want it on the node to
    which it migrated.
    """
    if any(unlisted(cluster, kind) for kind in (LONGHORN_ENGINE, VOLUME_ATTACHMENT)):
        return True
    engines = entry(cluster, _engines, volume.name) or ()
    runs = any(
        each.at("spec", "nodeID").text or each.at("status", "currentState").text != _STOPPED
        for each in engines
    )
    wanted = any(
        ticket["nodeID"].text == left
        for each in volume_users.tickets_of(volume.name, cluster)
        for _, ticket in each.at("spec", "attachmentTickets").entries()
    )
    attached = any(
        each.at("spec", "nodeName").text == left or _is_new(each, cluster)
        for each in volume_users.attachments(volume.name, cluster)
    )
    return not engines or runs or wanted or attached


def _is_new(attachment: Object, cluster: Cluster) -> bool:
    """Return whether Longhorn may still end the migration before it attaches the volume."""
    age = clock.age(attachment, cluster)
    return age is None or age < _PATIENCE


def _engines(cluster: Cluster) -> dict[str, list[Object]]:
    known = cluster.known(LONGHORN_ENGINE)
    return grouped(known, lambda each: each.at("spec", "volumeName").text or "")


def _known_fault(volume: Object, cluster: Cluster) -> str:
    """Return which release of Longhorn ends such a migration; empty: this one should."""
    setting = fields(cluster, LONGHORN_SETTING, volume.namespace, "current-longhorn-version")
    release = _RELEASE.match(setting["value"].text or "")
    if release is not None and tuple(map(int, release.groups())) >= _FIXED:
        return ""
    return ", a fault that Longhorn 1.10 corrects"
