"""Disks of a VM that CDI has not begun to fill: copies of a claim that is in use, and disks that wait for the first start.

CDI copies no claim that a pod uses, and says so with the event CloneSourceInUse. In a class with WaitForFirstConsumer it fills
a disk when the first pod has chosen the node. Sources: kubevirt/containerized-data-importer:doc/clone-datavolume.md,
:doc/waitforfirstconsumer-storage-handling.md, issues kubevirt/containerized-data-importer#3719, #2829.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

FIRST_START: Final = frozenset(("PendingPopulation", "WaitForFirstConsumer"))
"""Phases of a data volume that waits for the first pod that uses it."""
_COPIES: Final = frozenset(
    ("", "Pending", "CloneScheduled", "CloneInProgress", "CSICloneInProgress", "SnapshotForSmartCloneInProgress")
)
"""Phases of a copy that may not have begun."""
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
        return sorted({_user(pod) for pod in self.users})


def source(disk: Object, cluster: Cluster) -> CopySource | None:
    """Return what a data volume copies; None: it is not a copy of a claim."""
    copied = disk.at("spec", "source", "pvc")
    if not copied.is_map or not copied["name"].text:
        return None
    namespace, claim = copied["namespace"].text or disk.namespace, copied["name"].text
    return CopySource(namespace, claim, tuple(volume_attachments.users(namespace, claim, cluster)))


def of_copy(disk: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return why the copy of a claim does not begin; None: it is not a copy, it goes on, or nothing says so.

    ``begin``: the words about the disk.
    """
    copied = source(disk, cluster)
    if copied is None or (disk.at("status", "phase").text or "") not in _COPIES or _goes_on(disk):
        return None
    if copied.users:
        who = names(copied.who)
        uses = "uses" if len(copied.who) == 1 else "use"
        reason = f"{begin}: CDI does not copy claim {copied.words} while {who} {uses} it"
        return _problem(
            reason, f"stop {who} until the copy is done, or copy from a VolumeSnapshot instead", _stop(copied)
        )
    try:
        exists = cluster.get(PVC, copied.namespace, copied.claim) is not None
    except Unseen:
        return None
    if exists:
        return None
    described = kubectl("describe", DATA_VOLUME, disk.name, disk.namespace)
    return _problem(
        f"{begin}: the claim that it copies, {copied.words}, does not exist", "create that claim", described
    )


def _goes_on(disk: Object) -> bool:
    """Whether CDI copies already: it reports a part, and its pod runs."""
    progress = (disk.at("status", "progress").text or "").rstrip("%")
    begun = progress.isascii() and progress.replace(".", "", 1).isdigit() and float(progress) > 0
    return begun or disk.condition("Running")["status"].text == "True"


def words(vm: Object, volume: str, cluster: Cluster) -> str:
    """Return what a VM waits for with a data volume that is not complete; empty: the data volume is, or is not known."""
    disk = find(cluster, DATA_VOLUME, vm.namespace, volume)
    phase = disk.at("status", "phase").text if disk is not None else None
    if disk is None or phase in (None, "Succeeded"):
        return ""
    progress = disk.at("status", "progress").text
    part = f", {progress}" if progress and progress.endswith("%") else ""
    said = (disk.condition(kind)["message"].text for kind in ("Running", "Bound", "Ready"))
    why = next(filter(None, said), "")
    return f"its disk {volume} is not filled yet ({phase}{part}{f': {cut_middle(why, _LONGEST)}' if why else ''})"


def _stop(copied: CopySource) -> str:
    vmi = next((vm_ledger.vmi_name(pod) for pod in copied.users if vm_ledger.vmi_name(pod)), "")
    return virtctl("stop", vmi, copied.namespace) if vmi else kubectl("describe", PVC, copied.claim, copied.namespace)


def _user(pod: Object) -> str:
    vmi = vm_ledger.vmi_name(pod)
    return f"VM {pod.namespace}/{vmi}" if vmi else f"pod {pod.full_name}"


def _problem(reason: str, remedy: str, command: str) -> Problem:
    return Problem(reason, typed(remedy, command), ProblemCause.NOT_REPORTED)
