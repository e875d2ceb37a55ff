"""Disks of a VM that CDI has not filled, and does not get further with: a claim that stays Pending,
or a pod that fails.

KubeVirt starts no VM before its data volumes are complete. Sources:
kubevirt/containerized-data-importer: pkg/controller/import-controller.go#createScratchPvcForPod,
pkg/controller/util.go#GetScratchPvcStorageClass, pkg/controller/datavolume/controller-base.go,
pkg/controller/populators (claims ``prime-UID``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.starts import filling_pods, waiting_disks
from virt_admit.forecasts.drain.starts.filling_pods import FillingPods
from virt_admit.forecasts.drain.starts.storage import (
    absent_workers,
    copy_steps,
    fill_remedies,
    parted_fillings,
    partial_images,
    provisioners,
    scratch_claims,
)
from virt_admit.forecasts.placement.refusals import exceeded_quotas
from virt_admit.forecasts.placement.refusals.exceeded_quotas import ExceededQuota
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import about, kubectl, logs_of
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    POD,
    PV,
    PVC,
    RESOURCE_QUOTA,
    STORAGE_CLASS,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import storage, vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.resources import amount, show

_CONDITIONS: Final = (*CONDITIONS, "status.conditions.reason", "status.conditions.message")
READS: Final[Reads] = union(
    exceeded_quotas.READS,
    pod_starts.READS,
    filling_pods.READS,
    waiting_disks.READS,
    absent_workers.READS,
    copy_steps.READS,
    parted_fillings.READS,
    partial_images.READS,
    provisioners.READS,
    scratch_claims.READS,
    {
        DATA_VOLUME: (
            *("metadata.creationTimestamp", "spec.contentType", "spec.source"),
            *("status.phase", "status.progress", "status.restartCount", *_CONDITIONS),
        ),
        PVC: ("metadata.annotations.volume.kubernetes.io/selected-node",),
        PV: ("spec.capacity.storage", "spec.storageClassName", "status.phase"),
        RESOURCE_QUOTA: ("spec", "status"),
        POD: ("spec.volumes.persistentVolumeClaim.readOnly", *_CONDITIONS),
    },
)

_PATIENCE: Final = timedelta(minutes=5)
"""A claim may stay Pending for so long, and a pod may fail at first."""
_RECENT: Final = timedelta(minutes=30)
"""CDI repeats a warning while its cause lasts, at the latest after 17 minutes."""
_WARNINGS: Final = (
    "CloneSourceInUse",
    "CloneValidationFailed",
    "CloneWithoutSource",
    "ErrClaimNotValid",
    "ErrExceededQuota",
    "ErrUnableToCreate",
    "ErrIncompatiblePVC",
    "NotFound",
    "ClaimMisbound",
    "ErrResourceExists",
)
"""Reasons of the warnings about a data volume or its claim that CDI cannot fill."""
_LONGEST: Final = 200


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return why CDI does not complete a disk of a VM, and what ends it; None: nothing says so."""
    for volume in vms.vmi_spec(vm)["volumes"].items():
        name = volume.at("dataVolume", "name").text
        try:
            found = cluster.get(DATA_VOLUME, vms.namespace_of(vm), name) if name else None
            stuck = of_disk(vm, found, cluster) if found is not None else None
        except Unseen:
            continue
        if stuck is not None:
            return stuck
    return None


def of_disk(vm: Object, disk: Object, cluster: Cluster) -> Problem | None:
    """Return why a data volume is not complete.

    ``vm``: the one that uses it; the disk itself if none does.

    Raises:
        Unseen: what decides that could not be read.
    """
    phase = disk.at("status", "phase").text
    age = clock.age(disk, cluster)
    if phase == "Succeeded" or age is None or age < _PATIENCE:
        return None
    begin = f"its disk {disk.name} is not filled{f' ({phase})' if phase else ''}"
    if exceeded := _exceeded(disk, cluster):
        if exceeded.claim == disk.name:
            begin = f"its disk {disk.name} is not filled, as its claim cannot be created"
        return Problem(f"{begin}: {exceeded.words}", exceeded.remedy, ProblemCause.NOT_REPORTED)
    if copied := waiting_disks.of_copy(disk, begin, cluster):
        return copied
    work = filling_pods.of_disk(disk, disk.at("status", "claimName").text or disk.name, cluster)
    own = (cluster.get(PVC, disk.namespace, name) for name in work.claims)
    for claim in (*own, *copy_steps.claims(disk, cluster)):
        if claim is not None and claim.at("status", "phase").text == "Pending":
            pending = _pending(claim, work, cluster)
            if pending is not None:
                return _of_claim(disk, claim.name, pending, begin)
    if failed_pod := _of_pods(vm, disk, work, begin, cluster) or absent_workers.problem(
        disk, work.claims[:2], begin, cluster
    ):
        return failed_pod
    warned = _warned(disk, cluster)
    if without := waiting_disks.without_class(disk, begin.partition(" (")[0], warned, cluster):
        return without
    if warned:
        if without := waiting_disks.without_modes(warned, begin, cluster):
            return without
        return waiting_disks.stuck(
            f"{begin}: {warned}",
            fill_remedies.of_words(warned),
            about("describe", disk, DATA_VOLUME),
        )
    if told := _told(disk, work, begin, cluster) or copy_steps.problem(disk, begin, cluster):
        return told
    return _idle(disk, begin, age, cluster) if phase in _NOT_BEGUN else None


