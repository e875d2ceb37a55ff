"""Drains that wait for each other: each keeps the only node from which a budget could be satisfied.

A pod that was evicted from a cordoned node finds no other one, so its budget lets no pod of another
cordoned node go, where a pod that was evicted from that one would run. Neither drain ends. Sources:
k8snetworkplumbingwg/sriov-network-operator, pull request 419;
kubernetes/kubernetes:pkg/controller/disruption/disruption.go#countHealthyPods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import evicted_pods, pod_budgets, waiting_pods
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.remediation import node_faults
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import cordoners, node_phases, updaters
from virt_admit.model.node_updates.node_phases import EMPTIED, IN_FLIGHT
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import pods as scheduled_pods

READS: Final[Reads] = union(
    candidates.READS, cordoners.READS, node_faults.READS, waiting_pods.READS
)
_LONGEST: Final = 4
"""More drains than these in one circle are not looked for."""
_MOST: Final = 10
"""Of more pods of one budget that wait, the rest are not placed: that takes time."""


class WaitingLeave(NamedTuple):
    """A pod that may leave its node only after another one runs, and where that would be."""

    node: str
    pod: str
    waits: str
    on: str

    @property
    def words(self) -> str:
        """The same as a clause."""
        return f"pod {self.pod} leaves {self.node} once {self.waits} runs, which needs {self.on}"


class MutualDrains(NamedTuple):
    """Drains that wait for each other."""

    holds: tuple[WaitingLeave, ...]
    """In the order of their nodes; each waits for the next."""
    frees: str
    """The node whose uncordon ends it. Empty: the updates of all of them would cordon it again."""
    who: tuple[str, ...]
    """The nodes with what drains them and since when."""
    remedy: str

    @property
    def reason(self) -> str:
        """Which drains these are and why they do not end."""
        waits = "; ".join(each.words for each in self.holds)
        return f"the drains of {' and '.join(self.who)} hold each other for good: {waits}"


def of_node(name: str, cluster: Cluster) -> MutualDrains | None:
    """Return the drains that a node waits for and that wait for it; None: none are known to."""
    return entry(cluster, _all, name)


def first(nodes: Iterable[str], cluster: Cluster) -> MutualDrains | None:
    """Return the drains of the first of these nodes that others wait for; None: as above."""
    return next(filter(None, (of_node(name, cluster) for name in nodes)), None)


def resolved(
    problem: Problem | None, refusals: Mapping[str, str], cluster: Cluster
) -> Problem | None:
    """Return why nodes take no pod with what opens one, if drains that hold each other keep it
    closed: it does not open by itself.
    """
    cordoned = (name for name, why in sorted(refusals.items()) if why == "cordoned")
    mutual = first(cordoned, cluster)
    if problem is None or mutual is None:
        return problem
    return problem._replace(remedy=mutual.remedy, command="")


def faults(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what is wrong with a node itself. Where drains hold each other, the uncordon that ends
    it is not advised against.
    """
    mutual = of_node(node.name, cluster)
    frees = mutual is not None and mutual.frees == node.name
    yield from node_faults.faults(node, cluster, by_hand=frees)


def _all(cluster: Cluster) -> Mapping[str, MutualDrains]:
    cordoned = [node for node in cluster.known(NODE) if node.at("spec", "unschedulable").boolean]
    if len(cordoned) < 2 or unlisted(cluster, NODE) or unlisted(cluster, POD):
        return {}  # another node may take these pods
    starts: dict[str, Sequence[_Start]] = {}
    holds = {node.name: list(_holds(node, cordoned, starts, cluster)) for node in cordoned}
    found: dict[str, MutualDrains] = {}
    for name in sorted(holds):
        circle = _circle((), name, holds) if name not in found else ()
        if circle:
            drains = _drains(circle, cluster)
            found.update(dict.fromkeys((each.node for each in circle), drains))
    return found


def _circle(
    path: tuple[WaitingLeave, ...], start: str, holds: Mapping[str, Sequence[WaitingLeave]]
) -> tuple[WaitingLeave, ...]:
    """Return the holds that lead from a node back to it; empty: none do."""
    here = path[-1].on if path else start
    for hold in holds.get(here, ()):
        if hold.on == start:
            return (*path, hold)
        goes_on = len(path) + 1 < _LONGEST and all(hold.on != each.node for each in path)
        if goes_on and (found := _circle((*path, hold), start, holds)):
            return found
    return ()


class _Start(NamedTuple):
    """A pod that waits for one cordoned node."""

    pod: str
    home: str


