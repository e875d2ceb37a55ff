"""Disks of a VM that CDI has not begun to fill: copies of a claim that is in use, and disks that
wait for the first start.

CDI copies no claim that a pod writes to, and says so with the event CloneSourceInUse of the new
claim. The phase may be that of the copy already, because CDI writes which step it is to take. In a
class with WaitForFirstConsumer it fills a disk when the first pod has chosen the node. Sources:
kubevirt/containerized-data-importer:doc/clone-datavolume.md,
:doc/waitforfirstconsumer-storage-handling.md, :pkg/controller/common/util.go#GetPodsUsingPVCs,
:pkg/controller/populators/clone-populator.go#planAndExecute, issues
kubevirt/containerized-data-importer#3719, #2829.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import kubectl, merge_patch, typed, virtctl
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    PVC,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import fields, find, is_absent
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = {PVC: ("spec.storageClassName",), STORAGE_CLASS: (), STORAGE_PROFILE: ()}
FIRST_START: Final = frozenset(("PendingPopulation", "WaitForFirstConsumer"))
"""Phases of a data volume that waits for the first pod that uses it."""
_COPIES: Final = frozenset(("", "Pending", "CloneScheduled", "CloneInProgress"))
"""Phases of a copy that has not begun unless CDI reports a part."""
_BY_STORAGE: Final = frozenset(("CSICloneInProgress", "SnapshotForSmartCloneInProgress"))
"""Phases of a copy that the storage makes without reporting a part:
only the event says that it has not begun.
"""
_IN_USE: Final = "CloneSourceInUse"
_REPEATED: Final = timedelta(minutes=20)
"""CDI repeats the event while the claim is in use, at the latest after 17 minutes."""
_WRITERS: Final = frozenset(("virt-launcher", "hotplug-disk"))
"""Pods of KubeVirt that write to the claims that they use."""
_COPIER: Final = "cdi-clone-source"
"""The label of the pods of CDI that read a claim to copy it."""
_LONGEST: Final = 150


class CopySource(NamedTuple):
    """The claim that a data volume copies, and the pods that use it."""

    namespace: str
    claim: str
    users: tuple[Object, ...]

    @property
    def words(self) -> str:
        """The claim with its namespace."""
        return f"{self.namespace}/{self.claim}"

    @property
    def who(self) -> Sequence[str]:
        """The VMs and other pods that use the claim."""
        return sorted({vm_ledger.user(pod) for pod in self.users})


def source(disk: Object, cluster: Cluster) -> CopySource | None:
    """Return what a data volume copies; None: it is not a copy of a claim."""
    copied = disk.at("spec", "source", "pvc")
    if not copied.is_map or not copied["name"].text:
        return None
    namespace, claim = copied["namespace"].text or disk.namespace, copied["name"].text
    told = _told(disk, cluster)
    users = volume_attachments.users(namespace, claim, cluster)
    return CopySource(namespace, claim, tuple(pod for pod in users if _hinders(pod, claim, told)))


def _hinders(pod: Object, claim: str, told: bool) -> bool:
    """Whether a pod keeps CDI from copying a claim.

    Whether another pod than KubeVirt's writes to it, only the event says.
    """
    used = (each["persistentVolumeClaim"] for each in pod.at("spec", "volumes").items())
    writable = any(
        each["claimName"].text == claim and not each["readOnly"].boolean for each in used
    )
    others = told and pod.labels.get("cdi.kubevirt.io") != _COPIER
    return writable and (others or pod.labels.get("kubevirt.io") in _WRITERS)


def _told(disk: Object, cluster: Cluster) -> bool:
    """Whether CDI says that the claim which is to be copied is in use."""
    claim, since = claim_of(disk, cluster), clock.ago(_REPEATED, cluster)
    return claim is not None and bool(events.last_warning(claim, _IN_USE, since, cluster))


def claim_of(disk: Object, cluster: Cluster) -> Object | None:
    """Return the claim of a data volume; None: it is not known."""
    return find(cluster, PVC, disk.namespace, disk.at("status", "claimName").text or disk.name)


def waits(disk: Object, cluster: Cluster) -> bool:
    """Return whether a copy has not begun, as far as CDI says."""
    phase = disk.at("status", "phase").text or ""
    if phase in _BY_STORAGE:
        return not _has_part(disk) and _told(disk, cluster)
    return phase in _COPIES and not _has_part(disk) and not disk.is_true("Running")


def of_copy(disk: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return why the copy of a claim does not begin; None: it is not a copy, it goes on,
    or nothing says so.

    ``begin``: the words about the disk.
    """
    copied = source(disk, cluster)
    if copied is None or not waits(disk, cluster):
        return None
    if copied.users:
        who = names(copied.who)
        uses = "uses" if len(copied.who) == 1 else "use"
        reason = f"{begin}: CDI does not copy claim {copied.words} while {who} {uses} it"
        return stuck(
            reason,
            f"stop {who} until the copy is done, or {_other_source(copied, cluster)}",
            _stop(copied),
        )
    if not is_absent(cluster, PVC, copied.namespace, copied.claim):
        return None
    described = kubectl("describe", DATA_VOLUME, disk.name, disk.namespace)
    return stuck(
        f"{begin}: the claim that it copies, {copied.words}, does not exist",
        "create that claim",
        described,
    )


