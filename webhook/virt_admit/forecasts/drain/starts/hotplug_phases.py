"""Hotplugged volumes whose phase stands still: they do not reach the guest, or do not leave it.

virt-controller and virt-handler write the phases: Pending or Bound (its claim), AttachedToNode (its
attachment pod exists), MountedToPod (virt-handler has given it to the launcher pod), Ready (the
guest has it); on the way back UnMountedFromPod and Detaching. A phase has no time, so it counts as
late by the age of the pod. KubeVirt refuses no migration because of a phase. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vmi/storage.go#processHotplugVolumeStatus
#updateVolumeStatus, :pkg/virt-handler/vm.go#updateHotplugVolumeStatus, pull requests
kubevirt/kubevirt#16159, #17139, #18044 and #18734.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import refused_devices, restart_guard
from virt_admit.forecasts.drain.guests.refused_devices import LongSerial
from virt_admit.forecasts.drain.starts import unattached_volumes
from virt_admit.forecasts.drain.starts.storage import ended_launchers, provisioners
from virt_admit.forecasts.drain.states import (
    dying_pods,
    stuck_starts,
    vm_states_motion,
    vm_states_times,
)
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD, PVC, STORAGE_CLASS, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import hotplugs, pod_refusals
from virt_admit.model.kubevirt.launcher.hotplugs import LEAVING, MOUNTED
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    refused_devices.READS, provisioners.READS, {PVC: ("metadata.creationTimestamp", "metadata.uid")}
)
"""Besides those of the states of VMs."""
LACKS: Final = "the guest lacks it"
"""How the reason begins why a volume in the spec is not in the guest."""
_LATE: Final = timedelta(minutes=5)
_LONGEST: Final = 150
_LEAVES_DETACHING: Final = Version(1, 8, 2)
"""From here on virt-controller resets the phase of a volume that is plugged again."""


class StuckVolume(NamedTuple):
    """A hotplugged volume whose phase stands still."""

    field: Field
    """Its item of ``status.volumeStatus``."""
    name: str
    problem: Problem


def stuck(vmi: Object, cluster: Cluster) -> Iterator[StuckVolume]:
    """Yield the hotplugged volumes of a VMI that runs whose phase stands still,
    in the order of their status.

    Those that ``unattached_volumes.hotplugged`` yields are left out.
    """
    if vmi.at("status", "phase").text != "Running" or vmi.deleted:
        return
    claims = dict(hotplugs.claims(vmi))
    for status in vmi.at("status", "volumeStatus").items():
        name = status["name"].text or ""
        if not name or not status["hotplugVolume"].is_map:
            continue
        found = (
            _untold(vmi, name, claims[name], cluster)
            if name in claims
            else _unplugged(vmi, status, cluster)
        )
        if found is not None:
            yield StuckVolume(status, name, found)


def _untold(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    waits = unattached_volumes.problem(vmi, volume, claim, cluster)
    if waits is None:
        return _unfinished(vmi, volume, claim, cluster)
    return waits if hotplugs.is_utility(vmi, volume) else None


def of_start(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return which hotplugged volume keeps a VMI from starting:
    KubeVirt waits for all that are in its spec.
    """
    statuses = {
        each["name"].text
        for each in vmi.at("status", "volumeStatus").items()
        if each["hotplugVolume"].is_map
    }
    for name, claim in hotplugs.claims(vmi):
        found = problem(vmi, name, claim, cluster) if name in statuses else None
        if found is not None:
            return found._replace(reason=f"volume {name}: {found.reason}")
    return None


