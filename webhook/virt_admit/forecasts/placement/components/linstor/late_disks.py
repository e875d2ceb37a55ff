"""A volume of LINSTOR that gets a disk on a node while a guest there has it open.

With ``auto-diskful``, LINSTOR replaces the diskless resource of a node that uses a volume by one
with a disk, a number of minutes after the node has opened the volume. The device then has other
limits. DRBD 9.2.16 does not pass them on, so that the device refuses discards (EINVAL), and QEMU
pauses the guest at each one. Nothing in Kubernetes says that it has happened, so that only its time
shows it. Sources:
LINBIT/linstor-server:controller/src/main/java/com/linbit/linstor/tasks/AutoDiskfulTask.java
(minutes; resource, node, definition, group and controller, in this order); issue
cozystack/cozystack#3168; siderolabs/extensions:drbd (the label of a node with its version).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PV, PVC, STORAGE_CLASS, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import fields, find, volume_of

_DRBD: Final = "extensions.talos.dev/drbd"
READS: Final[Reads] = {
    NODE: (f"metadata.labels.{_DRBD}",),
    PV: ("spec.csi.driver", "spec.storageClassName"),
    PVC: ("spec.volumeName",),
    STORAGE_CLASS: ("parameters",),
    VMI: ("status.migrationState", "status.nodeName", "status.phaseTransitionTimestamps"),
}
_OPTION: Final = "DrbdOptions/auto-diskful"
_MINUTES: Final = re.compile(r"[0-9]{1,6}")
_CLUSTER: Final = kinds.guess("piraeus.io/v1", "LinstorCluster")
_LATE: Final = timedelta(minutes=10)
"""The copy begins at once, and a guest with a journal discards or writes zeroes soon after."""
_STALE: Final = ("9.2.16",)
"""Releases of DRBD that are known to retain the limits of an open device."""


class LateDisk(NamedTuple):
    """That LINSTOR has probably given a volume a disk on its node, while it was in use."""

    words: str
    """As sentences without an end."""
    brief: str
    further: str
    """What keeps it from coming back after the VM is stopped and started."""


def of(vmi: Object, claim: str, errors: datetime, cluster: Cluster) -> LateDisk | None:
    """Return what LINSTOR probably did just before a guest met its first error; None: it is not
    known to do so, or it was at another time.

    ``errors``: when the first error of a volume of the guest was.
    """
    volume = volume_of(find(cluster, PVC, vms.namespace_of(vmi), claim), cluster)
    if volume is None or volume.at("spec", "csi", "driver").text != lost_quorums.DRIVER:
        return None
    source, minutes = _minutes(volume, cluster)
    arrival, came = _arrival(vmi)
    if not source or arrival is None:
        return None
    took = errors - arrival
    if not timedelta() <= took - timedelta(minutes=minutes) <= _LATE:
        return None
    on = vmi.at("status", "nodeName").text or "its node"
    label = fields(cluster, NODE, "", on).at("metadata", "labels", _DRBD).text
    release = (label or "").split("-")[0]
    if release not in ("", *_STALE):
        return None
    brief = f"LINSTOR probably gave the volume a disk on {on} while the guest had it open"
    limits = (
        f"DRBD {release} (label {_DRBD} of {on}) does not pass the new limits of the device on"
        if release
        else "DRBD may not pass the new limits of the device on"
    )
    words = (
        f"{brief}: {source} (minutes), and the errors began {clock.duration(took)} after {came}. "
        f"{limits}, so that discards fail"
    )
    further = (
        f"until the nodes have a later DRBD, take {_OPTION} out of where it is set (in a new "
        "class, as the parameters of one do not change) and out of the resource group of the class "
        "in LINSTOR, else it comes back"
    )
    return LateDisk(words, brief, further)


def _minutes(volume: Object, cluster: Cluster) -> tuple[str, int]:
    """Return what sets after how many minutes a volume gets a disk, and their number; empty:
    nothing is known to.
    """
    name = volume.at("spec", "storageClassName").text
    given = fields(cluster, STORAGE_CLASS, "", name).at("parameters").texts
    for key, value in given.items():
        if key.endswith(f"/{_OPTION}") and _MINUTES.fullmatch(value):
            return f'StorageClass {name} sets {key}: "{value}"', int(value)
    for each in cluster.known(_CLUSTER):
        for option in each.at("spec", "properties").items():
            value = option["value"].text or ""
            if option["name"].text == _OPTION and _MINUTES.fullmatch(value):
                return f'LinstorCluster {each.name} sets {_OPTION}: "{value}"', int(value)
    return "", 0


def _arrival(vmi: Object) -> tuple[datetime | None, str]:
    """Return when a guest came to its node, and how, in words."""
    moved, status = vmi.at("status", "migrationState"), vmi["status"]
    node = status["nodeName"].text or ""
    end = clock.instant(moved["endTimestamp"].text)
    if end is not None and moved["targetNode"].text == node and moved["completed"].boolean:
        return end, f"its migration from {moved['sourceNode'].text} to {node}"
    started = next(
        (
            each["phaseTransitionTimestamp"].text
            for each in status["phaseTransitionTimestamps"].items()
            if each["phase"].text == "Running"
        ),
        None,
    )
    return clock.instant(started), f"its start on {node}"
