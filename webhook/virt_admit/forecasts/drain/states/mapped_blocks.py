"""Block volumes that a kubelet cannot unmap from a pod that ended with a reboot of its node.

Kubelets before the releases below forget where the device was mapped once they have tried to map it
again, so a pod that was evicted while its node was off stays. The containers have ended: the
runtime that comes back gives them exit code 255. Sources: kubernetes/kubernetes#119608 #122960,
repaired by #122211 (#122345 #122396 #122397 #122398); longhorn/longhorn#6919.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = union(
    node_health.READS,
    {
        POD: ("spec.nodeName", "spec.volumes", "status.containerStatuses"),
        PVC: ("spec.volumeMode",),
        NODE: ("status.nodeInfo.kubeletVersion",),
    },
)
_REPAIRED: Final = (Version(1, 26, 13), Version(1, 27, 10), Version(1, 28, 6), Version(1, 29, 1))
"""The first release of each minor with the repair; later minors have it."""
_LOST: Final = "Unknown"
"""The reason of a container whose end the runtime has not seen, as it was off."""


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return that a pod most likely waits for a block volume that its kubelet cannot unmap; None:
    nothing shows a reboot, or another cause is possible.
    """
    on = pod.at("spec", "nodeName").text or ""
    node = find(cluster, NODE, "", on) if on else None
    if node is None or not node.is_true("Ready") or node_health.silence_now(on, cluster):
        return None
    running = parse_version(node.at("status", "nodeInfo", "kubeletVersion").text)
    claims = [
        name
        for name in claim_names(pod)
        if fields(cluster, PVC, pod.namespace, name).at("spec", "volumeMode").text == "Block"
    ]
    if running is None or _is_repaired(running) or not claims or not _ended_with_node(pod):
        return None
    off = node_health.rebooted((on,), cluster) or f"{on} was off"
    reason = (
        f"its containers ended with exit code 255 when {off}, so nothing of it runs, and most "
        f"likely kubelet v{running} cannot unmap the block volume of claim {names(claims)} since "
        "then"
    )
    later = names(map(str, (each for each in _REPAIRED if each > running)))
    remedy = (
        f"restart the kubelet of {on}; if the pod stays, update Kubernetes to one of {later} or "
        "later, as kubelets before cannot end such pods (kubernetes#119608), the servers before "
        f"{on}: no kubelet may be newer than its API server"
    )
    return Problem(reason, remedy)


def _is_repaired(running: Version) -> bool:
    own = [each for each in _REPAIRED if each[:2] == running[:2]]
    return running >= own[0] if own else running > _REPAIRED[-1]


def _ended_with_node(pod: Object) -> bool:
    """Return whether all containers of a pod have ended, one of them unseen by the runtime."""
    states = [
        each.at("state", "terminated") for each in pod.at("status", "containerStatuses").items()
    ]
    lost = any(each["exitCode"].integer == 255 and each["reason"].text == _LOST for each in states)
    return lost and all(each.present for each in states)
