"""How evenly topology spread constraints find the pods that they count.

Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/podtopologyspread/filtering.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.model.kubernetes.cluster import check_time
from virt_admit.model.scheduler.pods import Pod, Spread
from virt_admit.model.scheduler.snapshot import Node, SchedulerSnapshot

SPREAD: Final = "topology spread over "
"""How the refusal begins of a node in a domain that has too many pods."""


@dataclass(frozen=True, slots=True)
class SpreadDomains:
    """The domains of one constraint."""

    constraint: Spread
    counts: Mapping[str, int]
    least: int
    """The number of pods in the emptiest domain."""
    counts_itself: int

    def refuses(self, labels: Mapping[str, Any]) -> bool:
        value = labels.get(self.constraint.topology_key)
        if value is None:
            return True
        return (
            self.counts.get(value, 0) + self.counts_itself - self.least > self.constraint.max_skew
        )


def spread_domains(
    pod: Pod,
    constraint: Spread,
    state: SchedulerSnapshot,
    eligible: Callable[[Node, Spread], bool],
    gone: Container[int],
) -> SpreadDomains:
    """Return how the pods of a cluster are spread over the domains of one constraint of a pod.

    ``eligible``: whether a node counts for a constraint, by the pod's node affinity and
    tolerations. ``gone``: ids of pods that will have ended before the pod is scheduled.
    """
    key, selector = constraint.topology_key, constraint.selector
    counts: Counter[str] = Counter()
    keys = {each.topology_key for each in pod.spread}
    counted: dict[str, str] = {}
    for node in state.nodes.values():
        check_time()
        if keys <= node.labels.keys() and eligible(node, constraint):
            counted[node.name] = node.labels[key]
            counts[node.labels[key]] += 0
    # an empty one counts no pod (common.go#countPodsMatchSelector)
    if selector is not None and selector.requirements:
        for other in state.selected(selector):
            check_time()
            domain = counted.get(other.node)
            if (
                domain is not None
                and other.namespace == pod.namespace
                and not other.terminating
                and id(other) not in gone
                and selector.matches(other.labels)
            ):
                counts[domain] += 1
    least = min(counts.values(), default=2**31 - 1)
    return SpreadDomains(
        constraint,
        counts,
        least=0 if len(counts) < constraint.min_domains else least,
        counts_itself=int(selector is not None and selector.matches(pod.labels)),
    )
