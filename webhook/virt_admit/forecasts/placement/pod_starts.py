"""Why a pod that has a node does not start: its container states, events about the pod, and attachments that fail.

Events are only in snapshots that hold them. Sources: kubernetes/kubernetes:pkg/kubelet/images/types.go,
:pkg/kubelet/container/sync_result.go, :pkg/kubelet/events/event.go.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.volume_attachments import AttachmentFault
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut_middle

_STATUSES: Final = ("initContainerStatuses", "containerStatuses")

READS: Final[Reads] = union(
    clock.READS,
    volume_attachments.READS,
    {
        POD: (
            "metadata.creationTimestamp",
            "spec.nodeName",
            "spec.volumes.persistentVolumeClaim.claimName",
            *(f"status.{kind}.state.waiting" for kind in _STATUSES),
        )
    },
)

_FAILURES: Final = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    )
)
"""Reasons of a waiting container that are no step of a normal start."""

_EVENTS: Final = ("FailedCreatePodSandBox", "FailedMount", "FailedMapVolume", "FailedAttachVolume", "Failed")
"""The kubelet repeats these as long as the cause lasts, at the latest after two minutes; the attach controller does not."""
_OF_VOLUMES: Final = ("FailedMount", "FailedMapVolume", "FailedAttachVolume")
_WORDS: Final = 200
_DETACHED: Final = timedelta(minutes=10)
"""kube-controller-manager detaches the volumes of pods that are gone within six minutes."""
_RECENT: Final = timedelta(minutes=5)


def failure(pod: Object, cluster: Cluster) -> str:
    """Return why a pod does not start; empty: nothing says so."""
    for kind in _STATUSES:
        for status in pod.at("status", kind).items():
            waiting = status.at("state", "waiting")
            reason = waiting["reason"].text or ""
            if reason in _FAILURES:
                words = " ".join((waiting["message"].text or "").split())
                return f"{reason}: {cut_middle(words, _WORDS)}" if words else reason
    created, current = clock.instant(pod.metadata["creationTimestamp"].text), clock.now(cluster)
    since = max(filter(None, (created, current - _RECENT if current is not None else None)), default=None)
    attachment = attachment_fault(pod, cluster)  # its event does not say which node has the volume
    for reason in _EVENTS:
        words = events.last_warning(pod, reason, since, cluster)
        if words and (attachment is None or reason not in _OF_VOLUMES):
            return cut_middle(words, _WORDS)
    return cut_middle(attachment.what, _WORDS) if attachment is not None else ""


def attachment_fault(pod: Object, cluster: Cluster) -> AttachmentFault | None:
    """Return why a volume of a pod cannot be attached to its node; None: nothing says so."""
    claims = [each.at("persistentVolumeClaim", "claimName").text or "" for each in pod.at("spec", "volumes").items()]
    age = clock.since(pod.metadata["creationTimestamp"].text, cluster)
    overdue = age is not None and age > _DETACHED
    return volume_attachments.fault(
        pod.at("spec", "nodeName").text or "-", pod.namespace, claims, cluster, overdue=overdue
    )
