"""Whether a Node reports, what its condition Ready says, and what it may lack."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, keep
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union

READS: Final[Reads] = union(clock.READS, {NODE: WHOLE_CONDITIONS})

OVERDUE: Final = datetime.timedelta(minutes=10)
"""A kubelet writes its conditions at least every five minutes (``nodeStatusReportFrequency``): this
is the time of two such reports. The node controller, which writes Unknown after 50 seconds, may
itself have stopped.
"""

_BROKEN: Final = (
    "container runtime is down",
    "PLEG is not healthy",
    "container runtime status check may not have",
)
"""Parts of the message with which the kubelet says that it cannot end a pod
(pkg/kubelet/runtime.go#runtimeErrors).
"""
UNANSWERED: Final = "its kubelet reports, but the container runtime does not answer it"
RESTART_RUNTIME: Final = (
    "restart the container runtime and the kubelet on the node, or reboot it once its VMs may be "
    "shut down"
)
"""The way out: its journal says what blocks the runtime. Its guests run on,
so it is not to be fenced first.
"""

_LONGEST: Final = 120


def silence(node: Object, cluster: Cluster) -> str:
    """Return why a Node counts as not reporting; empty: it reports,
    or that cannot be determined.
    """
    ready = node.condition("Ready")
    if ready["status"].text == "Unknown":
        return "Ready is Unknown"
    late = clock.since(ready["lastHeartbeatTime"].text, cluster)
    if late is not None and late >= OVERDUE:
        return f"its last heartbeat is {int(late.total_seconds() // 60)} minutes old"
    return ""


def silent_for(name: str, cluster: Cluster) -> str:
    """Return since when a Node does not report, as ``has not reported for 50 min``; empty: it does,
    or is not known.
    """
    try:
        node = cluster.get(NODE, "", name)
    except Unseen:
        return ""
    if node is None or not silence_now(name, cluster):
        return ""
    ready = node.condition("Ready")
    last = "lastTransitionTime" if ready["status"].text == "Unknown" else "lastHeartbeatTime"
    age = clock.since(ready[last].text, cluster)
    return f"has not reported for {clock.duration(age)}" if age is not None else "does not report"


def silence_now(name: str, cluster: Cluster) -> str:
    """Return the same of a Node as it is in the cluster, kept as long as it stays;
    empty also for an unknown Node.
    """

    def find(cluster: Cluster) -> str:
        try:
            node = cluster.get(NODE, "", name)
        except Unseen:
            return ""
        return silence(node, cluster) if node is not None else ""

    return keep(cluster, (silence_now, name), find)


def pod_unready_for(
    pod: Object, node: Object | None, cluster: Cluster
) -> datetime.timedelta | None:
    """Return for how long a pod has not been ready; None: not known.

    It is no longer than its node is Ready, and than its containers that are not ready run: what a
    pod was before a boot, or before its image could be pulled, says nothing about its start since.
    """
    ready = node.condition("Ready") if node is not None else None
    is_back = ready is not None and ready["status"].text == "True"
    back = ready["lastTransitionTime"].text if ready is not None and is_back else None
    unplaced = pod.condition("PodScheduled")  # a pod without a node has no other condition
    ready_since = pod.condition("Ready")["lastTransitionTime"].text
    since = ready_since or unplaced["lastTransitionTime"].text
    age = clock.since(since, cluster)
    others = (clock.since(each, cluster) for each in (back, _started(pod, since)))
    return min((age, *(each for each in others if each is not None))) if age is not None else None


def _started(pod: Object, unready: str | None) -> str | None:
    """Return when the containers that are not ready were started; None: one waits, or has ended
    since the pod is not ready, so that its last start is one of several."""
    every, began = pod.at("status", "containerStatuses").items(), clock.instant(unready)
    found = [each for each in every if each["ready"].value is not True]
    for status in found:
        last = clock.instant(status.at("lastState", "terminated", "startedAt").text)
        if last is not None and began is not None and last > began:
            return None
    starts = [each.at("state", "running", "startedAt").text for each in found]
    return min(filter(None, starts), default=None) if all(starts) else None


def kubelet_started(node: str, cluster: Cluster) -> datetime.timedelta | None:
    """Return how long ago the kubelet of a node started; None: no event of the last hour says it.

    A restart of the kubelet alone leaves the condition Ready as it is. Device plugins register
    again within seconds (kubevirt/kubevirt:pkg/virt-handler/device-manager/generic_device.go
    #healthCheck, :device_controller.go).
    """
    return clock.elapsed(cluster.cached(_kubelet_starts).get(node), cluster)


def _kubelet_starts(cluster: Cluster) -> Mapping[str, datetime.datetime]:
    """Return when the kubelet of each node started last, as far as events tell."""
    starts = [
        (event.at("involvedObject", "name").text or "", time)
        for event in events.known(NODE.kind, "Starting", cluster)
        if (event["message"].text or "").startswith("Starting kubelet")
        and (time := events.time_of(event)) is not None
    ]
    return dict(sorted(starts, key=lambda each: each[1]))


def unready(node: Object) -> str:
    """Return what a Node says about its condition Ready if that is False; empty: it is not."""
    ready = node.condition("Ready")
    if ready["status"].text != "False":
        return ""
    said = ": ".join(text for text in (ready["reason"].text, ready["message"].text) if text)
    return said[:_LONGEST] or "Ready is False"


def rebooted(nodes: Sequence[str], cluster: Cluster) -> str:
    """Return which of these nodes was rebooted and when, as far as an event tells; empty: none was
    lately.
    """
    current = clock.now(cluster)
    for event in events.known(NODE.kind, "Rebooted", cluster):
        name, when = event.at("involvedObject", "name").text or "", events.time_of(event)
        if name in nodes and when is not None and current is not None:
            return f"{name} was rebooted {clock.duration(current - when)} ago"
    return ""


def cannot_end_pods(node: Object) -> bool:
    """Return whether a Node whose condition Ready is False says that its kubelet cannot end
    pods.
    """
    ready = node.condition("Ready")
    return ready["status"].text == "False" and any(
        part in (ready["message"].text or "") for part in _BROKEN
    )


class NodePressure(NamedTuple):
    """One resource that a node lacks (kubernetes/kubernetes:pkg/kubelet/eviction,
    :pkg/controller/nodelifecycle).
    """

    condition: str
    taint: str
    """Its key. The node controller removes it when the condition ends."""
    words: str
    remedy: str
    what: str
    """What the remedy is about; empty: the remedy says it."""


PRESSURES: Final = (
    NodePressure(
        "DiskPressure",
        "node.kubernetes.io/disk-pressure",
        "disk pressure",
        "free disk space on it",
        "images, logs, container storage",
    ),
    NodePressure(
        "MemoryPressure",
        "node.kubernetes.io/memory-pressure",
        "memory pressure",
        "free memory on it",
        "what runs outside of VMs",
    ),
    NodePressure(
        "PIDPressure",
        "node.kubernetes.io/pid-pressure",
        "too many processes",
        "end the processes on it that are too many",
        "",
    ),
)