def _other_source(copied: CopySource, cluster: Cluster) -> str:
    """Return what can be copied while the claim is in use. A VolumeSnapshot needs a class with the
    driver of the claim."""
    claim = find(cluster, PVC, copied.namespace, copied.claim)
    name = claim.at("spec", "storageClassName").text if claim is not None else None
    driver = fields(cluster, STORAGE_CLASS, "", name)["provisioner"].text
    known = {each["driver"].text for each in cluster.known(_SNAPSHOT_CLASS)}
    if driver in known or _is_snapshotted(name, cluster):
        return "copy from a VolumeSnapshot instead"
    if driver is None or unlisted(cluster, _SNAPSHOT_CLASS):
        return f"copy from a VolumeSnapshot instead, if {driver or 'its driver'} makes any"
    return f"copy a claim that nothing uses ({driver} has no VolumeSnapshotClass)"


def _is_snapshotted(storage_class: str | None, cluster: Cluster) -> bool:
    """Return whether CDI has found a VolumeSnapshotClass for a StorageClass."""
    profile = fields(cluster, STORAGE_PROFILE, "", storage_class)
    return bool(profile.at("status", "snapshotClass").text)


_SNAPSHOT_CLASS: Final = Kind(
    *("snapshot.storage.k8s.io", ("v1",), "volumesnapshotclasses", "VolumeSnapshotClass"),
    namespaced=False,
)
"""In a live cluster discovery finds it."""


def _has_part(disk: Object) -> bool:
    """Whether CDI copies already: it reports a part."""
    progress = (disk.at("status", "progress").text or "").rstrip("%")
    return progress.isascii() and progress.replace(".", "", 1).isdigit() and float(progress) > 0


def words(vm: Object, volume: str, cluster: Cluster) -> str:
    """Return what a VM waits for with a data volume that is not complete; empty: the data volume
    is, or is not known.
    """
    disk = find(cluster, DATA_VOLUME, vm.namespace, volume)
    phase = disk.at("status", "phase").text if disk is not None else None
    if disk is None or phase in (None, "Succeeded"):
        return ""
    if filling := being_filled(disk, cluster):
        return f"its disk {volume} {filling}"
    progress = disk.at("status", "progress").text
    part = f", {progress}" if progress and progress.endswith("%") else ""
    said = (disk.condition(kind)["message"].text for kind in ("Running", "Bound", "Ready"))
    why = next(filter(None, said), "")
    return (
        f"its disk {volume} is not filled yet "
        f"({phase}{part}{f': {cut_middle(why, _LONGEST)}' if why else ''})"
    )


