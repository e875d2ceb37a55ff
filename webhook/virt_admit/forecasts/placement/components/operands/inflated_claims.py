"""Claims that request more than their VolumeSnapshot gives, where the storage takes only its size.

KubeVirt requests the ``restoreSize`` of a snapshot. The claim of a persistent TPM or EFI state has
the label ``cdi.kubevirt.io/applyStorageProfile``, with which CDI's webhook adds the overhead of
file systems to any claim; from 1.64 on it leaves those made of a snapshot alone. Most drivers take
a larger claim, so their refusal is the evidence. A claim that KubeVirt makes again has the label
again. Sources: kubevirt/containerized-data-importer:pkg/controller/datavolume/util.go#RenderPvc
(pull request 3973); kubevirt/kubevirt:pkg/storage/backend-storage/backend-storage.go,
pkg/storage/snapshot/restore.go#createRestorePVC.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from virt_admit.forecasts.placement.components.operands.unwritten_configs import CONFIG
from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, HCO, PVC, VOLUME_SNAPSHOT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import fields
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

_LABEL: Final = "cdi.kubevirt.io/applyStorageProfile"
RESTORE: Final = "restore.kubevirt.io/name"
_OF_HARVESTER: Final = "restore.harvesterhci.io/name"
READS: Final[Reads] = {
    CDI: (),
    HCO: (),
    PVC: (
        f"metadata.annotations.{RESTORE}",
        f"metadata.annotations.{_OF_HARVESTER}",
        f"metadata.labels.{_LABEL}",
        "metadata.ownerReferences",
        "spec.resources.requests.storage",
        "spec.storageClassName",
        "spec.volumeMode",
        "status.phase",
    ),
    VOLUME_SNAPSHOT: ("status.restoreSize",),
}
"""Discovery finds CDIConfig in a cluster."""
_LARGER: Final = re.compile(r"\b(?:larger|greater|bigger|exceeds)\b")
_SOURCE: Final = re.compile(r"\b(?:source|snapshot)\b", re.IGNORECASE)
_NO_ROOM: Final = re.compile(
    r"\b(?:free|available|remaining|room|space|quota|limits?)\b|exhausted", re.IGNORECASE
)
"""A smaller claim would be refused too."""
_SHARE: Final = re.compile(r"0(?:\.\d{1,9})?")
_REPAIRED: Final = "1.64"
_LONGEST: Final = 120
_MI: Final = 2**20
"""CDI rounds a disk up to this before it adds the overhead."""
_SLACK: Final = 4096
"""It calculates with floating point."""


def of(claim: Object, namespace: str, name: str, said: str, cluster: Cluster) -> Problem | None:
    """Return that a claim requests more than its snapshot gives, and who raised it; None: it does
    not, or its provisioner does not refuse it for that.
    """
    saved = fields(cluster, VOLUME_SNAPSHOT, namespace, name).at("status", "restoreSize").text
    requested = claim.at("spec", "resources", "requests", "storage").text
    asked, most = size(requested), size(saved)
    if claim.at("status", "phase").text != "Pending" or asked is None or most is None:
        return None
    if asked <= most or not _is_refused(said, asked, most):
        return None
    reason = (
        f"it requests {shown(requested, asked)}, more than the {shown(saved, most)} of its "
        f"VolumeSnapshot {name} (restoreSize), which its provisioner refuses "
        f"({cut_middle(said.rpartition(' = ')[2], _LONGEST)})"
    )
    see = about("describe", claim, PVC)
    share = _added(claim, asked, most, cluster)
    if share is None:
        way = in_size(claim, saved or "", f"VolumeSnapshot {name}")
        return Problem(reason, way, command=see)
    kind = claim.at("spec", "storageClassName").text or ""
    reason += (
        f": CDI's webhook cdi-api-pvc-mutate added the overhead of file systems ({share} for class "
        f"{kind}), as the claim has the label {_LABEL}"
    )
    return Problem(reason, _remedy(claim, saved or "", kind, cluster), command=see)


def _is_refused(said: str, asked: Fraction, most: Fraction) -> bool:
    """Return whether a provisioner refuses a claim as larger than its source."""
    larger, numbers = _LARGER.search(said), set(re.findall(r"\d+", said))
    if larger is None or str(int(asked)) not in numbers or _NO_ROOM.search(said):
        return False
    by_source = _SOURCE.search(said, larger.end()) is not None and "capacity" not in said
    return by_source or str(int(most)) in numbers


def _added(claim: Object, asked: Fraction, most: Fraction, cluster: Cluster) -> str | None:
    """Return the overhead of file systems by which CDI has raised a claim; None: it has not, or
    that is not known.

    It was a share of the whole claim at first, and is one of the disk since.
    """
    config = next(iter(cluster.known(CONFIG)), None)
    if config is None or claim.at("spec", "volumeMode").text == "Block":
        return None
    found = config.at("status", "filesystemOverhead")
    own = found["storageClass"].map.get(claim.at("spec", "storageClassName").text or "")
    share = own if isinstance(own, str) else found["global"].text
    if claim.labels.get(_LABEL) != "true" or share is None or not _SHARE.fullmatch(share):
        return None
    part, disk = Fraction(share), math.ceil(most / _MI) * _MI
    raised = (disk / (1 - part), disk * (1 + part))
    return share if any(abs(asked - each) < _SLACK for each in raised) else None


def _remedy(claim: Object, saved: str, kind: str, cluster: Cluster) -> str:
    """Return how the claim gets the size of its snapshot.

    The overhead is that of all new disks of a class, in each namespace, so it is the last way.
    """
    restore = claim.annotations.get(RESTORE)
    again = "KubeVirt makes it again" if restore else "make it again"
    command = _without(kind, cluster)
    made = f"delete the claim, which has no volume: {again} with {saved}"
    none = f"only while no other disk of class {kind} is made in any namespace"
    off = f"the overhead of the class in CDI to 0{f' ({command})' if command else ''}"
    return (
        f"use CDI {_REPAIRED} or later, which does not raise such a claim, and {made}. Or, {none}, "
        f"as a new one would lack the room of its file system, set {off}, delete the claim, and "
        "set the overhead back then"
    )


def _without(kind: str, cluster: Cluster) -> str:
    """Return the command that sets the overhead of a class to 0; empty: its place is not known."""
    place = written_settings.holder(
        WrittenSetting.OVERHEAD, next(iter(cluster.known(CDI)), None), cluster
    )
    return place.patch("0", "storageClass", kind) if place is not None and kind else ""


def in_size(claim: Object, size: str, source: str) -> str:
    """Return how a copy of the size of its source is made: a restore makes the claim again in the
    former size.
    """
    if disk := claim.owned_by("DataVolume"):
        return f"make DataVolume {disk} again with storage of {size}"
    restore = claim.annotations.get(_OF_HARVESTER) or claim.annotations.get(RESTORE)
    if not restore:
        return f"delete the claim, which has no volume, and make it again with {size}"
    return (
        f"end VirtualMachineRestore {restore}, make a claim of {size} from {source} under another "
        "name, and use that in a VM"
    )


def size(quantity: str | None) -> Fraction | None:
    """Return a quantity in bytes; None: it is not one."""
    try:
        return parse_quantity(quantity) if quantity else None
    except ValueError:
        return None


def shown(quantity: str | None, bytes_: Fraction) -> str:
    """Return a quantity as it is written, with its bytes."""
    number = str(int(bytes_))
    return number if quantity == number else f"{quantity} ({number} bytes)"
