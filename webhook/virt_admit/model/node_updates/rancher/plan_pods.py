"""What the pods of the Plans of the system-upgrade-controller do, and in what they are stuck.

Source: rancher/system-upgrade-controller:pkg/upgrade/job/job.go#New.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    clock.READS,
    {
        POD: (
            *("metadata.creationTimestamp", *WHOLE_CONDITIONS),
            *("status.phase", "status.initContainerStatuses", "status.containerStatuses"),
        )
    },
)
_MOST: Final = 160
"""Characters of the reason of a pod."""
_DOES: Final = {
    "prepare": "preparing",
    "cordon": "cordoning the node",
    "drain": "draining the node",
}


def step(pod: Object) -> tuple[str, str | None]:
    """Return the name of the container of a pod that runs, and since when; empty: none does."""
    for part, name in (("initContainerStatuses", None), ("containerStatuses", "upgrade")):
        for status in pod.at("status", part).items():
            running = status.at("state", "running")
            if running.present:
                return name or status["name"].text or "", running["startedAt"].text
    return "", None


def does(pod: Object, cluster: Cluster) -> str:
    """Return what a pod of a Plan does now, as in ``has been draining the node for 3 min``."""
    name, since = step(pod)
    doing = "updating the node" if name == "upgrade" else _DOES.get(name)
    if doing is None:
        return f"is {pod.at('status', 'phase').text or 'Pending'}"
    lasts = clock.lasting(since, cluster)
    return f"has been {doing}{lasts}" if lasts else f"is {doing}"


_STARTS: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Reasons of containers that wait as usual
(kubernetes/kubernetes:pkg/kubelet/kubelet_pods.go#convertToAPIContainerStatuses).
"""
_LASTING: Final = timedelta(minutes=10)
"""A pull that fails once is tried again within five minutes, the kubelet's longest back-off."""
_SLOW: Final = timedelta(hours=1)
"""A large image may be pulled for many minutes, which has no other reason."""


def stuck(pod: Object, cluster: Cluster) -> str:
    """Return in what a pod of a Plan is stuck and for how long, as in
    ``has been in ImagePullBackOff for 27 h``; empty: it goes on, or that cannot be determined.
    """
    reason, said, since = _held(pod)
    lasts = clock.since(since, cluster)
    if not reason or lasts is None or lasts < (_SLOW if reason in _STARTS else _LASTING):
        return ""
    why = f" ({cut_middle(' '.join(said.split()).rstrip('.'), _MOST)})" if said else ""
    state = reason if reason == "Unschedulable" else f"in {reason}"
    return f"has been {state} for {clock.duration(lasts)}{why}"


def waits_long(pod: Object, cluster: Cluster) -> bool:
    """Return whether no node has taken a pod for so long that a node which starts does not explain
    it."""
    return clock.has_lasted(pod.created, _LASTING, cluster)


def _held(pod: Object) -> tuple[str, str, str | None]:
    """Return why no container of a pod runs, with the message and since when; empty: one runs,
    or nothing is said.
    """
    placed, since = pod.condition("PodScheduled"), pod.created
    if placed["status"].text == "False":
        return (
            placed["reason"].text or "",
            placed["message"].text or "",
            placed["lastTransitionTime"].text or since,
        )
    if step(pod)[0]:
        return "", "", None
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        if reason := waiting["reason"].text:
            return reason, waiting["message"].text or "", since
        since = status.at("state", "terminated", "finishedAt").text or since
    return "", "", None


def has_cordoned(pod: Object) -> bool:
    """Return whether a pod of a Plan has begun to cordon its node, which one of two containers does
    (rancher/system-upgrade-controller:pkg/upgrade/job/job.go#New).
    """
    return any(
        status.at("state", each).present
        for status in pod.at("status", "initContainerStatuses").items()
        if status["name"].text in ("cordon", "drain")
        for each in ("running", "terminated")
    )