def being_filled(disk: Object, cluster: Cluster) -> str:
    """Return how far CDI has filled a data volume; empty: it has not begun, or does not go on.

    With a populator CDI fills another claim, ``prime-…``, and binds the volume to the claim of the
    disk at the end. Until then kube-controller-manager repeats ExternalProvisioning about that
    claim. Source: kubevirt/containerized-data-importer:doc/cdi-populators.md, issue 3632.
    """
    phase, runs = disk.at("status", "phase").text or "", disk.condition("Running")
    if not phase.endswith("InProgress") or not _has_part(disk) or runs["status"].text != "True":
        return ""
    claim = claim_of(disk, cluster)
    waits = claim is not None and claim.at("status", "phase").text == "Pending"
    group = claim.at("spec", "dataSourceRef", "apiGroup").text if claim is not None else None
    rebound = waits and group == DATA_VOLUME.group
    normal = ". Its claim is Pending until that ends, which is normal: wait" if rebound else ""
    lasting = clock.lasting(runs["lastTransitionTime"].text, cluster).replace(" for ", " after ", 1)
    return f"is being filled ({phase}, {disk.at('status', 'progress').text}{lasting}){normal}"


# --- a class without access modes -----------------------------------------------------------------


_WITHOUT: Final = re.compile(
    r"(?:cannot get access mode from|no accessMode specified in) StorageProfile ([\w.-]{1,253})"
)


def without_modes(said: str, begin: str, cluster: Cluster) -> Problem | None:
    """Return what ends that CDI knows no access mode for a disk; None:
    its event says something else.

    CDI creates no claim then. It knows the modes of many provisioners, and an administrator names
    those of the others. Source: kubevirt/containerized-data-importer:doc/storageprofile.md.
    """
    found = _WITHOUT.search(said)
    return _of_profile(found[1], f"{begin}: {said}", cluster) if found is not None else None


_NO_CLASS: Final = "no storageClass to choose profile"
"""CDI's words
(pkg/controller/datavolume/util.go#renderPvcSpecVolumeModeAndAccessModesAndStorageClass).
"""


def without_class(disk: Object, begin: str, said: str, cluster: Cluster) -> Problem | None:
    """Return that a disk gets no claim, as it names no class and none is the default; None:
    it does.

    ``said``: what CDI says of it; empty: nothing.

    Raises:
        Unseen: whether it has a claim could not be read.
    """
    phase, name = disk.at("status", "phase").text, disk.at("status", "claimName").text or disk.name
    if phase not in (None, "", "Pending") or cluster.get(PVC, disk.namespace, name) is not None:
        return None
    asked = disk.at("spec", "storage")
    if not asked.present or asked["accessModes"].present or asked["storageClassName"].text:
        return None
    is_disk = disk.at("spec", "contentType").value != "archive"
    if (said and _NO_CLASS not in said) or unlisted(cluster, STORAGE_CLASS):
        return None
    if _default(cluster, is_disk=is_disk):
        return None
    known = sorted(each.name for each in cluster.known(STORAGE_CLASS))
    there = (
        f" (there are {names(known)})"
        if len(known) > 1
        else f" (there is {known[0]})"
        if known
        else ""
    )
    reason = (
        f"{begin}: it gets no claim, because it names no storageClassName and no accessModes, and "
        f"no StorageClass is marked as the default{there}"
    )
    if not known:
        described = kubectl("describe", DATA_VOLUME, disk.name, disk.namespace)
        return stuck(reason, "create a StorageClass, and mark it as the default", described)
    usable = [name for name in known if _gives_modes(name, cluster) and _provisions(name, cluster)]
    if not usable:  # a default would give no access modes either
        words = f"name storageClassName and accessModes in {_place(disk)}"
        return stuck(reason, words, kubectl("describe", DATA_VOLUME, disk.name, disk.namespace))
    key = storage.DEFAULT_FOR_VMS if is_disk else storage.DEFAULT_FOR_ALL
    which = " or ".join(usable) if len(usable) <= _FEW else f"one of {names(usable)}"
    words = f"mark {which} as the default ({key}), or name storageClassName in {_place(disk)}"
    mark = {"metadata": {"annotations": {key: "true"}}}
    lone = len(usable) == 1
    command = (
        merge_patch(STORAGE_CLASS, usable[0], "", mark) if lone else kubectl("get", STORAGE_CLASS)
    )
    return stuck(reason, words, command)


