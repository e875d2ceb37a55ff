"""Claims that request less than the snapshot needs that they are made of: their provisioner refuses
them again and again.

A storage rounds a volume up, and ``restoreSize`` is what it needs then. KubeVirt requests that of a
restore since 0.55.0 and in 0.49.1, and old releases keep a deleted restore in the status of the VM.
Sources: kubernetes-csi/external-provisioner:pkg/controller/controller.go#getSnapshotSource;
kubevirt/kubevirt:pkg/storage/snapshot/restore.go#CreateRestorePVCDef, pull 7933, 12835 (1.4).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, PVC, VM_RESTORE, VOLUME_SNAPSHOT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import fields
from virt_admit.model.problems import Problem

_RESTORE: Final = "restore.kubevirt.io/name"
READS: Final[Reads] = {
    KUBEVIRT: (),
    VM_RESTORE: ("status.complete", "status.conditions"),
    PVC: (
        f"metadata.annotations.{_RESTORE}",
        "metadata.ownerReferences",
        "spec.dataSource",
        "spec.dataSourceRef",
        "spec.resources.requests.storage",
        "status.phase",
    ),
    VOLUME_SNAPSHOT: ("status.restoreSize",),
}
_SAID: Final = re.compile(
    r"requested volume size \d{1,18} is less than the size (\d{1,18}) for the source snapshot"
)
_TAKES_LARGER: Final = Version(0, 55, 0)
_PATCHED: Final = (Version(0, 49, 1), Version(0, 50))
"""The first with the change backported, and the first after them without it."""


def of(claim: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return that a claim without a volume requests less than its snapshot needs; None: it does
    not, or that is not known. The remedy lacks its command.

    ``said``: the last error of the provisioner.
    """
    source = claim.at("spec", "dataSourceRef")
    source = source if source.is_map else claim.at("spec", "dataSource")
    name = source["name"].text or ""
    kind = (source["apiGroup"].text, source["kind"].text)
    if kind != (VOLUME_SNAPSHOT.group, VOLUME_SNAPSHOT.kind) or not name:
        return None
    namespace = source["namespace"].text or claim.namespace
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


def _bytes(quantity: str | None) -> Fraction | None:
    try:
        return parse_quantity(quantity) if quantity else None
    except ValueError:
        return None


def _shown(quantity: str | None, size: Fraction) -> str:
    number = str(int(size))
    return number if quantity == number else f"{quantity} ({number} bytes)"


def _way(claim: Object, needed: str, snapshot: str, cluster: Cluster) -> str:
    """Return how the claim gets its size: the request of a claim without a volume cannot be
    changed.
    """
    if disk := claim.owned_by("DataVolume"):
        return (
            f"make DataVolume {disk} again with storage of {needed} or more, as "
            "neither it nor its claim can be changed"
        )
    restore = claim.annotations.get(_RESTORE)
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
