"""Guests that are paused: by a user, by an I/O error, or by the monitor of a migration.

After an I/O error virt-handler resumes the guest again and again, every three minutes at most: it
goes on as soon as its storage takes the write. Nothing refuses its migration, but QEMU flushes the
disks at its end, which meets the same storage. A paused guest arrives paused, and KubeVirt resumes
no guest that a user has paused. Sources:
kubevirt/kubevirt:pkg/virt-handler/vm.go#calculatePausedCondition (ioErrorRetryManager),
:pkg/virt-launcher/notify-client/client.go (event IOerror),
:pkg/virt-launcher/virtwrap/live-migration-source.go (MIGRATE_PAUSED, no MIGRATE_ABORT_ON_ERROR);
libvirt/libvirt:src/qemu/qemu_migration.c#qemuMigrationSrcIsAllowed;
qemu/qemu:migration/migration.c#migration_completion_precopy (bdrv_inactivate_all).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import lost_attachments, relabelled_claims, restart_guard
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.forecasts.placement.components.linstor import late_disks
from virt_admit.forecasts.placement.components.linstor.late_disks import LateDisk
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.evidence import network_fences
from virt_admit.model.evidence.network_fences import WrongFence
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PVC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.messages import names, ordinal
from virt_admit.model.problems import Problem

IO_ERROR: Final = "PausedIOError"
BY_USER: Final = "PausedByUser"
_WORDS: Final = {
    IO_ERROR: "an I/O error",
    BY_USER: "a user",
    "PausedByMigrationMonitor": "the monitor of its migration",
}
_VOLUME: Final = re.compile(r"(?:at the volume|space on volume): ([\w.-]{1,253})")
_NO_SPACE: Final = "not enough space"


def reason(vmi: Object) -> str:
    """Return why a guest is paused, as KubeVirt names it: ``PausedIOError``; empty: it is not."""
    paused = vmi.condition("Paused")
    return (paused["reason"].text or "Paused") if paused["status"].text == "True" else ""


def since_by_user(vmi: Object) -> datetime | None:
    """Return since when a user has paused a guest; None: none has, or that is not known."""
    changed = vmi.condition("Paused")["lastTransitionTime"].text
    return clock.instant(changed) if reason(vmi) == BY_USER else None


def words(vmi: Object, cluster: Cluster) -> str:
    """Return that a guest is paused, by what and since when: ``paused by an I/O error for 56 min``;
    empty: it is not.
    """
    why = reason(vmi)
    age = clock.lasting(vmi.condition("Paused")["lastTransitionTime"].text, cluster)
    by = _WORDS.get(why)
    return f"paused{f' by {by}' if by else ''}{age}" if why else ""


def resume(vmi: Object) -> str:
    """Return the command that resumes a guest which a user has paused."""
    return shell("virtctl", "unpause", "vmi", argument(vmi.name), "-n", vms.namespace_of(vmi))


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a guest stands still because its storage refuses I/O; None: it does not, or is
    paused by something else.
    """
    if reason(vmi) != IO_ERROR:
        return None
    namespace = vms.namespace_of(vmi)
    said = events.last_warning(vmi, "IOerror", None, cluster)
    named = _VOLUME.search(said)
    volumes = {
        name: claim for name, claim in _claims(vmi["spec"]) if named is None or name == named[1]
    }
    fault = refusing_storage.first(namespace, tuple(volumes.values()), cluster)
    errors = repeated(vmi, cluster)
    begin = f"its guest is {words(vmi, cluster)}{errors.words if errors is not None else ''}: "
    if fault is None and (lost := _lost(vmi, cluster)):
        return lost._replace(reason=f"{begin}{lost.reason}. {_NEXT_DRAIN}")
    if fault is None and (fence := _fence(vmi, tuple(volumes.values()), cluster)) is not None:
        cut_off = f"{begin}{fence.words(vmi.at('status', 'nodeName').text or '')}"
        return Problem(cut_off, fence.remedy)
    of = (
        f" of volume {named[1]}"
        if named is not None
        else f" of volume {names(volumes)}"
        if volumes
        else ""
    )
    full = ", which has no space left" if _NO_SPACE in said else ""
    if fault is None and not full:
        claims = (relabelled_claims.of_claim(vmi, claim, cluster) for claim in volumes.values())
        if (taken := next(filter(None, claims), None)) is not None:
            sure, why = taken.is_certain, taken.problem.reason
            label = "as its files probably have" if sure else "and its files may have"
            fails = f"{begin}reads or writes{of} fail, {label} the label of another pod: "
            fails += f"{why}. {_RESTART if sure else _GOES_ON}"
            return taken.problem._replace(reason=fails, brief=f"{begin}{why}")
        if errors is not None and (disk := _late_disk(vmi, volumes, errors, cluster)) is not None:
            return _reopened(vmi, begin, f"reads or writes{of} fail", disk, cluster)
        see = shell("kubectl", "describe", "vmi", argument(vmi.name), "-n", namespace)
        fails = f"{begin}reads or writes{of} fail, and nothing that was read says why. {_GOES_ON}"
        return Problem(fails, typed(f"see why the storage{of} does not answer", see))
    because = f", as {fault.reason}" if fault is not None else ""
    ends = f"{_GOES_ON}, and not before. Neither a move, a restart nor virtctl unpause helps"
    remedy = fault.remedy if fault is not None else _larger(vmi, volumes)
    return Problem(f"{begin}the storage{of} refuses reads or writes{full}{because}. {ends}", remedy)


