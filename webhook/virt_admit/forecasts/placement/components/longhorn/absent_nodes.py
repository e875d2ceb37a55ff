"""Volumes of Longhorn that wait, of which an object names a node that does not exist.

Up to 1.4 Longhorn wrote to ``status.pendingNodeID`` where to attach a volume again after its engine
had died. 1.5.0 to 1.5.4 and 1.6.0 neither write nor clear that field, and attach no volume that has
it; later releases do not read it. Failed replicas of a removed node are usual, and are not told.
Sources: longhorn/longhorn-manager:controller/utils.go#isVolumeFullyDetached,
:controller/volume_attachment_controller.go#handleVolumeAttachment; longhorn/longhorn#7994;
longhorn/website:content/kb/
troubleshooting-volume-cannot-attach-due-to-orphan-pending-node-id-or-longhorn-ui-ad-ticket.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_ENGINE,
    LONGHORN_NODE,
    LONGHORN_VOLUME,
    NODE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.lookups import is_absent

READS: Final[Reads] = union(
    volume_users.READS,
    longhorn_copies.OF_RUNNING_RELEASE,
    {
        LONGHORN_VOLUME: ("status.pendingNodeID", "status.state"),
        LONGHORN_ENGINE: ("spec.nodeID", "spec.volumeName"),
        LONGHORN_NODE: NAME,
        NODE: NAME,
    },
)
_PENDING: Final = "pendingNodeID"
_CLEARED: Final = (1, 5)
"""The first release that does not use the field any more."""
_IGNORED: Final = (1, 5, 5)
_AGAIN: Final = (1, 6, 0)
"""The one later release that reads it."""


def pending(volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that ``status.pendingNodeID`` keeps a volume from being attached; None: it does not,
    or its release is not known and the node may exist.
    """
    on = volume.at("status", _PENDING).text
    if not on or volume.at("status", "state").text == "attached":
        return None
    release = longhorn_copies.running_release(volume, cluster)
    gone = _is_gone(on, volume, cluster)
    if not (_reads(release) if release else gone):
        return None
    which = ", a node that does not exist," if gone else ""
    words = (
        f"status.{_PENDING} of its Volume still names {on}{which} and Longhorn 1.5.0 to 1.5.4 and "
        "1.6.0 attach no volume while that field is not empty"
    )
    if release:
        number = ".".join(map(str, release))
        words = words.replace("1.5.0 to 1.5.4 and 1.6.0 attach", f"{number} attaches")
    patch = merge_patch(
        *(LONGHORN_VOLUME, volume.name, volume.namespace, {"status": {_PENDING: ""}}),
        "--subresource=status",
    )
    way = "empty that field, and update Longhorn to 1.5.5, 1.6.1 or later, which ignore it"
    return HeldVolume(words, typed(way, patch), lasts=bool(release))


def _reads(release: tuple[int, ...]) -> bool:
    return _CLEARED <= release < _IGNORED or release == _AGAIN


def named(volume: Object, node: str, cluster: Cluster) -> HeldVolume | None:
    """Return which object of a volume that waits names a node that does not exist; None: none does,
    or the volume is attached.

    ``node``: where the volume is to be attached.
    """
    if volume.at("status", "state").text == "attached":
        return None
    for kind, obj, field, on in _names(volume, cluster):
        if on != node and _is_gone(on, volume, cluster):
            words = (
                f"{field} of Longhorn's {kind.kind} {obj.name} names {on}, a node that does not "
                "exist"
            )
            way = f"see why Longhorn keeps that, once the machine of {on} is known to be off"
            return HeldVolume(words, typed(way, about("describe", obj, kind)))
    return None


def _names(volume: Object, cluster: Cluster) -> Iterator[tuple[Kind, Object, str, str]]:
    """Yield which objects of a volume name which node, with the field."""
    for path in volume_users.PLACES:
        if on := volume.at(*path).text:
            yield LONGHORN_VOLUME, volume, ".".join(path), on
    for engine in entry(cluster, longhorn_copies.engines_by_volume, volume.name) or ():
        if on := engine.at("spec", "nodeID").text:
            yield LONGHORN_ENGINE, engine, "spec.nodeID", on
    for attachment in volume_users.tickets_of(volume.name, cluster):
        for key, ticket in attachment.at("spec", "attachmentTickets").entries():
            if on := ticket["nodeID"].text:
                yield LONGHORN_ATTACHMENT, attachment, f"attachmentTickets[{key}].nodeID", on


def _is_gone(on: str, volume: Object, cluster: Cluster) -> bool:
    """Return whether neither Kubernetes nor Longhorn has a node of this name, as far as known."""
    return is_absent(cluster, NODE, "", on) and is_absent(
        cluster, LONGHORN_NODE, volume.namespace, on
    )
