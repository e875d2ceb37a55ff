"""What CDI waits for at each step of a copy that the storage makes: a snapshot, a claim, its size,
its transfer.

The phase of the DataVolume names the step alone. Until 1.56 CDI names the temporary VolumeSnapshot
as the DataVolume, takes any snapshot with that name for its own, and makes the claim only from one
with its annotation: a snapshot of another maker stops the copy. From 1.57 on populators make
``tmp-snapshot-UID`` and ``tmp-pvc-UID``, with the UID of the claim, whose names are free. The
errors of populators are in the condition Running. Sources: kubevirt/containerized-data-importer (in
1.55.2: pkg/controller/datavolume-controller.go#reconcileSmartClonePvc #expand,
pkg/controller/smart-clone-controller.go#shouldReconcileSnapshot), :pkg/controller/clone/planner.go
#planSnapshotFromPVC #createDesiredClaim, :pkg/controller/clone/snapshot.go, snap-clone.go,
prep-claim.go and rebind.go, :pkg/controller/datavolume/clone-controller-base.go#populatorPhaseMap,
issue #3679.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts import unfinished_resizes, waiting_disks
from virt_admit.forecasts.drain.starts.storage import absent_workers
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CDI,
    DATA_SOURCE,
    DATA_VOLUME,
    POD,
    PV,
    PVC,
    STORAGE_CLASS,
    VM,
    VMI,
    VOLUME_SNAPSHOT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import pods

_OWNED: Final = "cdi.kubevirt.io/ownedByDataVolume"
_TIMES: Final = ("lastHeartbeatTime", "lastTransitionTime")
"""Of conditions. CDI writes the first one when a reason or a message changes
(:pkg/controller/datavolume/conditions.go#updateCondition)."""
_POPULATORS: Final = versions.Version(1, 57)
READS: Final[Reads] = union(
    absent_workers.READS,
    unfinished_resizes.READS,
    {
        CDI: ("status.observedVersion",),
        DATA_SOURCE: ("spec.source",),
        DATA_VOLUME: (
            *("metadata.creationTimestamp", "metadata.ownerReferences", "metadata.uid"),
            *("spec.source", "spec.sourceRef", "status.claimName", "status.phase"),
            *(f"status.conditions.{each}" for each in _TIMES),
        ),
        PV: ("spec.claimRef", "status.phase"),
        PVC: (
            *("metadata.creationTimestamp", "metadata.uid", "spec.dataSourceRef"),
            *("spec.storageClassName", "spec.volumeName", "status.phase"),
        ),
        STORAGE_CLASS: ("volumeBindingMode",),
        POD: ("metadata.creationTimestamp", "spec.volumes", "status.phase"),
        VMI: ("metadata.creationTimestamp",),
        VOLUME_SNAPSHOT: (
            *(f"metadata.annotations.{_OWNED}", "metadata.creationTimestamp"),
            *("metadata.ownerReferences", "spec.source.persistentVolumeClaimName"),
            *("status.boundVolumeSnapshotContentName", "status.error.message"),
            "status.readyToUse",
        ),
    },
)
_PATIENCE: Final = timedelta(minutes=5)
_LATE: Final = timedelta(minutes=15)
"""Storage needs some minutes for a snapshot or a copy of much data."""
_LONGEST: Final = 150
_SNAPSHOT_STEP: Final = "SnapshotForSmartCloneInProgress"
_CLAIM_STEPS: Final = frozenset(
    ("CSICloneInProgress", "CloneFromSnapshotSourceInProgress", "SmartClonePVCInProgress")
)
_SIZE_STEPS: Final = frozenset(("ExpansionInProgress", "PrepClaimInProgress"))
_REBIND_STEP: Final = "RebindInProgress"
_STEPS: Final = frozenset((_SNAPSHOT_STEP, _REBIND_STEP, *_CLAIM_STEPS, *_SIZE_STEPS))


class _Copy(NamedTuple):
    """A copy that CDI makes for a data volume."""

    disk: Object
    own: Object | None
    """The claim of the disk."""
    kind: str
    """What is copied, by kind, namespace and name."""
    namespace: str
    name: str

    @property
    def populated(self) -> str:
        """The UID in the names of what populators make; empty: CDI makes it without one."""
        by_populator = self.own is not None and (
            self.own.at("spec", "dataSourceRef", "kind").text == "VolumeCloneSource"
        )
        return self.own.metadata["uid"].text or "" if by_populator and self.own is not None else ""

    @property
    def transferred(self) -> str:
        """The name of what is made next to the source without populators; empty: the own one."""
        uid = self.disk.metadata["uid"].text
        return f"cdi-tmp-{uid}" if self.namespace != self.disk.namespace and uid else ""

    @property
    def snapshot(self) -> str:
        """The name of the snapshot from which a claim is made."""
        if self.kind == VOLUME_SNAPSHOT.kind:
            return self.name
        if self.populated:
            return f"tmp-snapshot-{self.populated}"
        return self.transferred or self.disk.name

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of the temporary claims next to the source."""
        if self.populated:
            return f"tmp-source-pvc-{self.populated}", f"tmp-pvc-{self.populated}"
        return (self.transferred,) if self.transferred else ()


def _copy(disk: Object, cluster: Cluster) -> _Copy | None:
    """Return what a data volume copies; None: nothing, or what is not known.

    Raises:
        Unseen: its claim could not be read.
    """
    of, source = disk.namespace, disk.at("spec", "source")
    reference = disk.at("spec", "sourceRef")
    if reference["name"].text:
        of = reference["namespace"].text or of
        found = find(cluster, DATA_SOURCE, of, reference["name"].text)
        if found is None:
            return None
        source = found.at("spec", "source")
    for key, kind in (("pvc", PVC.kind), ("snapshot", VOLUME_SNAPSHOT.kind)):
        if name := source[key]["name"].text:
            own = cluster.get(PVC, disk.namespace, disk.at("status", "claimName").text or disk.name)
            if own is None and _uses_populators(cluster):
                return None  # the names of what it makes are not known
            return _Copy(disk, own, kind, source[key]["namespace"].text or of, name)
    return None


def _uses_populators(cluster: Cluster) -> bool:
    """Return whether CDI is known to fill claims that exist, from objects with names of its own."""
    release = versions.parse_version(_release(cluster))
    return release is not None and release >= _POPULATORS


def _release(cluster: Cluster) -> str | None:
    cdi = next(iter(cluster.known(CDI)), None)
    return cdi.at("status", "observedVersion").text if cdi is not None else None


def claims(disk: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known claims that CDI makes for a copy next to its source.

    Raises:
        Unseen: the claim of the disk could not be read.
    """
    copied = _copy(disk, cluster) if disk.at("status", "phase").text in _STEPS else None
    if copied is not None:
        known = (find(cluster, PVC, copied.namespace, name) for name in copied.claims)
        yield from filter(None, known)


def problem(disk: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return which object a copy waits for; None: it is not at such a step, or only now.

    ``begin``: the words about the disk.

    Raises:
        Unseen: that object could not be read.
    """
    phase = disk.at("status", "phase").text or ""
    copied = _copy(disk, cluster) if phase in _STEPS else None
    if copied is None:
        return None
    if phase == _SNAPSHOT_STEP:
        return taken(disk, begin, cluster) or _of_snapshot(copied, begin, cluster)
    if not clock.has_lasted(_begun(disk, cluster), _LATE, cluster):
        return None
    if phase in _CLAIM_STEPS:
        return _of_claims(copied, begin, cluster)
    if phase in _SIZE_STEPS:
        return _of_size(copied, begin, cluster)
    return _of_transfer(copied, begin, cluster)


def _begun(disk: Object, cluster: Cluster) -> str | None:
    """Return a time at which a copy went on: a disk that waits for its VM is copied days after it
    was made, when the VM starts.
    """
    started = find(cluster, VMI, disk.namespace, disk.owned_by(VM.kind))
    claim = disk.at("status", "claimName").text or disk.name
    users = (started, *pods.claim_users(disk.namespace, claim, cluster))
    conditions = disk.at("status", "conditions").items()
    times = (
        disk.created,
        *(each.created for each in users if each is not None),
        *(each[name].text for each in conditions for name in _TIMES),
    )
    known = {time: text for text in times if (time := clock.instant(text)) is not None}
    return known[max(known)] if known else None


# --- a snapshot with the name of the disk ---------------------------------------------------------


def taken(disk: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return that a snapshot which is not CDI's has the name that CDI needs; None: none has.

    CDI never goes on, and does not notice that such a snapshot is deleted: it watches its own.

    Raises:
        Unseen: the claim or the snapshots could not be read.
    """
    copied = _copy(disk, cluster) if disk.at("status", "phase").text == _SNAPSHOT_STEP else None
    young = not clock.has_lasted(disk.created, _PATIENCE, cluster)
    if copied is None or copied.own is not None or copied.kind != PVC.kind or young:
        return None  # populators fill a claim that exists
    found = cluster.get(VOLUME_SNAPSHOT, copied.namespace, copied.snapshot)
    if found is None or found.deleted or _is_own(found, disk):
        return None
    called = f"VolumeSnapshot {found.full_name}"
    claim = found.at("spec", "source", "persistentVolumeClaimName").text
    of = f"of claim {claim}, " if claim else ""
    age, own = clock.age(found, cluster), clock.age(disk, cluster)
    older = (
        f"made {clock.duration(age - own)} before the disk, "
        if age is not None and own is not None and age > own
        else ""
    )
    origin = f"is not CDI's ({of}{older}without the annotation {_OWNED})"
    release = _release(cluster) or "before 1.57"
    reason = (
        f"{begin}: {called} has the name that CDI {release} gives its own snapshot of claim "
        f"{copied.namespace}/{copied.name}, and {origin}. CDI makes no "
        f"other one for DataVolume {disk.name}, so this does not end by itself"
    )
    brief = (
        f"its disk {disk.name} is not filled: {called}, which is not CDI's, has the name that CDI "
        f"needs to copy into DataVolume {disk.name}"
    )
    return Problem(reason, _freed(disk, found), ProblemCause.NOT_REPORTED, brief=brief)


def _is_own(snapshot: Object, disk: Object) -> bool:
    """Return whether CDI made a snapshot for a disk, or for a former one of that name."""
    owners = snapshot.metadata["ownerReferences"].items()
    named = any(
        each["kind"].text == DATA_VOLUME.kind and each["name"].text == disk.name for each in owners
    )
    return named or snapshot.annotations.get(_OWNED) == disk.full_name


def _freed(disk: Object, snapshot: Object) -> str:
    """Return how the disk and the snapshot get different names."""
    gone = kubectl("delete", DATA_VOLUME, disk.name, disk.namespace)
    dropped = kubectl("delete", VOLUME_SNAPSHOT, snapshot.name, snapshot.namespace)
    vm = disk.owned_by(VM.kind)
    again = "which KubeVirt makes again" if vm else "to create it again"
    other = (
        f"or, if nothing needs that snapshot any more, delete it ({dropped}) and then the empty "
        f"DataVolume, {again} ({gone}); CDI 1.57 and later use other names"
    )
    if vm:
        words = "give the disk another name in the dataVolumeTemplates and volumes of the VM"
        return typed(words, kubectl("edit", VM, vm, disk.namespace), other)
    shown = kubectl("get", DATA_VOLUME, disk.name, disk.namespace, "-o", "yaml")
    return typed("create the DataVolume under another name", shown, other)


# --- the objects that CDI makes -------------------------------------------------------------------


def _of_snapshot(copied: _Copy, begin: str, cluster: Cluster) -> Problem | None:
    """Return why the snapshot of a copy is not ready; None: it is, or this has just begun."""
    called = f"VolumeSnapshot {copied.namespace}/{copied.snapshot}"
    found = cluster.get(VOLUME_SNAPSHOT, copied.namespace, copied.snapshot)
    begun = found.created if found is not None else _begun(copied.disk, cluster)
    late = clock.has_lasted(begun, _LATE, cluster)
    if found is None and copied.kind == VOLUME_SNAPSHOT.kind:
        see = about("describe", copied.disk, DATA_VOLUME)
        why = f"{begin}: {called}, which it copies, does not exist"
        return waiting_disks.stuck(why, "create it", see)
    if found is None:
        return _unmade(copied, called, begin, cluster) if late else None
    error = status_errors.plain(found.at("status", "error", "message").text or "")
    described = about("describe", found, VOLUME_SNAPSHOT)
    if found.at("status", "readyToUse").boolean is True or not (error or late):
        return None
    waits = f"{begin}: CDI waits for {called}, which is not ready"
    if error:
        why = f"{waits}: {cut_middle(error, _LONGEST)}"
        words = "remove that cause at the storage: its snapshotter tries again"
        return waiting_disks.stuck(why, words, described)
    content = found.at("status", "boundVolumeSnapshotContentName").text
    lasts = clock.lasting(found.created, cluster)
    if not content:
        why = f"{waits}{lasts}: it has no VolumeSnapshotContent"
        return waiting_disks.stuck(why, "see whether the snapshot-controller works", described)
    why = f"{waits}{lasts}, and reports no error"
    words = f"see what the snapshotter of its CSI driver logs about {content}"
    return waiting_disks.stuck(why, words, described)


def _unmade(copied: _Copy, called: str, begin: str, cluster: Cluster) -> Problem | None:
    """Return that CDI has not made its next object: the source is not complete, or its controller
    alone knows why.
    """
    if copied.kind == PVC.kind:
        source = cluster.get(PVC, copied.namespace, copied.name)
        phase = source.at("status", "phase").text if source is not None else None
        filled = find(cluster, DATA_VOLUME, copied.namespace, copied.name)
        step = filled.at("status", "phase").text if filled is not None else "Succeeded"
        words = f"claim {copied.namespace}/{copied.name}, which it copies, is {phase}"
        if phase == "Bound" and step != "Succeeded":
            words = f"DataVolume {copied.namespace}/{copied.name}, which it copies, is {step}"
        if phase is not None and (phase != "Bound" or step != "Succeeded"):
            see = kubectl("describe", PVC, copied.name, copied.namespace)
            return waiting_disks.stuck(f"{begin}: {words}", "let that one be filled first", see)
    what = called.partition(" ")[0]
    reason = f"{begin}: CDI has not made {called}"
    brief = f"its disk {copied.disk.name} is not filled: CDI has not made {called}"
    otherwise = about("describe", copied.disk, DATA_VOLUME)
    return absent_workers.of_controller(what, reason, brief, otherwise, cluster)


def _of_claims(copied: _Copy, begin: str, cluster: Cluster) -> Problem | None:
    """Return that the claim of a copy gets no volume, of which nothing else is known."""
    made, phase = list(claims(copied.disk, cluster)), copied.disk.at("status", "phase").text
    own = [copied.own] if copied.own is not None and not copied.claims else []
    if not made and not own:
        named = copied.claims[-1] if copied.claims else copied.disk.name
        if cluster.get(PVC, copied.namespace, named) is not None:
            return None
        if phase != "CSICloneInProgress" and (waits := _of_snapshot(copied, begin, cluster)):
            return waits
        return _unmade(copied, f"claim {copied.namespace}/{named}", begin, cluster)
    for claim in (*made, *own):
        chosen = find(cluster, STORAGE_CLASS, "", claim.at("spec", "storageClassName").text)
        at_once = chosen is not None and chosen["volumeBindingMode"].text in (None, "Immediate")
        late = clock.has_lasted(claim.created, _LATE, cluster)
        if claim.at("status", "phase").text != "Pending" or not (at_once and late):
            continue
        lasts = clock.lasting(claim.created, cluster)
        why = f"CDI waits for claim {claim.full_name}, which is Pending{lasts}"
        words = "see the events of that claim, and what its provisioner logs"
        return waiting_disks.stuck(f"{begin}: {why}", words, about("describe", claim, PVC))
    return None


def _of_size(copied: _Copy, begin: str, cluster: Cluster) -> Problem | None:
    """Return that the claim of a copy does not get the size of the disk."""
    own = [copied.own] if copied.own is not None and not copied.populated else []
    for claim in (*claims(copied.disk, cluster), *own):
        if (found := unfinished_resizes.of_claim(claim, cluster)) is not None:
            return found._replace(reason=f"{begin}: {found.reason}")
    return None


def _of_transfer(copied: _Copy, begin: str, cluster: Cluster) -> Problem | None:
    """Return that the volume of a copy is not bound to the claim of the disk, to which CDI has
    given it.
    """
    volumes = (volume_of(each, cluster) for each in claims(copied.disk, cluster))
    volume, own = next(filter(None, volumes), None), copied.own
    if volume is None or own is None or own.at("spec", "volumeName").text:
        return None
    bound = volume.at("spec", "claimRef")
    to = f"{bound['namespace'].text}/{bound['name'].text}"
    given = to == own.full_name
    phase = volume.at("status", "phase").text
    why = f"PersistentVolume {volume.name} is {phase}, and its claimRef names {to}"
    words = (
        "see why kube-controller-manager does not bind the claim to it"
        if given
        else "see what CDI's controller (cdi-deployment) logs about it"
    )
    reason = f"{begin}: CDI waits until claim {own.full_name} is bound to it: {why}"
    return waiting_disks.stuck(reason, words, about("describe", own, PVC))
