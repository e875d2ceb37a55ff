"""What was not read of nodes and namespaces although other pods decide by it where a pod can go.

A pod on a node that was not read closes or opens a whole zone, and a namespace without known labels
may be selected.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.model.scheduler.pod_terms import PodTerm
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot, labels_of


def unread_links(
    pod: Pod, state: SchedulerSnapshot, *, complete: bool, namespaces: str
) -> Iterator[str]:
    """Yield what could not be read although affinity,
    anti-affinity or topology spread of a pod rests on it.

    Args:
        pod: the pod to place.
        state: the nodes and the pods on them.
        complete: whether every node is known.
        namespaces: what could not be read of namespaces; empty: all are known.
    """
    if not complete and (
        pod.affinity or pod.anti_affinity or pod.spread or any(_repelling(pod, state))
    ):
        yield "the nodes of the cluster"
    if namespaces and (_selects_namespaces(pod) or may_be_repelled(pod, state)):
        yield namespaces


def may_be_repelled(pod: Pod, state: SchedulerSnapshot) -> bool:
    """Return whether unread labels of the pod's namespace decide if other pods repel it."""
    if pod.namespace in state.namespaces:
        return False
    return any(term.namespace_selector is not None for term in _repelling(pod, state))


def _repelling(pod: Pod, state: SchedulerSnapshot) -> Iterator[PodTerm]:
    """Yield the terms of other pods that may repel a pod with these labels."""
    return (term for label in labels_of(pod) for term in state.repelling.get(label, ()))


def _selects_namespaces(pod: Pod) -> bool:
    """Return whether the affinity of a pod selects namespaces by their labels."""
    return any(term.namespace_selector is not None for term in (*pod.affinity, *pod.anti_affinity))