def failing(disk: Object, cluster: Cluster) -> Problem | None:
    """Return why the pod that fills a data volume fails again and again, or never starts, as CDI
    does not make its scratch claim; None: it does not now.
    """
    again, phase = _restarts(disk), disk.at("status", "phase").text
    works = disk.is_true("Running") or disk.condition("Running")["reason"].text == "Completed"
    if phase == "Succeeded" or works:
        return None
    work = filling_pods.of_disk(disk, disk.at("status", "claimName").text or disk.name, cluster)
    begin = f"its disk {disk.name} is not filled ({phase})"
    if again < _OFTEN:
        without = (scratch_claims.problem(pod, begin, cluster) for pod in work.pods)
        return next(filter(None, without), None)
    vm = find(cluster, VM, disk.namespace, disk.owned_by(VM.kind))
    return _of_pods(vm or disk, disk, work, begin, cluster) or _told(disk, work, begin, cluster)


_OFTEN: Final = 5
"""Restarts of a pod, which take some five minutes."""


def killed(disk: Object, cluster: Cluster) -> Problem | None:
    """Return that the pod which fills a data volume is ended for lack of memory again and again,
    which further restarts do not change; None: it is not now.
    """
    if failing(disk, cluster) is None or _restarts(disk) < _OFTEN:
        return None
    work = filling_pods.of_disk(disk, disk.at("status", "claimName").text or disk.name, cluster)
    begin = f"its disk {disk.name} is not filled"
    return filling_pods.killed(disk, work.pods, begin, cluster)


def _restarts(disk: Object) -> int:
    return disk.at("status", "restartCount").integer or 0


def _told(disk: Object, work: FillingPods, begin: str, cluster: Cluster) -> Problem | None:
    """Return why the status of a data volume says that its pod fails; None: it does not."""
    failed = disk.condition("Running")
    if disk.at("status", "phase").text != "Failed" and failed["reason"].text != "Error":
        return None
    why = cut_middle(failed["message"].words or "no reason is given", _LONGEST)
    return _partial(begin, "", why, disk, work, cluster) or waiting_disks.stuck(
        f"{begin}: {why}",
        fill_remedies.of_words(why, of_pod=True),
        about("describe", disk, DATA_VOLUME),
    )


def _partial(
    begin: str, who: str, why: str, disk: Object, work: FillingPods, cluster: Cluster
) -> Problem | None:
    """Return that the rest of an attempt keeps an image from its claim; None: it does not.

    ``who``: what says ``why``, with a colon; empty: the disk itself.
    """
    part = partial_images.of_failure(why, disk, work.claims[:2], cluster)
    if part is None:
        return None
    reason, brief = f"{begin}: {who}{part.reason}", f"{who}{part.brief}"
    return part._replace(reason=reason, cause=ProblemCause.NOT_REPORTED, brief=brief)


def _of_claim(disk: Object, claim: str, pending: Problem, begin: str) -> Problem:
    """Return why a disk is not filled whose claim is Pending:
    that it waits for a first consumer is not why.
    """
    waits = f"claim {claim} is Pending: {pending.reason}"
    if claim.startswith(("prime-", "tmp-", "cdi-tmp-")):
        waits = f"claim {disk.name} is Pending, as CDI's {claim} gets no volume: {pending.reason}"
    own = f"its claim is Pending: {pending.reason}" if claim == disk.name else waits
    first = disk.at("status", "phase").text in waiting_disks.FIRST_START
    return pending._replace(
        reason=f"{begin.partition(' (')[0] if first else begin}: {own}", brief=waits
    )


