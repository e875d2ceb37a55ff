"""The nodes of a cluster and the pods on them: what kube-scheduler keeps in its cache."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import EXISTS, IN, Selector
from virt_admit.model.scheduler.pod_terms import PodTerm
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import PODS, Resources, add, amounts, are_quantities


@dataclass(frozen=True, slots=True)
class Node:
    """A node as kube-scheduler sees it."""

    name: str
    labels: Mapping[str, Any]
    taints: tuple[Any, ...] = ()
    """Those that keep pods off: ``NoSchedule`` and ``NoExecute``."""
    cordoned: bool = False
    ready: bool = True
    """Whether its condition Ready is not False or Unknown, for which it gets a taint."""
    allocatable: Resources | None = None
    """None: the node does not report it, or the size of a pod on it is not known."""


def read_node(node: Object, *, moment: bool = True) -> Node:
    """Return an object of kind Node as kube-scheduler sees it.

    ``moment``: whether its cordon, its condition Ready and its allocatable resources are read too.
    """
    labels = node.labels
    taints = tuple(
        taint.value for taint in node.at("spec", "taints").items() if taint["effect"].text in _HARD
    )
    if not moment:
        return Node(node.name, labels, taints)
    allocatable = node.at("status", "allocatable")
    return Node(
        node.name,
        labels,
        taints,
        cordoned=node.at("spec", "unschedulable").boolean is True,
        ready=node.condition("Ready")["status"].text in (None, "True"),
        allocatable=amounts(allocatable.map)
        if allocatable.is_map and are_quantities(allocatable.map)
        else None,
    )


_HARD: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods off."""


Label = tuple[str, str | None]
"""A label; None for its value: any value."""
_ANY: Final = (None,)
_MOST_VALUES: Final = 10
"""Values of one label under which a term is indexed;
with more it is indexed under the label with any value.
"""


def anchors(selector: Selector) -> Sequence[Label | None]:
    """Return labels of which everything selected has exactly one, for indexes;
    ``(None,)`` if no label is demanded.
    """
    demanded = sorted(
        (
            len(each.values) if each.operator == IN else _MOST_VALUES + 1,
            each.key,
            sorted(each.values),
        )
        for each in selector.requirements
        if each.operator in (IN, EXISTS)
    )
    if not demanded:
        return _ANY
    count, key, values = demanded[0]
    return [(key, value) for value in values] if count <= _MOST_VALUES else [(key, None)]


