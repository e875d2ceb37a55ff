"""Claims that request another size than what they are made of needs: their provisioner refuses
them again and again. ``inflated_claims`` has those that request more.

A storage rounds a volume up, and ``restoreSize`` is what it needs then. KubeVirt requests that of a
restore since 0.55.0 and in 0.49.1, and old releases keep a deleted restore in the status of the VM.
Longhorn copies a volume only into one of the same size as the source has now: after an expansion of
the source, each restore of an earlier snapshot in its own size is refused. Sources:
kubernetes-csi/external-provisioner:pkg/controller/controller.go#getSnapshotSource;
kubevirt/kubevirt:pkg/storage/snapshot/restore.go#CreateRestorePVCDef, pull 7933, 12835 (1.4);
longhorn/longhorn-manager:manager/volume.go#verifyDataSourceForVolumeCreation;
harvester/harvester#11130.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.placement.components.operands import inflated_claims
from virt_admit.forecasts.placement.components.operands.inflated_claims import RESTORE, in_size
from virt_admit.forecasts.placement.components.operands.inflated_claims import shown as _shown
from virt_admit.forecasts.placement.components.operands.inflated_claims import size as _bytes
from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, PVC, VM_RESTORE, VOLUME_SNAPSHOT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import fields, find
from virt_admit.model.problems import Problem

_READS: Final[Reads] = {
    KUBEVIRT: (),
    VM_RESTORE: ("status.complete", "status.conditions"),
    PVC: (
        "metadata.ownerReferences",
        "spec.dataSource",
        "spec.dataSourceRef",
        "spec.resources.requests.storage",
        "status.capacity.storage",
        "status.phase",
    ),
    VOLUME_SNAPSHOT: ("spec.source.persistentVolumeClaimName", "status.restoreSize"),
}
READS: Final[Reads] = union(inflated_claims.READS, _READS)
_SAID: Final = re.compile(
    r"requested volume size \d{1,18} is less than the size (\d{1,18}) for the source snapshot"
)
_UNEQUAL: Final = re.compile(
    r"size of target volume \((\d{1,18}) bytes\) is different than size of source volume "
    r"\((\d{1,18}) bytes\)"
)
_TAKES_LARGER: Final = Version(0, 55, 0)
_PATCHED: Final = (Version(0, 49, 1), Version(0, 50))
"""The first with the change backported, and the first after them without it."""


def of(claim: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return that a claim without a volume requests another size than its source needs; None: it
    does not, or that is not known. The remedy lacks its command.

    ``said``: the last error of the provisioner.
    """
    source = claim.at("spec", "dataSourceRef")
    source = source if source.is_map else claim.at("spec", "dataSource")
    name = source["name"].text or ""
    of_snapshot = source["kind"].text == VOLUME_SNAPSHOT.kind
    group = source["apiGroup"].text or ""
    if not name or group != (VOLUME_SNAPSHOT.group if of_snapshot else PVC.group):
        return None
    namespace = source["namespace"].text or claim.namespace
    if (unequal := _UNEQUAL.search(said)) is not None:
        return _resized(claim, of_snapshot, namespace, name, unequal, cluster)
    if not of_snapshot:
        return None
    return _less(claim, namespace, name, said, cluster) or inflated_claims.of(
        claim, namespace, name, said, cluster
    )


def _less(claim: Object, namespace: str, name: str, said: str, cluster: Cluster) -> Problem | None:
    """Return that a claim requests less than its snapshot needs."""
    told = _SAID.search(said)
    needed = fields(cluster, VOLUME_SNAPSHOT, namespace, name).at("status", "restoreSize").text
    needed = needed or (told[1] if told is not None else None)
    requested = claim.at("spec", "resources", "requests", "storage").text
    asked, least = _bytes(requested), _bytes(needed)
    if claim.at("status", "phase").text != "Pending" or asked is None or least is None:
        return None
    if asked >= least:
        return None
    reason = (
        f"it requests {_shown(requested, asked)}, less than the {_shown(needed, least)} of its "
        f"VolumeSnapshot {name} (restoreSize), so its provisioner always refuses it"
    )
    way = _way(claim, needed or "", name, cluster)
    return Problem(reason, way, command=about("describe", claim, PVC))


