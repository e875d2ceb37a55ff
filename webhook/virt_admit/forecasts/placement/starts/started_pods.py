"""A pod that has a node and has not started, and what is said of it: by the states of its
containers, by events, and by attachments that fail.

Events are only in snapshots that hold them. Sources:
kubernetes/kubernetes:pkg/kubelet/images/types.go, :pkg/kubelet/container/sync_result.go,
:pkg/kubelet/events/event.go.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.placement.volume_attachments import AttachmentFault
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = union(
    volume_attachments.READS,
    {POD: ("metadata.creationTimestamp", *(f"status.{kind}.state.waiting" for kind in CONTAINERS))},
)
VOLUME: Final = re.compile(r'(?:Attach|Mount|Map)Volume\.\w+ failed for volume "([\w.-]{1,250})"')
"""How the kubelet and the attach controller name a volume with which they fail,
which may be a PersistentVolume.
"""
CODE: Final = re.compile(r"rpc error: code = (\w+) desc = ")
FAILED: Final = re.compile(r'(\w+Volume)\.\w+ failed for volume "[\w.-]{1,250}" ?: ')
FRAME: Final = re.compile(r'(\w+Volume\.\w+) failed for volume "([\w.-]{1,250})" ?: ')
BY_KUBELET: Final = ("MountVolume.", "MapVolume.")
"""How errors begin that the kubelet meets on the node; a volume is attached before."""
CALL: Final = re.compile(r"rpc error: code = (?:Internal|Unknown) desc = ")
"""The frame of an error, which says something only if the code does."""
LONGEST: Final = 200
BRIEF: Final = 80
"""Characters of what a program says, in full and in brief."""
_MOUNT: Final = re.compile(
    r"(?i)mount failed: exit status \d+\s+Mounting command: .{0,2000}?Output: ", re.S
)
"""How a failed mount is framed (kubernetes/mount-utils:mount_linux.go#doMount)."""
FAILURES: Final = frozenset(
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
"""Reasons of a waiting container that are not a step of a normal start."""
_EVENTS: Final = ("FailedCreatePodSandBox", *events.OF_VOLUMES, "Failed")
"""The kubelet repeats these as long as the cause lasts, at the latest after two minutes; the attach
controller does not.
"""
_DETACHED: Final = timedelta(minutes=10)
"""kube-controller-manager detaches the volumes of pods that are gone within six minutes."""
_RECENT: Final = timedelta(minutes=5)


class StartFault(NamedTuple):
    """Why a pod does not start."""

    words: str
    """In about 200 characters. Only what a program says is shortened, never the words around it."""
    brief: str
    """In about 80 characters."""
    remedy: str
    """What repairs it, with a command: the part of the cluster that fails, where it is named."""
    of_node: bool = False
    """Whether it is a fault of the pod's node, so that the pod may start on another one."""
    lasts: bool = False
    """Whether a pod that replaces this one certainly meets the same cause on each node."""


class PodStart(NamedTuple):
    """What is said of the start of a pod."""

    pod: Object
    said: str
    """The whole text of what keeps it from starting; empty: nothing says so."""
    attachment: AttachmentFault | None
    """Why one of its volumes cannot be attached."""
    since: datetime | None
    """When the pods before it began to fail in the same way; None: there were none."""
    cluster: Cluster

    @property
    def on(self) -> str:
        """Its node; empty: it has none."""
        return self.pod.at("spec", "nodeName").text or ""

    @property
    def attaches(self) -> bool:
        """Whether the attachment is what keeps it from starting."""
        return self.attachment is not None and self.said == self.attachment.words

    @property
    def words(self) -> str:
        """What is said, shortened, with the claim of the volume that it names."""
        if self.attachment is not None and self.attaches:
            error = cut_middle(CALL.sub("", self.attachment.error).rstrip(". "), LONGEST)
            return ": ".join(filter(None, (self.attachment.what, error)))
        framed = FRAME.match(self.said)
        if framed is None:
            return cut_middle(self.said.rstrip(". "), LONGEST)
        claim = self.claim(framed[2])
        called = f"claim {claim} (volume {framed[2]})" if claim else f'volume "{framed[2]}"'
        error = cut_middle(self.said[framed.end() :].rstrip(". "), LONGEST)
        return f"{framed[1]} failed for {called}: {error}"

    @property
    def brief(self) -> str:
        """The same in about 80 characters."""
        if self.attachment is not None and self.attaches:
            return self.attachment.what
        return cut_middle(FAILED.sub(r"\1: ", self.said).rstrip(". "), BRIEF)

    def claim(self, volume: str) -> str:
        """Return the claim of the pod that is bound to a volume; empty: none is, as far as is
        known.
        """
        for name in claim_names(self.pod):
            found = find(self.cluster, PVC, self.pod.namespace, name)
            if found is not None and found.at("spec", "volumeName").text == volume:
                return name
        return ""

    def driver(self, volume: str) -> str:
        """Return the CSI driver of a volume; empty: it is not known, or has none."""
        found = find(self.cluster, PV, "", volume)
        return (found.at("spec", "csi", "driver").text or "") if found is not None else ""


def of(pod: Object, cluster: Cluster, since: datetime | None = None) -> PodStart:
    """Return what is said of the start of a pod. ``since``: as in ``PodStart``."""
    attachment = attachment_fault(pod, cluster)
    return PodStart(pod, _said(pod, attachment, cluster), attachment, since, cluster)


def attachment_fault(pod: Object, cluster: Cluster) -> AttachmentFault | None:
    """Return why a volume of a pod cannot be attached to its node; None: nothing says so."""
    age = clock.age(pod, cluster)
    overdue = age is not None and age > _DETACHED
    return volume_attachments.fault(
        pod.at("spec", "nodeName").text or "-",
        pod.namespace,
        list(claim_names(pod)),
        cluster,
        overdue=overdue,
        waiting=pod,
    )


def _said(pod: Object, attachment: AttachmentFault | None, cluster: Cluster) -> str:
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        reason = waiting["reason"].text or ""
        if reason in FAILURES:
            words = waiting["message"].words
            return f"{reason}: {words}" if words else reason
    created = clock.instant(pod.created)
    since = max(filter(None, (created, clock.ago(_RECENT, cluster))), default=None)
    for reason in _EVENTS:
        words = events.last_warning(pod, reason, since, cluster)
        # the event of an attachment does not say which node has the volume
        if words and (attachment is None or reason not in events.OF_VOLUMES):
            return _MOUNT.sub("", CALL.sub("", words))
    return attachment.words if attachment is not None else ""