def _holds(
    node: Object, cordoned: Sequence[Object], starts: dict[str, Sequence[_Start]], cluster: Cluster
) -> Iterator[WaitingLeave]:
    """Yield what keeps pods on a node until others run on other cordoned nodes, once for each
    budget.

    Args:
        node: a cordoned node.
        cordoned: all of them.
        starts: what is known of budgets by name, which this completes.
        cluster: the cluster.
    """
    update = updaters.of_nodes(cluster).get(node.name)
    if update is not None and update.phase in EMPTIED:
        return  # its drain has ended
    others, seen = {each.name for each in cordoned if each is not node}, set[str]()
    for pod in entry(cluster, evicted_pods.by_node, node.name) or ():
        leaves = evicted_pods.is_evicted(pod) and not evicted_pods.is_of_vm(pod)
        budgets = pod_budgets.selecting(pod, cluster) if leaves and not pod.deleted else ()
        if len(budgets) != 1 or pod.at("status", "phase").text != "Running":
            continue
        budget = budgets[0].full_name
        if budget not in seen:
            seen.add(budget)
            if budget not in starts:
                starts[budget] = _starts(budgets[0], cluster)
            found = (each for each in starts[budget] if each.home in others)
            yield from (WaitingLeave(node.name, pod.name, each.pod, each.home) for each in found)


def _starts(budget: Object, cluster: Cluster) -> Sequence[_Start]:
    """Return the pods that let a budget allow an eviction once they run, each with the only node
    that takes it.
    """
    if budget.at("status", "disruptionsAllowed").integer != 0:
        return ()
    every = pod_budgets.selected(budget, cluster.known(POD, budget.namespace))
    waiting = [
        each
        for each in every
        if not each.at("spec", "nodeName").text
        and not each.deleted
        and each.at("status", "phase").text == "Pending"
    ]
    if not pod_budgets.suffices(budget, len(waiting)):
        return ()  # other pods of the budget are not ready either
    homes = ((each.name, _homes(each, cluster)) for each in waiting[:_MOST])
    return [_Start(name, only[0]) for name, only in homes if len(only) == 1]


def _homes(pod: Object, cluster: Cluster) -> list[str]:
    """Return the nodes that would take a pod without a node if no node were cordoned; empty: one
    takes it now.
    """
    own, filters = scheduled_pods.read(pod), candidates.scheduler(cluster)
    if any(filters.accepts(own, name) for name in filters.state.nodes):
        return []
    free = waiting_pods.uncordoned(own)
    return [name for name in sorted(filters.state.nodes) if filters.accepts(free, name)]


# --- the way out ----------------------------------------------------------------------------------


def _drains(circle: Sequence[WaitingLeave], cluster: Cluster) -> MutualDrains:
    nodes = [each for hold in circle if (each := find(cluster, NODE, "", hold.node)) is not None]
    nodes.sort(key=lambda node: node.name)
    weakest = min(nodes, key=lambda node: _claim(node, cluster))
    who = tuple(_who(node, cluster) for node in nodes)
    frees, remedy = _way_out(weakest, circle, cluster)
    return MutualDrains(tuple(sorted(circle)), frees, who, remedy)


def _claim(node: Object, cluster: Cluster) -> tuple[int, float]:
    """Return how hard it is to give the drain of a node up; of equal ones the last begun goes
    first.
    """
    since = node_phases.cordoned_since(node)
    return _rank(node.name, cluster), -(since.timestamp() if since is not None else 0)


def _rank(name: str, cluster: Cluster) -> int:
    """Return 3 for a node under update or that is to be deleted, which is cordoned again, 2 for one
    in maintenance, 1 for one that something else cordoned, and 0 for one cordoned by hand.
    """
    node, update = find(cluster, NODE, "", name), updaters.of_nodes(cluster).get(name)
    if node is not None and (
        cordoners.machine_in_deletion(node, cluster) or node_removals.of_node(node, cluster)
    ):
        return 3
    if name in updaters.maintenances(cluster):
        return 2
    if update is not None and update.phase in IN_FLIGHT:
        return 3
    cordon = cordoners.of_node(node, cluster) if node is not None else None
    return int(cordon is not None and not cordon.uncordon)


def _who(node: Object, cluster: Cluster) -> str:
    cordon, since = cordoners.of_node(node, cluster), node_phases.cordoned_since(node)
    age = clock.since(clock.stamp(since), cluster)
    by = cordon.by.partition(", which ")[0] if cordon is not None else "cordoned by hand"
    said = ", ".join(filter(None, (by, clock.duration(age) if age is not None else "")))
    return f"{node.name} ({said})"


def _way_out(node: Object, circle: Sequence[WaitingLeave], cluster: Cluster) -> tuple[str, str]:
    """Return the node that is uncordoned, and what ends the circle."""
    rank, cordon = _rank(node.name, cluster), cordoners.of_node(node, cluster)
    starts = names(dict.fromkeys(hold.waits for hold in circle if hold.on == node.name))
    if rank == 2 and cordon is not None and cordon.remedy:
        return node.name, capital(cordon.remedy)
    if rank == 3:
        return "", f"Add a node that takes pod {starts}, or give one of these drains up."
    return node.name, typed(
        f"Uncordon {node.name} so that pod {starts} starts there, and let it be drained again "
        "later",
        shell("kubectl", "uncordon", argument(node.name)),
    )
