"""The domains that other pods close to a pod, and those that hold a pod which it demands.

Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/interpodaffinity/filtering.go.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from virt_admit.model.kubernetes.cluster import check_time
from virt_admit.model.scheduler.pod_terms import PodTerm
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot, labels_of

Domain = tuple[str, str]
"""A topology domain: the key and the value of a node label."""
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class InterPodAffinity:
    """What affinity and anti-affinity, its own and of others, mean for the place of one pod."""

    repelled_by: Mapping[Domain, str]
    """Domains that a pod there closes by its own anti-affinity, each with that pod's name."""
    avoided: Mapping[Domain, str]
    """Domains that the pod's own anti-affinity closes, each with a pod that is there."""
    attracted: tuple[tuple[PodTerm, frozenset[str]], ...]
    """Each required affinity term with the values of its topology key where such a pod is."""
    first_of_its_group: bool

    def refusals(self, labels: Mapping[str, Any]) -> Iterator[str]:
        """Yield why a node with these labels cannot take the pod, in words."""
        for closed, words in (
            (self.repelled_by, "anti-affinity of pod {}"),
            (self.avoided, "anti-affinity to pod {}"),
        ):
            for (key, value), name in closed.items():
                if labels.get(key) == value:
                    yield words.format(name)
                    break
        for term, values in self.attracted:
            here = labels.get(term.topology_key)
            if here is None or (here not in values and not self.first_of_its_group):
                which = (
                    f" with {term.selector}"
                    if term.selector is not None and not term.selector.empty
                    else ""
                )
                yield f"pod affinity demands another pod{which} in the same {term.topology_key}"
                break


def inter_pod_affinity(
    pod: Pod, state: SchedulerSnapshot, gone: Container[int] = ()
) -> InterPodAffinity:
    """Return which domains the pods of a cluster close or open to one pod.

    ``gone``: ids of pods that will have ended before the pod is scheduled.
    """
    own = state.namespaces.get(pod.namespace, _NO_LABELS)
    attracting = _attracting(pod, state, gone)
    first = not attracting and _matches_all(pod.affinity, pod, state)
    if first:  # also of the pods that kube-scheduler alone selects
        attracting = _attracting(pod, state, gone, any_namespace=True)
    return InterPodAffinity(
        repelled_by=_repelled_by(pod, own, state, gone),
        avoided=_avoided(pod, state, gone),
        attracted=tuple(
            (term, frozenset(value for key, value in attracting if key == term.topology_key))
            for term in pod.affinity
        ),
        first_of_its_group=first and not attracting,
    )


def follows(pod: Pod, other: Pod, state: SchedulerSnapshot) -> bool:
    """Return whether the required pod affinity of a pod selects another one."""
    return _matches_all(pod.affinity, other, state)


def _repelled_by(
    pod: Pod, own: Mapping[str, str], state: SchedulerSnapshot, gone: Container[int]
) -> dict[Domain, str]:
    found: dict[Domain, str] = {}
    for label in labels_of(pod):
        for term, others in state.repelling.get(label, {}).items():
            check_time()
            if term.matches(pod.namespace, own, pod.labels):
                for other in others:
                    if id(other) not in gone:
                        _close(found, term, other, state)
    return found


def _avoided(pod: Pod, state: SchedulerSnapshot, gone: Container[int]) -> dict[Domain, str]:
    found: dict[Domain, str] = {}
    for term in pod.anti_affinity:
        check_time()
        for other in state.selected(term.selector) if term.selector is not None else ():
            labels = state.namespaces.get(other.namespace, _NO_LABELS)
            if id(other) not in gone and _selects(term, other, labels, any_namespace=True):
                _close(found, term, other, state)
    return found


def _selects(
    term: PodTerm, other: Pod, namespace: Mapping[str, str], *, any_namespace: bool
) -> bool:
    """Return whether a term of the pod to place selects another pod.

    ``any_namespace``: also as kube-scheduler 1.36 reads the term. Besides the selected namespaces
    it accepts all, if the namespace selector matches a namespace without labels, such as
    ``DoesNotExist``: it drops the selector in a copy only
    (interpodaffinity/plugin.go#mergeAffinityTermNamespacesIfNotEmpty). No node is a candidate that
    either reading refuses.
    """
    if term.selector is None or not term.selector.matches(other.labels):
        return False
    return term.reaches(other.namespace, namespace) or (
        any_namespace and term.reaches("", _NO_LABELS)
    )


def _close(found: dict[Domain, str], term: PodTerm, other: Pod, state: SchedulerSnapshot) -> None:
    node = state.nodes.get(other.node)
    value = node.labels.get(term.topology_key) if node is not None else None
    if value is not None:
        found.setdefault((term.topology_key, value), other.full_name)


def _attracting(
    pod: Pod, state: SchedulerSnapshot, gone: Container[int], *, any_namespace: bool = False
) -> set[Domain]:
    """Return the domains that hold a pod which every affinity term of ``pod`` selects."""
    found: set[Domain] = set()
    if not pod.affinity or pod.affinity[0].selector is None:
        return found
    for other in state.selected(pod.affinity[0].selector):
        check_time()
        node = state.nodes.get(other.node)
        if (
            node is not None
            and id(other) not in gone
            and _matches_all(pod.affinity, other, state, any_namespace=any_namespace)
        ):
            found |= {
                (term.topology_key, node.labels[term.topology_key])
                for term in pod.affinity
                if term.topology_key in node.labels
            }
    return found


def _matches_all(
    terms: tuple[PodTerm, ...], other: Pod, state: SchedulerSnapshot, *, any_namespace: bool = False
) -> bool:
    labels = state.namespaces.get(other.namespace, _NO_LABELS)
    return bool(terms) and all(
        _selects(term, other, labels, any_namespace=any_namespace) for term in terms
    )
