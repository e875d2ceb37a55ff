"""Backing images of Longhorn without a copy that is ready, for which all volumes made of them wait.

A replica starts once the disk that it is on has a copy. Longhorn copies it from any disk that has
one. Without any, a copy on a node that is down comes back with the node, and Longhorn downloads an
image again of which all copies have failed, if it downloaded it itself. Other copies that are not
reached keep it from that, until its records are removed by hand. Sources:
longhorn/longhorn-manager:controller/backing_image_controller.go#handleBackingImageDataSource,
:controller/backing_image_data_source_controller.go (isValidTypeForRetry),
:controller/backing_image_manager_controller.go#updateForUnknownBackingImageManager,
:controller/node_controller.go#markAllDisksNotReadyWhenNodeNotReady;
longhorn/longhorn-manager:controller/replica_controller.go#GetBackingImagePathForReplicaStarting,
:controller/volume_controller.go#ReconcileEngineReplicaState,
:k8s/pkg/apis/longhorn/v1beta2/backingimage.go;
longhorn/website:content/kb/troubleshooting-resolving-backing-image-unavailability-issue.md;
harvester/harvester:pkg/image/backingimage (the annotation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import longhorn_disks
from virt_admit.forecasts.placement.components.longhorn.longhorn_disks import LonghornDisk
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import LONGHORN_BACKING_IMAGE, LONGHORN_NODE, LONGHORN_VOLUME
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    longhorn_disks.READS,
    node_health.READS,
    {
        LONGHORN_VOLUME: ("spec.backingImage", *CONDITIONS, "status.conditions.message"),
        LONGHORN_BACKING_IMAGE: (
            "metadata.annotations",
            "spec.sourceType",
            "status.diskFileStatusMap",
        ),
    },
)
_WAITS: Final = "WaitForBackingImage"
_READY: Final = "ready"
_COMES: Final = frozenset(("in-progress", "starting", "ready-for-transfer"))
_FAILED: Final = "failed"
_UNKNOWN: Final = "unknown"
_LOST: Final = frozenset((_UNKNOWN, _FAILED, "failed-and-cleanup"))
_DOWNLOAD: Final = "download"
_RETRIED: Final = frozenset((_DOWNLOAD, "export-from-volume"))
"""Sources from which Longhorn makes the first copy again and again, until it is there."""
_NODE_GONE: Final = "KubernetesNodeGone"
"""Why a Longhorn node is not ready of which the Node is deleted."""
_IMAGE_ID: Final = "harvesterhci.io/imageId"
_PATIENCE: Final = timedelta(minutes=5)
_LONGEST: Final = 100
_SHOWN: Final = 3


def awaited(volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return for which backing image a volume waits; None: for none, or it is not known.

    The wait is that of the volume: none of its replicas is to blame.
    """
    waits = volume.condition(_WAITS)
    name = volume.at("spec", "backingImage").text
    image = find(cluster, LONGHORN_BACKING_IMAGE, volume.namespace, name)
    if waits["status"].text != "True" or image is None:
        return None
    lost = without_copy(image, cluster)
    if lost is not None:
        return lost
    since = clock.lasting(waits["lastTransitionTime"].text, cluster)
    states = names(sorted({_state(each) for each in _files(image).values()} - {""}))
    said = cut_middle(waits["message"].words, _LONGEST)
    why = f": {said}" if said else ""
    return HeldVolume(
        f"it waits{since} for backing image {_called(image)} on the disks of its replicas "
        f"(copies: {states or 'none'}){why}",
        typed("see how its copies get on", about("describe", image, LONGHORN_BACKING_IMAGE)),
    )