_FEW: Final = 2


def _provisions(name: str, cluster: Cluster) -> bool:
    """Return whether a driver makes volumes of a class: where none does, a claim stays Pending."""
    return fields(cluster, STORAGE_CLASS, "", name)["provisioner"].text != _NO_PROVISIONER


_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


def _gives_modes(name: str, cluster: Cluster) -> bool:
    """Return whether CDI may know access modes of a class: it does not if its profile has none."""
    profile = find(cluster, STORAGE_PROFILE, "", name)
    return profile is None or any(map(_has_modes, _sets(profile)))


def _place(disk: Object) -> str:
    """Return where a data volume is written: its own spec cannot be changed."""
    owners = disk.metadata["ownerReferences"].items()
    name = next((each["name"].text for each in owners if each["kind"].text == VM.kind), None)
    return (
        f"the dataVolumeTemplate of VM {name}, and delete DataVolume {disk.name}"
        if name
        else "a new DataVolume"
    )


def of_modes(disk: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return the same for a disk without an event, from what it asks for; None: it has a mode,
    or that is not known.
    """
    asked = disk.at("spec", "storage")
    if not asked.present or asked["accessModes"].present:
        return None
    is_disk = disk.at("spec", "contentType").value != "archive"
    name = asked["storageClassName"].text or _default(cluster, is_disk=is_disk)
    profile = find(cluster, STORAGE_PROFILE, "", name)
    if profile is None or any(map(_has_modes, _sets(profile))):
        return None
    return _of_profile(
        profile.name,
        f"{begin}: it names no access mode, and StorageProfile {profile.name} has none",
        cluster,
    )


def _sets(profile: Object) -> Sequence[Field]:
    return tuple(profile.at("status", "claimPropertySets").items())


def _default(cluster: Cluster, *, is_disk: bool = True) -> str | None:
    of_disks = storage.marked(storage.DEFAULT_FOR_VMS, cluster) if is_disk else None
    return of_disks or storage.marked(storage.DEFAULT_FOR_ALL, cluster)


def _of_profile(name: str, reason: str, cluster: Cluster) -> Problem:
    provisioner = fields(cluster, STORAGE_CLASS, "", name)["provisioner"].text
    facts = ["the default class"] if name == _default(cluster) else []
    facts += (
        [f"of provisioner {provisioner}, whose access modes CDI does not know"]
        if provisioner
        else []
    )
    said = f"{reason} ({' '.join(facts)})" if facts else reason
    others = [
        each.name for each in cluster.known(STORAGE_PROFILE) if any(map(_has_modes, _sets(each)))
    ]
    other = f", or storageClassName, such as {sorted(others)[0]}" if others else ""
    words = (
        f"set spec.claimPropertySets of StorageProfile {name} to what its driver can, "
        "ReadWriteMany if it can that, because a migration needs it; or let the disk name "
        f"accessModes{other}"
    )
    return stuck(said, words, kubectl("edit", STORAGE_PROFILE, name))


def _has_modes(each: Field) -> bool:
    return each["accessModes"].present


def _stop(copied: CopySource) -> str:
    vmi = next(filter(None, map(vm_ledger.vmi_name, copied.users)), "")
    return (
        virtctl("stop", vmi, copied.namespace)
        if vmi
        else kubectl("describe", PVC, copied.claim, copied.namespace)
    )


def stuck(reason: str, remedy: str, command: str) -> Problem:
    """Return why a disk is not filled, with the command of the remedy."""
    return Problem(reason, typed(remedy, command), ProblemCause.NOT_REPORTED)
