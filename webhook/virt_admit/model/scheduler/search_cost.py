"""How many affinity terms of a pod are searched in a cluster: what the terms of all pods cost
together is bounded.

The cost is counted and not measured, so that the same cluster always gives the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import check_time
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.scheduler.pod_terms import MOST_TERMS
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import Label, anchors, labels_of

_FEW: Final = 3
MOST_COMPARISONS: Final = {MOST_TERMS: 1_000_000, 10: 1_000_000, _FEW: 5_000_000}
"""Comparisons of terms with pods or nodes, if each pod that may move is placed once, by the number
of terms of one pod that are searched. A million takes about a second. Few terms may cost more:
large clusters have them for good reasons.
"""


def most_terms(pods: Sequence[Pod], moving: Sequence[Pod], nodes: int) -> int:
    """Return how many terms of one pod are searched.

    Args:
        pods: all pods that are bound.
        moving: pods for which places are searched.
        nodes: the number of nodes.
    """
    if not any(pod.terms or pod.spread for pod in (*pods, *moving)):
        return MOST_TERMS
    cost = _Cost(pods, moving, nodes)
    return next((most for most, bound in MOST_COMPARISONS.items() if cost.within(most, bound)), 0)


class _Cost:
    def __init__(self, pods: Sequence[Pod], moving: Sequence[Pod], nodes: int) -> None:
        self._pods, self._moving, self._nodes = pods, moving, nodes
        self._all, self._of_moving = _counts(pods), _counts(moving)

    def within(self, most: int, bound: int) -> bool:
        """Return whether the cost without the pods that have more terms is within a bound."""
        for comparisons in self._comparisons(most):
            check_time()
            bound -= comparisons
            if bound < 0:
                return False
        return True

    def _comparisons(self, most: int) -> Iterator[int]:
        for pod in self._moving:
            if len(pod.terms) <= most and len(pod.spread) <= most:
                yield sum(_selected(each, self._all) for each in pod.pod_selectors)
                if len(pod.spread) > _FEW:
                    yield self._nodes * len(pod.spread)
        searched = (pod.anti_affinity for pod in self._pods if len(pod.terms) <= most)
        for term in {term for terms in searched for term in terms}:
            if term.selector is not None:
                yield _selected(term.selector, self._of_moving)


def _counts(pods: Iterable[Pod]) -> Counter[Label | None]:
    return Counter(label for pod in pods for label in labels_of(pod))


def _selected(selector: Selector, counts: Counter[Label | None]) -> int:
    return sum(counts[label] for label in anchors(selector))