def of_stopped(volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that the backing image of a volume that is not attached has no copy; None: it has one,
    or needs none.
    """
    name = volume.at("spec", "backingImage").text
    image = find(cluster, LONGHORN_BACKING_IMAGE, volume.namespace, name)
    return without_copy(image, cluster) if image is not None else None


def without_copy(image: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that no copy of a backing image is ready or on its way; None: one is."""
    files = _files(image)
    states = {_state(each) for each in files.values()}
    gone = {uuid: each for uuid, each in files.items() if _state(each) in _LOST}
    if _READY in states or states & _COMES or not gone:
        return None
    ages = [clock.since(each["lastStateTransitionTime"].text, cluster) for each in gone.values()]
    if any(age is not None and age < _PATIENCE for age in ages):
        return None
    disks = cluster.cached(longhorn_disks.by_uuid)
    whys = [_why(uuid, each, disks.get(uuid), cluster) for uuid, each in sorted(gone.items())]
    reason = (
        f"it needs backing image {_called(image)}, which has no ready copy because "
        f"{' and '.join(whys[:_SHOWN])}. All volumes made of that image wait, on each node"
    )
    down = next(
        (disks[uuid] for uuid in sorted(gone) if _away(gone[uuid], disks.get(uuid), cluster)), None
    )
    if down is not None:
        on = down.node.name
        back = f"bring {on} back. If its disk is lost, {_again(image)}"
        looked = about("describe", down.node, LONGHORN_NODE)
        return HeldVolume(f"{reason} until {on} is back", typed(back, looked))
    if _is_made_again(image):
        refetched = _source(image) == _DOWNLOAD and states == {_FAILED}
        end = "; Longhorn tries to download it again by itself" if refetched else ""
        looked = about("describe", image, LONGHORN_BACKING_IMAGE)
        way = typed("see why Longhorn gets no copy of it ready", looked)
        return HeldVolume(f"{reason}{end}", way)
    return HeldVolume(
        f"{reason}; this does not end by itself", _remedy(image, gone, disks), lasts=True
    )


def on_disk(uuid: str, cluster: Cluster) -> Iterator[str]:
    """Yield the backing images that have no other copy than the one on a disk, as messages call
    them.
    """
    for image in sorted(cluster.known(LONGHORN_BACKING_IMAGE), key=lambda each: each.name):
        if _state(_files(image).get(uuid, Field(None))) in _LOST and without_copy(image, cluster):
            yield _called(image)


def _files(image: Object) -> dict[str, Field]:
    return dict(image.at("status", "diskFileStatusMap").entries())


def _state(file: Field) -> str:
    return file["state"].text or ""


def _called(image: Object) -> str:
    own = image.annotation(_IMAGE_ID).text
    return f"{image.name} of image {own}" if own else image.name


def _why(uuid: str, file: Field, disk: LonghornDisk | None, cluster: Cluster) -> str:
    """Return where a copy is, and why it is not ready."""
    state = _state(file)
    if disk is None:
        return f"the one on a disk that no node of Longhorn has is {state} ({uuid})"
    on = disk.node.name
    if fault := disk.fault(cluster):
        return f"disk {disk.name} of {on} {fault}"
    if away := _away(file, disk, cluster):
        return f"{on} with one {away}"
    said = cut_middle(file["message"].words, _LONGEST)
    return f"the one on disk {disk.name} of {on} is {state}{f' ({said})' if said else ''}"


def _away(file: Field, disk: LonghornDisk | None, cluster: Cluster) -> str:
    """Return that the node of a copy is down, with which the copy comes back; empty: it is not, or
    the copy is lost.
    """
    if disk is None or _state(file) != _UNKNOWN:
        return ""
    if silent := node_health.silent_for(disk.node.name, cluster):
        return silent
    ready = disk.node.condition("Ready")
    if ready["status"].text in (None, "True") or ready["reason"].text == _NODE_GONE:
        return ""
    return f"is not ready in Longhorn{clock.lasting(ready['lastTransitionTime'].text, cluster)}"


def _is_made_again(image: Object) -> bool:
    """Return whether Longhorn may make a copy of its source by itself: an unknown copy, of which
    it does not know whether it is lost, keeps it from that.
    """
    states = {_state(each) for each in _files(image).values()}
    return _source(image) in _RETRIED and _UNKNOWN not in states


def _source(image: Object) -> str:
    return image.at("spec", "sourceType").text or ""


def _again(image: Object) -> str:
    """Return from where an image comes again whose copies are lost."""
    return {
        _DOWNLOAD: "let Longhorn download it again (longhorn.io/kb: Backing Image Unavailability)",
        "upload": "upload it as a new image for new VMs: Longhorn cannot fetch an upload again",
    }.get(_source(image), "make a new image of its source for new VMs")


def _remedy(image: Object, gone: dict[str, Field], disks: Mapping[str, LonghornDisk]) -> str:
    """Return how a copy gets ready again: by its disk, else from where the image came."""
    again = _again(image)
    disk = next((disks[uuid] for uuid in sorted(gone) if uuid in disks), None)
    if disk is None or disk.ready["status"].text != "False":
        return typed(again, about("describe", image, LONGHORN_BACKING_IMAGE))
    return f"{disk.remedy()}; if that disk is lost, {again}"