def _of_pods(
    vm: Object, disk: Object, work: FillingPods, begin: str, cluster: Cluster
) -> Problem | None:
    """Return why a pod that fills a disk fails; None: none does, as far as is known."""
    if parted := parted_fillings.problem(disk, work.pods, begin, cluster):
        return parted
    if killed_pod := filling_pods.killed(disk, work.pods, begin, cluster):
        return killed_pod
    if unplaced := filling_pods.unplaced(work.pods, begin, cluster):
        return unplaced
    for pod in work.pods:
        if why := _failure(pod, cluster):
            who = f"pod {pod.name} fails{filling_pods.restarts(pod)}: "
            if part := _partial(begin, who, why, disk, work, cluster):
                return part
            reason, way = f"{begin}: {who}{why}", fill_remedies.of_words(why, of_pod=True)
            if other := filling_pods.larger(why, vm, disk, cluster) or filling_pods.of_source(
                way, vm, disk
            ):
                return Problem(reason, other, ProblemCause.NOT_REPORTED)
            return waiting_disks.stuck(reason, way, logs_of(pod))
    return None


def _exceeded(disk: Object, cluster: Cluster) -> ExceededQuota | None:
    """Return which quota refuses what CDI creates for a disk: by its status, an event, or by what
    the quota has counted.

    Raises:
        Unseen: whether its temporary claim exists could not be read.
    """
    said = " ".join(
        " ".join(
            each["message"].text or "" for each in disk.at("status", "conditions").items()
        ).split()
    )
    held = exceeded_quotas.filling(disk)
    if exceeded := exceeded_quotas.of(said, disk.namespace, held, cluster):
        return exceeded
    if disk.at("status", "phase").text not in _NOT_BEGUN:
        return None
    for _, message in _recent_warnings(disk, cluster):
        if exceeded := exceeded_quotas.of(message, disk.namespace, held, cluster):
            return exceeded
    claim = waiting_disks.claim_of(disk, cluster)
    uid = claim.metadata["uid"].text if claim is not None else None
    if (
        claim is None
        or not uid
        or claim.at("spec", "dataSourceRef", "kind").text not in _FILLED_BY_WAY
    ):
        return None
    found = find(cluster, STORAGE_CLASS, "", claim.at("spec", "storageClassName").text)
    waits = found is None or found["volumeBindingMode"].text == "WaitForFirstConsumer"
    if claim.at("status", "phase").text != "Pending" or (
        waits and not claim.annotations.get(_CHOSEN)
    ):
        return None
    name = f"prime-{uid}"
    exists = cluster.get(PVC, claim.namespace, name) is not None
    return None if exists else exceeded_quotas.of_temporary(claim, name, held, cluster)


_NOT_BEGUN: Final = (None, "", "Pending")
_FILLED_BY_WAY: Final = ("VolumeImportSource", "VolumeUploadSource")
"""The sources from which CDI always fills a temporary claim first; a copy may be made otherwise."""
_CHOSEN: Final = "volume.kubernetes.io/selected-node"


