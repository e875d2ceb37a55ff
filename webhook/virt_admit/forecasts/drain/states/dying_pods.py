"""Pods that should have ended and have not: what their kubelet says, and the volumes that stay
attached because of them.

A volume that migrates stays attached to both nodes until Kubernetes detaches it from the node of
the old pod. Sources:
kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_manager.go#killPodWithSyncResult,
:pkg/kubelet/events/event.go (FailedKillPod);
longhorn/longhorn-manager:controller/volume_attachment_controller.go#handleVolumeMigrationConfirmation;
longhorn/website:content/kb/troubleshooting-rwx-volume-migration-stuck.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import hung_mounts, mapped_blocks, vm_states_motion
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.components import driver_daemons, network_plugins, node_drivers
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, NODE, POD, PV, PVC, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import fields, find, find_named
from virt_admit.model.messages import command_of, cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = union(
    volume_attachments.READS,
    hung_mounts.READS,
    mapped_blocks.READS,
    node_drivers.READS,
    node_health.READS,
    {
        POD: ("metadata.labels", "metadata.ownerReferences"),
        PV: ("spec.csi.volumeHandle",),
        VMI: ("status.migrationState", "status.nodeName"),
        LONGHORN_VOLUME: ("spec.migrationNodeID", "status.currentNodeID"),
    },
)
STUCK_AFTER: Final = timedelta(minutes=5)
"""A pod that has not ended so long after its grace period will not end by itself:
the kubelet kills at its end.
"""
_REASON: Final = "FailedKillPod"
_PART: Final = re.compile(
    r'failed to "\w+" for "[\w.-]{1,253}" with (\w+): "((?:[^"\\]|\\.){1,2000})"'
)
"""One error in the message of the event: the call that failed, its object, the kind of the error,
and its text.
"""
_CALL: Final = re.compile(r"rpc error: code = (\w+) desc = ")
_OF_RUNTIME: Final = ("KillContainerError", "KillPodSandboxError")
_LONGEST: Final = 120


class DyingPod(NamedTuple):
    """Why a pod that should have ended is still there."""

    why: str
    """``the kubelet of s1 cannot kill it (FailedKillPod: …)``."""
    keeps: str
    """What it keeps from going on, as the end of a sentence that begins with ``; ``; empty:
    nothing is known.
    """
    remedy: str
    said: bool = False
    """Whether it is known that the kubelet cannot end it."""


def of_pod(pod: Object, cluster: Cluster) -> DyingPod:
    """Return why a pod that is being deleted does not end, and what ends it."""
    node = pod.at("spec", "nodeName").text or "its node"
    said = events.last_warning(pod, _REASON, None, cluster) if pod.deleted else ""
    part = _PART.search(said)
    words = cut_middle(_CALL.sub(r"\1: ", part[2] if part is not None else said), _LONGEST)
    moved = target(vm_ledger.vmi_of(pod, cluster), node)
    kept = list(_kept(pod, node, moved, cluster)) if moved else []
    keeps = f"; its guest runs on {moved}, as its migration has succeeded" if moved else ""
    if kept:
        keeps += f". {'; '.join(each.words for each in kept)}"
    orphans = [name for each in kept for name in each.attachments]
    rest = (
        f"; delete VolumeAttachment {names(orphans)} of {node} only if it is still there "
        f"{clock.duration(_DETACHED)} after that pod is gone"
        if orphans
        else ""
    )
    if not said:
        if hung := hung_mounts.of_pod(pod, cluster):
            return DyingPod(hung.reason, keeps, hung.remedy)
        if driver := _driver_gone(pod, node, cluster):
            lacks = f"CSI driver {driver} {node_drivers.state(driver, node, cluster)} on {node}"
            why = f"its volumes cannot be unmounted: {lacks}"
            why += node_drivers.because(driver, node, cluster)
            absent = driver_daemons.absent(driver, node, cluster)
            at_once = absent.for_ending if absent is not None else ""
            remedy = at_once or node_drivers.remedy(driver, node, cluster)
            return DyingPod(why, keeps, remedy, said=True)
        if node_health.silence_now(node, cluster):
            report = shell("virt-admit", "explain", argument(f"node/{node}"))
            ways = typed(f"bring {node} back or fence it, as its own report says", report)
            return DyingPod(f"{node} does not report", keeps, ways, said=True)
        if (mapped := mapped_blocks.of_pod(pod, cluster)) is not None:
            return DyingPod(mapped.reason, keeps, f"{mapped.remedy}{rest}", said=True)
        ways = f"repair the kubelet or the storage of {node}"
        return DyingPod("the kubelet has not reported its end", keeps, f"{ways}{rest}")
    why = f"the kubelet of {node} cannot kill it ({_REASON}: {words})"
    if (plugin := network_plugins.NAMED.search(said)) is not None:  # no restart repairs that one
        asked = clock.instant(pod.metadata["deletionTimestamp"].text)
        repaired = network_plugins.remedy(plugin[1], pod, asked, cluster, said)
        return DyingPod(why, keeps, f"{repaired}{rest}", said=True)
    runs = "container runtime" if part is None or part[1] in _OF_RUNTIME else "kubelet"
    ways = f"restart the {runs} of {node}, or reboot {node} once its VMs have left"
    return DyingPod(why, keeps, f"{ways}{rest}", said=True)


def _driver_gone(pod: Object, node: str, cluster: Cluster) -> str:
    """Return the CSI driver that has to unmount a volume of a pod whose containers have ended, and
    that its node has no more; empty: it has all, a container may run, or the node is off.

    A taint ``NoExecute`` evicts the pod that registers a driver together with the pods that use it
    (longhorn/longhorn#2517, longhorn/website:content/kb/
    troubleshooting-noexecute-taint-prevents-workloads-from-terminating.md).
    """
    states = [each["state"] for each in pod.at("status", "containerStatuses").items()]
    if not pod.deleted or not states or any(each["running"].present for each in states):
        return ""
    own = find(cluster, NODE, "", node)  # what is off unmounts nothing, and registers no driver
    if own is None or not own.is_true("Ready") or node_health.silence_now(node, cluster):
        return ""
    found = node_drivers.missing(node, pod.namespace, claim_names(pod), cluster)
    return found if found in node_drivers.lacking(cluster).get(node, ()) else ""


def with_command(dying: DyingPod, pod: Object) -> str:
    """Return what ends a pod, with the command that shows it."""
    if command_of(dying.remedy):
        return dying.remedy
    return typed(dying.remedy, kubectl("describe", POD, pod.name, pod.namespace))


def overdue(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a VMI that is being stopped will not end:
    it is long after the time that its guest has.

    Raises:
        Unseen: it is not late by the known Nodes, whose heartbeats are the clock, and more Nodes
            may exist.
    """
    if not vmi.deleted:
        return None
    asked = clock.since(vmi.metadata["deletionTimestamp"].text, cluster)
    late = asked - timedelta(seconds=vmis.grace_seconds(vmi)) if asked is not None else None
    if late is None or late < STUCK_AFTER:
        for unread in more_may_exist(cluster, NODE):
            raise unread
        return None
    reason = f"it is being stopped, and should have ended {clock.duration(late)} ago"
    remedy = (
        "repair the kubelet, virt-handler or the storage of its node, as the events of the VMI say"
    )
    for pod in vm_states_motion.own_pods(vmi, cluster):
        dying = of_pod(pod, cluster)
        if dying.said:
            reason, remedy = f"{reason}: {dying.why}", with_command(dying, pod)
    return Problem(reason, remedy, ProblemCause.STOP_OVERDUE)