@dataclass(slots=True)
class SchedulerSnapshot:
    """Nodes, the pods bound to them and what these hold.

    ``fork`` makes a cheap copy to try placements on.
    """

    nodes: Mapping[str, Node]
    namespaces: Mapping[str, Mapping[str, str]]
    """The labels of each namespace."""
    used: dict[str, Resources] = field(default_factory=dict)
    """Requests per node, with ``pods``: their number. Values are never changed in place."""
    pods: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    by_label: dict[Label | None, tuple[Pod, ...]] = field(default_factory=dict)
    """Pods by their labels, by the keys of these, and all under None; without those bound later."""
    bound_later: dict[Label | None, tuple[Pod, ...]] = field(default_factory=dict)
    """The pods that ``bind`` added, likewise: few, while ``by_label`` has tuples of all pods."""
    repelling: dict[Label | None, dict[PodTerm, tuple[Pod, ...]]] = field(default_factory=dict)
    """The terms of required anti-affinities, by a label that they demand of the pods that they
    repel, each with the pods that have it. Inner maps are never changed in place.
    """
    unsearched: tuple[Pod, ...] = ()
    """Pods with so many terms that they are not searched, sorted."""
    generation: int = 0
    """Grows with every change."""
    lowest: dict[str, tuple[tuple[Pod, ...], int]] = field(default_factory=dict)
    """Pods of a node with their lowest priority, as when it was asked; shared by all copies."""

    @classmethod
    def of(
        cls, nodes: Iterable[Node], pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]
    ) -> SchedulerSnapshot:
        """Return the state of these nodes and pods; affinity ignores pods on unknown nodes."""
        bound_pods = list(pods)
        unsized = {pod.node for pod in bound_pods if not pod.sized}
        known = (
            replace(node, allocatable=None) if node.name in unsized else node for node in nodes
        )
        state = cls({node.name: node for node in known}, namespaces)
        by_node: dict[str, list[Pod]] = {}
        by_label: dict[Label | None, list[Pod]] = {}
        repelling: dict[Label | None, dict[PodTerm, list[Pod]]] = {}
        unsearched: list[Pod] = []
        for pod in bound_pods:
            by_node.setdefault(pod.node, []).append(pod)
            for label in labels_of(pod):
                by_label.setdefault(label, []).append(pod)
            for label_or_none, term in _repelled(pod):
                repelling.setdefault(label_or_none, {}).setdefault(term, []).append(pod)
            if pod.unsearched is not None:
                unsearched.append(pod)
        for node, bound in by_node.items():
            total = {PODS: len(bound)}
            for pod in bound:
                add(total, pod.requests)
            state.used[node] = total
        state.pods = {node: tuple(bound) for node, bound in by_node.items()}
        state.by_label = {label: tuple(some) for label, some in by_label.items()}
        state.repelling = {
            label: {term: tuple(some) for term, some in terms.items()}
            for label, terms in repelling.items()
        }
        state.unsearched = tuple(sorted(unsearched, key=lambda pod: pod.full_name))
        return state

    def fork(self) -> SchedulerSnapshot:
        """Return a copy that can be changed without changing this one."""
        return SchedulerSnapshot(
            self.nodes,
            self.namespaces,
            dict(self.used),
            dict(self.pods),
            dict(self.by_label),
            dict(self.bound_later),
            dict(self.repelling),
            self.unsearched,
            self.generation,
            self.lowest,
        )

    def without_nodes(self, lost: Container[str]) -> SchedulerSnapshot:
        """Return the state without these nodes and the pods on them.

        It is not for placements: ``fork`` it first. Indexes still hold the pods of these nodes,
        which count nowhere.
        """
        return SchedulerSnapshot(
            {name: node for name, node in self.nodes.items() if name not in lost},
            self.namespaces,
            {name: used for name, used in self.used.items() if name not in lost},
            {name: some for name, some in self.pods.items() if name not in lost},
            self.by_label,
            self.bound_later,
            self.repelling,
            tuple(pod for pod in self.unsearched if pod.node not in lost),
            self.generation,
            self.lowest,
        )

    def bind(self, pod: Pod) -> None:
        """Add a pod to the node that it names."""
        self.generation += 1
        used = dict(self.used.get(pod.node, {PODS: 0}))
        add(used, {PODS: 1, **pod.requests})
        self.used[pod.node] = used
        self.pods[pod.node] = (*self.pods.get(pod.node, ()), pod)
        for label in labels_of(pod):
            self.bound_later[label] = (*self.bound_later.get(label, ()), pod)
        for label_or_none, term in _repelled(pod):
            terms = self.repelling.get(label_or_none, {})
            self.repelling[label_or_none] = {**terms, term: (*terms.get(term, ()), pod)}
        if pod.unsearched is not None:
            self.unsearched = tuple(
                sorted((*self.unsearched, pod), key=lambda each: each.full_name)
            )

    def unbind(self, pod: Pod) -> None:
        """Remove a pod from its node."""
        self.generation += 1
        used = dict(self.used[pod.node])
        add(used, {name: -value for name, value in {PODS: 1, **pod.requests}.items()})
        self.used[pod.node] = used
        self.pods[pod.node] = _without(self.pods[pod.node], pod)
        later = any(each is pod for each in self.bound_later.get(None, ()))
        index = self.bound_later if later else self.by_label
        for label in labels_of(pod):
            index[label] = _without(index.get(label, ()), pod)
        for label_or_none, term in _repelled(pod):
            terms = self.repelling.get(label_or_none, {})
            self.repelling[label_or_none] = {**terms, term: _without(terms.get(term, ()), pod)}
        if pod.unsearched is not None:
            self.unsearched = _without(self.unsearched, pod)

    def all_pods(self) -> Iterator[Pod]:
        """Yield every pod that is bound to some node."""
        for bound in self.pods.values():
            yield from bound

    def lowest_priority(self, default: int) -> int:
        """Return the lowest priority of all pods.

        Copies look only at the nodes on which they differ.
        """
        return min(
            (self._lowest_on(node, bound) for node, bound in self.pods.items() if bound),
            default=default,
        )

    def _lowest_on(self, node: str, bound: tuple[Pod, ...]) -> int:
        known = self.lowest.get(node)
        if known is None or known[0] is not bound:
            known = self.lowest[node] = bound, min(pod.priority for pod in bound)
        return known[1]

    def selected(self, selector: Selector) -> Iterator[Pod]:
        """Yield the pods that may match a selector: all of those that do, and perhaps others."""
        for label in anchors(selector):
            yield from self.by_label.get(label, ())
            yield from self.bound_later.get(label, ())

    def comparisons(self, pod: Pod) -> int:
        """Return how many pods and terms decide where other pods let the pod go."""
        selecting = [label for each in pod.pod_selectors for label in anchors(each)]
        own = sum(
            len(pods.get(label, ()))
            for pods in (self.by_label, self.bound_later)
            for label in selecting
        )
        return own + sum(len(self.repelling.get(label, ())) for label in labels_of(pod))

    def free(self, node: Node) -> dict[str, int]:
        """Return what is left of the node's allocatable resources;
        negative where too much is requested.
        """
        used = self.used.get(node.name, {})
        return {name: value - used.get(name, 0) for name, value in (node.allocatable or {}).items()}

    def left_of(self, resource: str) -> dict[str, int]:
        """Return what is left of one resource on each node; 0 where the node has none of it."""
        return {
            name: node.allocatable[resource] - self.used.get(name, _NONE).get(resource, 0)
            if node.allocatable and resource in node.allocatable
            else 0
            for name, node in self.nodes.items()
        }


_NONE: Final[Mapping[str, int]] = {}


def labels_of(pod: Pod) -> Iterator[Label | None]:
    """Yield everything under which a term that selects the pod may be indexed."""
    yield None
    for key, value in pod.labels.items():
        yield key, value
        yield key, None


def _repelled(pod: Pod) -> Iterator[tuple[Label | None, PodTerm]]:
    for term in pod.anti_affinity:
        if term.selector is not None:
            for label in anchors(term.selector):
                yield label, term


def _without(pods: tuple[Pod, ...], gone: Pod) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod is not gone)