def _recent_warnings(disk: Object, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield reason and message of the warnings about a disk and its claim that are not old."""
    for each in filter(None, (disk, waiting_disks.claim_of(disk, cluster))):
        yield from events.warnings(each, clock.ago(_RECENT, cluster), cluster)


def _idle(disk: Object, begin: str, age: timedelta, cluster: Cluster) -> Problem | None:
    """Return that CDI has not begun with a disk, with the last warning about it; None:
    it may be about to begin.
    """
    claim = waiting_disks.claim_of(disk, cluster)
    bound = claim is not None and claim.at("status", "phase").text not in _NOT_BEGUN
    described = (
        about("describe", claim, PVC) if claim is not None else about("describe", disk, DATA_VOLUME)
    )
    if not bound and (said := next(_recent_warnings(disk, cluster), None)):
        why = f"{said[0]}: {cut_middle(said[1], _LONGEST)}"
        return waiting_disks.stuck(
            f"{begin}: {why}", fill_remedies.of_words(f"{said[0]}: {said[1]}"), described
        )
    if claim is None and (without := waiting_disks.of_modes(disk, begin, cluster)):
        return without
    if age < _LATE:
        return None
    why = f"CDI has not begun with it for {clock.duration(age)}, and nothing that was read says why"
    return waiting_disks.stuck(
        f"{begin}: {why}",
        "see the events of its claim, and what CDI logs (cdi-deployment)",
        described,
    )


_LATE: Final = timedelta(minutes=15)
"""CDI begins within seconds. A claim waits for its provisioner for a few minutes."""


def _warned(disk: Object, cluster: Cluster) -> str:
    """Return the last warning of CDI about a disk that it does not begin to fill; empty: none,
    or an old one.
    """
    if disk.at("status", "phase").text not in _NOT_BEGUN:
        return ""
    said = dict(reversed(tuple(_recent_warnings(disk, cluster))))
    for reason in _WARNINGS:
        if said.get(reason):
            return f"{reason}: {cut_middle(said[reason], _LONGEST)}"
    return ""


def _failure(pod: Object, cluster: Cluster) -> str:
    """Return why a pod of CDI fails: what it said at its end tells more than that it is
    restarted.
    """
    for _, ended in container_states.terminations(pod):
        if code := ended["exitCode"].integer:
            words = ended["message"].words or ended["reason"].words
            return cut_middle(words or f"exit code {code}", _LONGEST)
    return pod_starts.words(pod, cluster)


# --- a claim that is Pending ----------------------------------------------------------------------


def _pending(claim: Object, work: FillingPods, cluster: Cluster) -> Problem | None:
    """Return why a claim has no volume and gets none; None: it may get one,
    as when the first pod uses it.

    Raises:
        Unseen: its class or the volumes could not be read.
    """
    name = claim.at("spec", "storageClassName").text
    if not name:
        default = name is None and storage.marked(storage.DEFAULT_FOR_ALL, cluster)
        if default or unlisted(cluster, STORAGE_CLASS):
            return None
        why = (
            "it names no class, and no class is the default"
            if name is None
            else _free(claim, cluster)
        )
        return _another(claim, why, work, cluster) if why else None
    found = cluster.get(STORAGE_CLASS, "", name)
    if found is None:
        return _another(claim, f"storage class {name} does not exist", work, cluster)
    if found["provisioner"].text == scratch_claims.STATIC:
        why = _free(claim, cluster)
        return _another(claim, why, work, cluster) if why else None
    return provisioners.problem(claim, found, None, cluster)


def _free(claim: Object, cluster: Cluster) -> str:
    """Return that no PersistentVolume fits a claim which nothing provisions for; empty: one may.

    Raises:
        Unseen: not all of them could be read.
    """
    name = claim.at("spec", "storageClassName").text or ""
    size = _size(claim, "resources", "requests")
    for volume in cluster.list(PV):
        same = (volume.at("spec", "storageClassName").text or "") == name
        if (
            same
            and volume.at("status", "phase").text == "Available"
            and _size(volume, "capacity") >= size
        ):
            return ""
    called = f"class {name} has no provisioner" if name else "it asks for no provisioner"
    return f"{called}, and no free volume{f' of {show(_STORAGE, size)}' if size else ''} exists"


_STORAGE: Final = "storage"


def _size(obj: Object, *keys: str) -> int:
    return amount(_STORAGE, obj.at("spec", *keys, _STORAGE).value)


def _another(claim: Object, why: str, work: FillingPods, cluster: Cluster) -> Problem:
    """Return that a claim never gets a volume of its class.

    CDI makes scratch space again in the class that it is given.
    """
    name = claim.at("spec", "storageClassName").text or ""
    size = _size(claim, "resources", "requests")
    exists = bool(name) and find(cluster, STORAGE_CLASS, "", name) is not None
    called = f"{show(_STORAGE, size)} of class {name}"
    free = f"create a PersistentVolume of {called}{_place(claim, work, cluster)}" if exists else ""
    if not claim.name.endswith(exceeded_quotas.SCRATCH):
        ways = ", or ".join(
            filter(None, (free, "create the disk again in a class that has a provisioner"))
        )
        return waiting_disks.stuck(why, ways, kubectl("describe", PVC, claim.name, claim.namespace))
    other = next(scratch_claims.provisioned(cluster), "")
    again = (
        f"then delete this empty claim ({kubectl('delete', PVC, claim.name, claim.namespace)}), "
        "which CDI makes again"
    )
    if free and not other:
        ways = (
            "create a class that has a provisioner, set scratchSpaceStorageClass of CDI to it, "
            f"{again}; or {free}"
        )
        return waiting_disks.stuck(why, ways, scratch_claims.setting("", cluster))
    ways = (
        "set scratchSpaceStorageClass of CDI to a class that has a "
        f"provisioner{f' ({other})' if other else ''}, {again}"
    )
    return waiting_disks.stuck(
        why, f"{ways}{f'; or {free}' if free else ''}", scratch_claims.setting(other, cluster)
    )


def _place(claim: Object, work: FillingPods, cluster: Cluster) -> str:
    """Return where a volume has to be for the pod that uses the other claims too; empty: anywhere,
    or it is not known.
    """
    for name in work.claims:
        try:
            place = (
                volumes.claim(cluster, claim.namespace, name).place if name != claim.name else None
            )
        except Unseen:
            continue
        if place is not None:
            return f" {place.words}"
    return ""