def problem(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why a hotplugged volume in the spec of a VMI that runs is not in the guest; None: it
    is, or it is on its way.
    """
    return unattached_volumes.problem(vmi, volume, claim, cluster) or _unfinished(
        vmi, volume, claim, cluster
    )


def _unfinished(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    status = vmi.at("status", "volumeStatus").named(volume)
    if not status["hotplugVolume"].is_map or status["target"].text:
        return None
    phase = status["phase"].text or ""
    if phase == MOUNTED and hotplugs.is_utility(vmi, volume):
        return None
    if phase in ("Pending", "Bound"):
        return _without_pod(vmi, status, claim, cluster)
    pod = _pod(vmi, status, cluster)
    if pod is None:
        return _lost_pod(vmi, status, claim, cluster)
    created = clock.instant(pod.created)
    if not vm_states_times.is_older(created, _LATE, cluster) or not _runs(pod):
        return None
    since = f"its pod {pod.name} has run for {vm_states_times.age(created, cluster)}"
    node = vmi.at("status", "nodeName").text or ""
    if phase in LEAVING:
        return _plugged_again(vmi, volume, phase, since, cluster)
    if phase == "AttachedToNode" and (ended := ended_launchers.of(vmi, cluster)) is not None:
        return _of(f"{LACKS}: {ended.reason}", ended.remedy)
    if phase == "AttachedToNode":
        reason = f"{LACKS}: {since}, but virt-handler on {node} does not mount it (phase {phase})"
        return _of(reason, "see what virt-handler logs about it", virt_handlers.logs(cluster, node))
    if phase == MOUNTED:
        said = stuck_starts.unsynchronized(vmi)
        serial = refused_devices.long_serial(vmi, volume, said, cluster)
        if serial is not None:
            return _with_long_serial(vmi, status, claim, since, serial, cluster)
        refused = refused_devices.of_volume(vmi, volume, said, cluster)
        if refused is not None:
            return _of(f"{LACKS}: {refused.reason}", refused.remedy)
        launcher = _launcher(vmi, cluster)
        reason = f"{LACKS}: {since}, but the launcher does not add it to the guest (phase {phase})"
        return _of(reason, "see what its launcher logs about it", _logs_of_launcher(launcher))
    return None


def _with_long_serial(
    vmi: Object, status: Field, claim: str, since: str, serial: LongSerial, cluster: Cluster
) -> Problem:
    """Return that QEMU refuses the serial of a disk. ``virtctl addvolume`` takes the name of the
    volume where none is given.
    """
    volume, value, limit = status["name"].text or "", serial.field.text or "", serial.limit
    own = " (the name of the volume)" if value == volume else ""
    reason = (
        f"{LACKS}: {since} (phase {MOUNTED}), but QEMU refuses a serial longer than {limit} "
        f"characters on bus scsi, and {serial.field.path} of the VMI has {len(value)}: "
        f"{cut_middle(value, _LONGEST)}{own}"
    )
    again = unattached_volumes.plug(vmi, volume, claim, serial.shorter, cluster)
    words = (
        f"unplug it, wait until its pod {status.at('hotplugVolume', 'attachPodName').text} is "
        f"gone, and plug it again with a serial of at most {limit} characters"
    )
    unplug = unattached_volumes.unplug(vmi, volume, cluster)
    return Problem(
        reason,
        typed(words, unplug, f"then plug it again: {again}" if again else ""),
        ProblemCause.NOT_REPORTED,
    )


def _lost_pod(vmi: Object, status: Field, claim: str, cluster: Cluster) -> Problem | None:
    """Return that the pod which attaches a volume does not exist:
    virt-controller makes another one at once.

    Nothing says since when: with a young launcher or claim, it may be so since a moment ago.
    """
    name, namespace = status.at("hotplugVolume", "attachPodName").text, vms.namespace_of(vmi)
    try:
        if not name or cluster.get(POD, namespace, name) is not None:
            return None
        parts = _launcher(vmi, cluster), cluster.get(PVC, namespace, claim)
    except Unseen:
        return None
    if not all(part is not None and _is_old(part, cluster) for part in parts):
        return None
    reason = (
        f"{LACKS}: its phase is {status['phase'].text}, but pod {name}, which attaches "
        "it, does not exist"
    )
    command = shell(
        "kubectl", "get", "pods", "--all-namespaces", "-l", "kubevirt.io=virt-controller"
    )
    return _of(f"{reason} in {namespace}", "see why virt-controller makes no other one", command)


def _plugged_again(vmi: Object, volume: str, phase: str, since: str, cluster: Cluster) -> Problem:
    """Return that a volume was unplugged and plugged again before its first pod was gone,
    and kept the phase of that.
    """
    release = versions.kubevirt_version(cluster)
    leaves = release is not None and release >= _LEAVES_DETACHING
    ends = "" if leaves else ". KubeVirt does not leave this phase by itself"
    reason = f"{LACKS}: its phase is {phase}, as of an earlier unplug, although {since}{ends}"
    unplug = unattached_volumes.unplug(vmi, volume, cluster)
    update = "" if leaves else f"; KubeVirt {_LEAVES_DETACHING} and later do that themselves"
    words = "unplug it, wait until its pod is gone, and plug it again; or restart the VM"
    words = f"{words}{restart_guard.later(vmi, cluster)}{update}"
    return _of(reason, words, unplug)


def _without_pod(vmi: Object, status: Field, claim: str, cluster: Cluster) -> Problem | None:
    """Return why a volume waits for its claim, or for the pod that attaches it."""
    namespace = vms.namespace_of(vmi)
    said = status["message"].words
    try:
        found = cluster.get(PVC, namespace, claim)
    except Unseen:
        return None
    if found is None:
        return _of(f"{LACKS}: claim {claim} does not exist", "create it, or unplug the volume")
    if not _is_old(found, cluster):
        return None
    state = found.at("status", "phase").text or "not bound"
    described = kubectl("describe", PVC, claim, namespace)
    if state == "Pending" and _binds_later(found, cluster):
        # it may be plugged in a moment ago, and KubeVirt makes a pod that lets it be filled
        return None
    failed = provisioners.of_filled(found, cluster) if state == "Pending" else None
    if failed is not None:
        reason = f"{LACKS}: its claim {claim} is {state}: {failed.reason}"
        return _of(reason, failed.remedy, failed.command)
    if state != "Bound":
        return _of(f"{LACKS}: its claim {claim} is {state}", "see what it waits for", described)
    waits = f" ({cut_middle(said, _LONGEST)})" if said else ""
    refused = vmi.condition("Synchronized")
    why = (
        cut_middle(refused["message"].words, _LONGEST) if refused["status"].text == "False" else ""
    )
    if not why:
        return None  # virt-controller makes its pod in the next moment
    reason = f"{LACKS}: no pod attaches it{waits}: {why}"
    known = pod_refusals.remedy(vmi, refused["message"].text or "", cluster)
    return _of(
        reason,
        known or typed("correct what this names", kubectl("describe", VMI, vmi.name, namespace)),
    )


def _binds_later(claim: Object, cluster: Cluster) -> bool:
    """Whether a claim gets its volume only when a pod uses it, or may do so."""
    name = claim.at("spec", "storageClassName").text
    try:
        found = cluster.get(STORAGE_CLASS, "", name) if name else None
    except Unseen:
        return True
    return found is not None and found["volumeBindingMode"].text == "WaitForFirstConsumer"


def _unplugged(vmi: Object, status: Field, cluster: Cluster) -> Problem | None:
    """Return why a volume that is no longer in the spec does not leave the guest or the node; None:
    it is on its way.
    """
    phase, pod = status["phase"].text or "", _pod(vmi, status, cluster)
    if phase in LEAVING:
        ends = clock.instant(pod.metadata["deletionTimestamp"].text) if pod is not None else None
        if pod is None or not pod.deleted or not vm_states_times.is_older(ends, _LATE, cluster):
            return None
        on = pod.at("spec", "nodeName").text or "its node"
        late = vm_states_times.age(ends, cluster)
        dying = dying_pods.of_pod(pod, cluster)
        reason = (
            f"it is unplugged, but its pod {pod.name} on {on} should have ended {late} ago, so the "
            f"claim stays attached{f' ({dying.why})' if dying.said else ''}"
        )
        return _of(reason, dying_pods.with_command(dying, pod))
    return None  # in the phase Ready the guest may be about to give it up: nothing says since when


def _launcher(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the newest pod of a VMI on its node that has not ended."""
    node = vmi.at("status", "nodeName").text
    living = filter(vm_states_motion.lives, reversed(vm_states_motion.own_pods(vmi, cluster)))
    return next((pod for pod in living if pod.at("spec", "nodeName").text == node), None)


def _pod(vmi: Object, status: Field, cluster: Cluster) -> Object | None:
    """Return the pod that attaches a volume, by the name in the status."""
    name = status.at("hotplugVolume", "attachPodName").text or ""
    launcher = _launcher(vmi, cluster)
    owner = launcher.metadata["uid"].text if launcher is not None else None
    own = vm_states_motion.motion(cluster).attachments.get(owner or "-", ())
    return next((pod for pod in own if pod.name == name), None)


def _is_old(obj: Object, cluster: Cluster) -> bool:
    return vm_states_times.is_older(clock.instant(obj.created), _LATE, cluster)


def _runs(pod: Object) -> bool:
    return not pod.deleted and pod.at("status", "phase").text == "Running"


def _logs_of_launcher(pod: Object | None) -> str:
    if pod is None:
        return ""
    return shell("kubectl", "logs", argument(pod.name), "-c", "compute", "-n", pod.namespace)


def _of(reason: str, remedy: str, command: str = "") -> Problem:
    return Problem(reason, typed(remedy, command), ProblemCause.NOT_REPORTED)