def _reopened(vmi: Object, begin: str, fails: str, disk: LateDisk, cluster: Cluster) -> Problem:
    """Return that a guest has to open a volume again which has changed meanwhile."""
    opens = f"restart the VM, so that it opens the volume again{restart_guard.later(vmi, cluster)}"
    restart = virtctl("restart", vmi.name, vms.namespace_of(vmi))
    remedy = typed(opens, restart, disk.further)
    return Problem(f"{begin}{fails}. {disk.words}", remedy, brief=f"{begin}{disk.brief}")


_GOES_ON: Final = "It goes on by itself once they succeed"
_RESTART: Final = "It goes on only after that pod has ended and the VM is restarted"
_NEXT_DRAIN: Final = (
    "Before another drain, let the VMs migrate before other pods are evicted: "
    "kubectl drain with --pod-selector=kubevirt.io=virt-launcher"
)


def is_detached(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a guest is paused because a hotplugged volume was taken from its node."""
    return reason(vmi) == IO_ERROR and _lost(vmi, cluster) is not None


def _lost(vmi: Object, cluster: Cluster) -> Problem | None:
    named = _VOLUME.search(events.last_warning(vmi, "IOerror", None, cluster))
    return lost_attachments.problem(vmi, named[1] if named is not None else "", cluster)


def doubt(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the migration of a paused guest may fail; None: nothing of that kind is known."""
    found = problem(vmi, cluster)
    if found is None:
        return None
    begin = f"its guest is {words(vmi, cluster)}"
    detached = ": hotplugged volume " in found.reason
    because = found.reason.partition(". ")[0].removeprefix(begin) if detached else ""
    what = "that volume" if detached else "the same storage"
    return found._replace(
        reason=f"{begin}{because}, and a migration has to write to {what} before it ends"
    )


def stays(vmi: Object) -> str:
    """Return that a guest which a user has paused stays paused; empty:
    it is not paused by a user.
    """
    return "; its guest is paused by a user, and stays so" if reason(vmi) == BY_USER else ""


class RepeatedErrors(NamedTuple):
    """I/O errors of a guest that KubeVirt resumes after each."""

    times: int
    first: datetime
    last: datetime

    @property
    def words(self) -> str:
        """As the end of a phrase; empty: it was the only one."""
        return (
            f", the {ordinal(self.times)} time in {clock.duration(self.last - self.first)}"
            if self.times > 1 and self.last > self.first
            else ""
        )


def repeated(vmi: Object, cluster: Cluster) -> RepeatedErrors | None:
    """Return the known I/O errors of a guest; None: none is known, or not since when."""
    found = [each for each in events.about(vmi, None, cluster) if each["reason"].text == "IOerror"]
    begun = [at for each in found if (at := events.begin_of(each)) is not None]
    ended = [at for each in found if (at := events.time_of(each)) is not None]
    if not begun or not ended:
        return None
    return RepeatedErrors(sum(map(events.times_of, found)), min(begun), max(ended))


def _late_disk(
    vmi: Object, volumes: Mapping[str, str], errors: RepeatedErrors, cluster: Cluster
) -> LateDisk | None:
    found = (late_disks.of(vmi, each, errors.first, cluster) for each in volumes.values())
    return next(filter(None, found), None)


def _fence(vmi: Object, claims: Iterable[str], cluster: Cluster) -> WrongFence | None:
    """Return the fence of another node that cuts the node of a guest off from one of its volumes;
    None: none is known to.
    """
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    found = (find(cluster, PVC, vms.namespace_of(vmi), claim) for claim in claims)
    drivers = {csi_of(claim, cluster)["driver"].text or "" for claim in found} - {""}
    fences = (network_fences.wrong(node, each, cluster) for each in sorted(drivers) if node)
    return next((fence for each in fences for fence in each), None)


def _claims(spec: Field) -> Iterator[tuple[str, str]]:
    """Yield the volumes of a VMI that have a claim, each with it."""
    for volume in spec["volumes"].items():
        yield from ((volume["name"].text or "?", claim) for claim in launcher_pod.claims_of(volume))


def _larger(vmi: Object, volumes: Mapping[str, str]) -> str:
    claims = sorted(set(volumes.values()))
    described = shell(
        "kubectl", "describe", "pvc", *map(argument, claims), "-n", vms.namespace_of(vmi)
    )
    if not claims:
        return "make room in the storage of that volume"
    words = (
        f"make room in the storage of claim {names(claims)}, or expand the claim if its class "
        "allows that"
    )
    return typed(words, described)