def _resized(
    claim: Object,
    of_snapshot: bool,
    namespace: str,
    name: str,
    said: re.Match[str],
    cluster: Cluster,
) -> Problem | None:
    """Return that a claim requests another size than the source has by now."""
    requested = claim.at("spec", "resources", "requests", "storage").text
    asked = _bytes(requested)
    if claim.at("status", "phase").text != "Pending" or asked is None or asked != int(said[1]):
        return None
    snapshot = fields(cluster, VOLUME_SNAPSHOT, namespace, name if of_snapshot else "")
    origin = snapshot.at("spec", "source", "persistentVolumeClaimName").text
    own = find(cluster, PVC, namespace, origin if of_snapshot else name)
    size = own.at("status", "capacity", "storage").text if own is not None else None
    known = size is not None and _bytes(size) == int(said[2])
    needed = (size if known else None) or said[2]
    what = f"claim {own.name}" if own is not None and known else "the source volume"
    saved = _bytes(snapshot.at("status", "restoreSize").text) == asked
    size_of = f", the restoreSize of VolumeSnapshot {name}," if saved else ""
    grown = " (expanded after the snapshot)" if saved and int(said[2]) > asked else ""
    brief = f"the claim requests {requested} as a copy of {what}, which has {needed} now"
    reason = (
        f"it requests {requested}{size_of} as a copy of {what}, which has {needed} now{grown}. Its "
        "provisioner copies only into a volume of the same size, so this does not end by itself"
    )
    source = f"{'VolumeSnapshot' if of_snapshot else 'claim'} {name}"
    way = in_size(claim, needed, source)
    if of_snapshot:
        way += "; or restore a snapshot that was taken after the expansion"
    return Problem(reason, way, command=about("describe", claim, PVC), brief=brief)


def _way(claim: Object, needed: str, snapshot: str, cluster: Cluster) -> str:
    """Return how the claim gets its size: the request of a claim without a volume cannot be
    changed.
    """
    if disk := claim.owned_by("DataVolume"):
        return (
            f"make DataVolume {disk} again with storage of {needed} or more, as "
            "neither it nor its claim can be changed"
        )
    restore = claim.annotations.get(RESTORE)
    if not restore:
        return f"delete the claim, which has no volume, and make it again with {needed} or more"
    goes_on = _goes_on(restore, claim.namespace, cluster)
    if not goes_on:
        ended = f"as VirtualMachineRestore {restore} does not go on"
        if goes_on is None:
            ended = f"unless VirtualMachineRestore {restore} goes on"
        return (
            "stop its VM, delete the claim, which has no volume, and make one of its name with "
            f"{needed} or more from VolumeSnapshot {snapshot}: KubeVirt makes none again, {ended}; "
            "or restore again"
        )
    release = versions.kubevirt_version(cluster)
    again = f"delete that claim, which has no volume: KubeVirt makes it again with {needed}"
    first, after = _PATCHED
    if release is not None and (release >= _TAKES_LARGER or first <= release < after):
        return again
    kept = (
        " (this release leaves a deleted restore in status.restoreInProgress of the VM)"
        if release is not None
        else ""
    )
    return (
        f"update KubeVirt to {_TAKES_LARGER} or later, then {again}. Without an update, make a "
        f"claim of {needed} or more from VolumeSnapshot {snapshot} by hand and use it in a VM{kept}"
    )


def _goes_on(name: str, namespace: str, cluster: Cluster) -> bool | None:
    """Return whether a restore makes a claim again that is deleted; None: it cannot be read.

    It ends before a claim of WaitForFirstConsumer has a volume, and does nothing afterwards
    (#VmRestoreProgressing).
    """
    try:
        restore = cluster.get(VM_RESTORE, namespace, name)
    except Unseen:
        return None
    if restore is None or restore.deleted or restore.at("status", "complete").boolean:
        return False
    return not restore.is_true("Failure")
