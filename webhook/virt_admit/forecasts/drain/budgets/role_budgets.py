"""Budgets that select only the pods of a workload with a role, such as the primary of a database.

A controller or the pods move such a label from pod to pod, as Patroni does. So more pods do not
help, and the pod can go once another one has the role. The disruption controller counts the pods
that the selector matches:
kubernetes/kubernetes:pkg/controller/disruption/disruption.go#getExpectedPodCount.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import pod_budgets, pod_counts
from virt_admit.forecasts.drain.budgets.operator_eviction import node_of
from virt_admit.forecasts.drain.budgets.pod_counts import PodOwner
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import count

READS: Final[Reads] = union(
    pod_counts.READS,
    {NODE: ("spec.unschedulable",), POD: ("spec.nodeName", "status.phase", *CONDITIONS)},
)
_NAMES: Final = ("apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name")
_REVISIONS: Final = ("controller-revision-hash", "pod-template-hash")
"""During a roll-out the pods of a workload differ in these."""
_LEADING: Final = frozenset(("active", "leader", "main", "master", "primary"))


class PodRole(NamedTuple):
    """The role that a budget demands of the pods of a workload."""

    labels: str
    """As ``role=primary``."""
    pod: Object
    """A pod that has it."""
    others: tuple[Object, ...]
    """The pods of the workload without it."""
    total: int
    """The number of pods of the workload."""
    of_one: bool
    """Whether one pod at a time has it."""
    owner: PodOwner
    moves: bool
    """Whether another pod can take it over: the name of a pod stays."""

    @property
    def words(self) -> str:
        """Return which pods the budget selects."""
        having, of = self.total - len(self.others), f"{count(self.total, 'pod')} of {self.owner}"
        which = f"{self.pod.name} alone has of {of}" if having == 1 else f"{having} of {of} have"
        return f"it selects only {self.labels}, which {which}"

    def next(self, cluster: Cluster) -> Object | None:
        """Return a pod that can take the role over: ready, on another node that is not cordoned."""
        ready = (each for each in self.others if each.is_true("Ready"))
        return next((each for each in ready if self._is_elsewhere(each, cluster)), None)

    def _is_elsewhere(self, other: Object, cluster: Cluster) -> bool:
        node = find(cluster, NODE, "", node_of(other))
        elsewhere = node is not None and node.name != node_of(self.pod)
        return elsewhere and node is not None and not node.at("spec", "unschedulable").boolean


def of_budget(pod: Object, budget: Object, cluster: Cluster) -> PodRole | None:
    """Return the role that a budget demands of a pod; None: it selects all that are known."""
    if pod.controller is None:
        return None
    own = cluster.cached(_by_controller).get((pod.namespace, *_controller(pod)), ())
    selector = selectors.parse(budget.at("spec", "selector").value)
    others = tuple(each for each in own if not selector.matches(each.labels))
    demanded = [each for each in selector.requirements if others and each.key not in _REVISIONS]
    missing = [each for each in demanded if not any(each.matches(other.labels) for other in others)]
    owner = pod_counts.owner(pod, cluster)
    if not missing or owner is None:
        return None
    values = {value for each in missing for value in each.values}
    moves = not any(each.key in _NAMES for each in missing)
    is_single = len(others) > 1 or bool(values & _LEADING) or not moves
    of_one = len(own) - len(others) == 1 and is_single
    labels = ", ".join(sorted(map(str, missing)))
    return PodRole(labels, pod, others, len(own), of_one, owner, moves)


def remedy(pod: Object, budget: Object, cluster: Cluster) -> str:
    """Return what makes a budget allow the eviction of a pod, as a sentence without its end."""
    role = of_budget(pod, budget, cluster)
    if role is None:
        return pod_counts.remedy(budget, pod_counts.owner(pod, cluster))
    if not role.of_one:
        number = pod_budgets.enough(budget)
        more = f"Run at least {number} pods with {role.labels}, or {pod_counts.ONE_AT_A_TIME}"
        return more if number else pod_counts.remedy(budget, role.owner)
    if not role.moves:
        why = "More pods do not help, as it selects one by its name"
        return f"{why}, so let its owner set maxUnavailable: 1"
    return take_over(role, cluster)


def command(pod: Object, budget: Object, cluster: Cluster) -> str:
    """Return the command that runs more pods; empty: that is not the way,
    or something else sets their number.
    """
    if of_budget(pod, budget, cluster) is not None:
        return ""
    return pod_counts.command(budget, pod_counts.owner(pod, cluster), cluster)


def advice(pod: Object, budget: Object, choice: str, cluster: Cluster) -> str:
    """Return ``remedy`` as a sentence, with its command where there is no further ``choice``."""
    words = remedy(pod, budget, cluster)
    told = "" if choice else command(pod, budget, cluster)
    return pod_counts.commanded(words, told) if told else f"{words}{choice}."


def take_over(role: PodRole, cluster: Cluster) -> str:
    """Return that another pod takes the role, as a sentence without its end."""
    over = f"take over {role.labels} (a switch-over)"
    if (other := role.next(cluster)) is not None:
        return f"Let another pod, such as {other.name}, {over}; more pods do not help"
    return f"Get another pod of {role.owner} ready on another node, and let it {over}"


def _by_controller(cluster: Cluster) -> Mapping[tuple[str, ...], list[Object]]:
    """Return the pods that are to stay, by namespace and by kind and name of their controller."""
    staying = (pod for pod in cluster.known(POD) if not pod.deleted and not pod.ended)
    return grouped(staying, lambda pod: (pod.namespace, *_controller(pod)))


def _controller(pod: Object) -> tuple[str, str]:
    owner = pod.controller
    return ("", "") if owner is None else (owner["kind"].text or "", owner["name"].text or "")
