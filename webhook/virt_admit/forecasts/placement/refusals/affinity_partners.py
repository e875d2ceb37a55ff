"""The pods beside which a VM has to run, and where they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names
from virt_admit.model.scheduler.inter_pod_affinity import follows
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot

DEMANDS: Final = "pod affinity demands "
"""How a cause begins that names what a pod has to run beside."""
_MOST: Final = 60


def words(pod: Pod, causes: Collection[str], cluster: Cluster) -> str:
    """Return which pods a pod has to run beside, with their nodes, and whether they demand it in
    turn; empty: nothing refuses it for that, or no such pod is known.
    """
    if not pod.affinity or not any(cause.startswith(DEMANDS) for cause in causes):
        return ""
    state = candidates.scheduler(cluster).state
    found = _beside(pod, state)
    if not found:
        return ""
    mutual = _is_mutual(pod, found, state)
    where = found[0].node
    node = state.nodes.get(where)
    closed = ", which is cordoned" if node is not None and node.cordoned else ""
    several = len(found) > 1
    in_turn = f" and {'demand' if several else 'demands'} it in turn" if mutual else ""
    who = names(sorted(title(other) for other in found), _MOST)
    verb = "run" if several else "runs"
    return f": {who} {verb} on {where} alone{closed}{',' if closed and mutual else ''}{in_turn}"


def keeps_both(pod: Pod, causes: Collection[str], cluster: Cluster) -> bool:
    """Whether a pod has to run beside another one that demands it in turn, so that neither moves
    alone.

    ``causes``: for which nodes refuse the pod.
    """
    if not pod.affinity or not any(cause.startswith(DEMANDS) for cause in causes):
        return False
    state = candidates.scheduler(cluster).state
    return _is_mutual(pod, _beside(pod, state), state)


def _is_mutual(pod: Pod, others: Iterable[Pod], state: SchedulerSnapshot) -> bool:
    return any(follows(other, pod, state) for other in others)


def _beside(pod: Pod, state: SchedulerSnapshot) -> list[Pod]:
    """Return the pods that the affinity of a pod selects, if all are on one node; else none."""
    selector, own, found = pod.affinity[0].selector, title(pod), list[Pod]()
    for other in state.selected(selector) if selector is not None else ():
        if other.node in state.pods and follows(pod, other, state) and title(other) != own:
            if found and found[0].node != other.node:
                return []
            found.append(other)
    return found


def title(pod: Pod) -> str:
    """Return the VM of a pod, else the pod, in words."""
    vm = pod.labels.get(launcher_pod.NAME)
    return f"VM {pod.namespace}/{vm}" if vm else f"pod {pod.full_name}"
