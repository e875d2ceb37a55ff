"""Pods that the kubelet refused, so that they run nowhere: most often its node has no room.

Sources: kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod (phase Failed with a reason, and no
container), :pkg/kubelet/lifecycle/predicate.go#InsufficientResourceError (CPU in thousandths).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.lookups import grouped, maker_of
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import resources

READS: Final[Reads] = {
    POD: (
        *("spec.containers.resources.requests", "spec.nodeName", "metadata.ownerReferences"),
        *("status.message", "status.phase", "status.reason"),
        *("status.containerStatuses.name", "status.initContainerStatuses.name"),
    )
}
_FRAME: Final = "Pod was rejected: "
_NO_ROOM: Final = re.compile(
    r"Node didn't have enough resource: ([\w./-]{1,253}), requested: (\d{1,18}), "
    r"used: (\d{1,18}), capacity: (\d{1,18})"
)
_LONGEST: Final = 160


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return why the kubelet refused a pod, as ``OutOfcpu, its pod requests 960m of cpu, and 7360m
    of 8 are in use``; None: it did not.

    The remedy makes room for it: ``free 320m of cpu on w3, where Deployment batch/render requests
    6600m``. It is empty where the room is not the cause.
    """
    status = pod["status"]
    reason, said = status["reason"].text or "", status["message"].words.removeprefix(_FRAME)
    started = any(True for _ in container_statuses(pod))
    if status["phase"].text != "Failed" or not reason or started:
        return None
    full = _NO_ROOM.search(said)
    if full is None:
        words = cut_middle(said.rstrip(". "), _LONGEST)
        return Problem(f"{reason}: {words}" if words else reason, "")
    name, node = full[1], pod.at("spec", "nodeName").text or "its node"
    wanted, used, most = (int(each) for each in full.groups()[1:])
    amounts = [resources.show(name, each) for each in (wanted, used, most)]
    lack = resources.show(name, max(1, wanted + used - most))
    way = f"free {lack} of {name} on {node}{_largest(name, node, cluster)}"
    why = (
        f"{reason}, its pod requests {amounts[0]} of {name}, and {amounts[1]} of {amounts[2]} are "
        "in use"
    )
    return Problem(why, way)


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods that have not ended by node. Each VM that waits there asks for its own."""
    here = (pod for pod in cluster.known(POD) if not pod.ended)
    return grouped(here, lambda pod: pod.at("spec", "nodeName").text or "")


def _largest(resource: str, node: str, cluster: Cluster) -> str:
    """Return whose pods request most of a resource on a node; empty: it is not known."""
    total: dict[str, int] = {}
    for pod in entry(cluster, _by_node, node) or ():
        maker = maker_of(pod, cluster)
        if maker is not None:
            whose = f"{maker['kind'].text} {pod.namespace}/{maker['name'].text}"
            amount = resources.pod_requests(pod["spec"]).get(resource, 0)
            total[whose] = total.get(whose, 0) + amount
    most = max(total, key=lambda each: (total[each], each), default="")
    known = bool(most) and total[most] > 0
    shown = resources.show(resource, total[most]) if known else ""
    return f", where {most} requests {shown}" if known else ""