def target(vmi: Object | None, node: str) -> str:
    """Return where the guest of a VMI runs that a migration has certainly moved from a node; empty:
    none has.
    """
    if vmi is None:
        return ""
    state, here = vmi.at("status", "migrationState"), vmi.at("status", "nodeName").text or ""
    ended = state["completed"].boolean is True and not vm_states_motion.has_failed(state)
    moved = ended and state["sourceNode"].text == node and state["targetNode"].text == here
    return here if moved and here != node else ""


def left_over(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what stays of a VMI on the node that it has left, long after that; None: nothing does,
    or it is not known.

    Longhorn starts no further migration of a volume before the last one has ended
    (#handleVolumeMigrationStart).
    """
    state = vmi.at("status", "migrationState")
    node, age = state["sourceNode"].text or "-", clock.since(state["endTimestamp"].text, cluster)
    moved = target(vmi, node)
    if not moved or age is None or age < _DETACHED:
        return None
    own = vm_states_motion.pods(vmi, cluster)
    pods = [
        each
        for each in own
        if vm_states_motion.is_of(each, vmi) and each.at("spec", "nodeName").text == node
    ]
    for pod in filter(vm_states_motion.lives, pods):
        late = clock.since(pod.metadata["deletionTimestamp"].text, cluster)
        if late is None or late < STUCK_AFTER:
            return None  # it has not been told to end, or has its time
        dying = of_pod(pod, cluster)
        keeps = dying.keeps.partition(". ")[2]
        words = (
            f"its old pod {pod.name} on {node} should have ended {clock.duration(late)} ago, but "
            f"{dying.why}"
        )
        return Problem(f"{words}{f'. {keeps}' if keeps else ''}", with_command(dying, pod))
    if any(_has_just_ended(pod, cluster) for pod in pods):
        return None
    here = [
        each
        for each in own
        if each.at("spec", "nodeName").text == moved and vm_states_motion.lives(each)
    ]
    kept = [each for pod in here[:1] for each in _kept(pod, node, moved, cluster) if each.migrates]
    if not kept or unlisted(cluster, POD):
        return None
    names_of = [name for each in kept for name in each.attachments]
    delete = shell("kubectl", "delete", "volumeattachments.storage.k8s.io", *names_of)
    ways = (
        f"see that no container of the VM runs on {node}, then delete the VolumeAttachment of "
        f"{node}, not that of {moved}"
    )
    return Problem(
        "; ".join(each.words for each in kept).replace("Volume", "volume", 1), typed(ways, delete)
    )


def _has_just_ended(pod: Object, cluster: Cluster) -> bool:
    """Return whether a container of a pod ended so short ago that Kubernetes may still detach."""
    ends = (
        each.at("state", "terminated", "finishedAt").text
        for each in pod.at("status", "containerStatuses").items()
    )
    ages = (clock.since(end, cluster) for end in ends)
    return any(age is not None and age < _DETACHED for age in ages)


_DETACHED: Final = timedelta(minutes=10)
"""Kubernetes detaches a volume at the latest 6 minutes after its pod has ended
(``maxWaitForUnmountDuration``).
"""


class _KeptVolume(NamedTuple):
    words: str
    attachments: tuple[str, ...]
    migrates: bool
    """Whether Longhorn still migrates it."""


def _kept(pod: Object, node: str, moved: str, cluster: Cluster) -> Iterator[_KeptVolume]:
    """Yield the volumes that stay attached to both nodes of a migration that has succeeded, and
    that no other pod uses.
    """
    for each in pod.at("spec", "volumes").items():
        called = each.at("persistentVolumeClaim", "claimName").text or ""
        name = fields(cluster, PVC, pod.namespace, called).at("spec", "volumeName").text
        attached = volume_attachments.of_volume(name, cluster) if name else {}
        users = volume_attachments.users(pod.namespace, called, cluster)
        shared = any(
            user.at("spec", "nodeName").text == node and user.name != pod.name for user in users
        )
        if name and node in attached and moved in attached and not shared:
            migrates = _migrates(name, node, moved, cluster)
            ends = f", and Longhorn has not ended its migration to {moved}" if migrates else ""
            yield _KeptVolume(
                f"Volume {name} is still attached to {node} and {moved}{ends}",
                (attached[node],),
                migrates,
            )


def _migrates(name: str, node: str, moved: str, cluster: Cluster) -> bool:
    """Return whether Longhorn still migrates a PersistentVolume from one node to the other."""
    handle = fields(cluster, PV, "", name).at("spec", "csi", "volumeHandle").text
    volume = find_named(cluster, LONGHORN_VOLUME, handle or name)
    return volume is not None and {
        volume.at("status", "currentNodeID").text,
        volume.at("spec", "migrationNodeID").text,
    } == {node, moved}
