"""The eviction of a pod whose PodDisruptionBudget an operator writes,
and what the operator may answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import evicted_pods, pod_budgets
from virt_admit.model.kubernetes import clock, selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, each, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import Phase, cordoned_since

READS: Final[Reads] = union(
    updaters.READS,
    migrations.READS,
    {
        NODE: ("spec.unschedulable", "spec.taints"),
        PDB: ("metadata.labels", "metadata.ownerReferences", "spec", "status"),
        POD: ("metadata.labels", "spec.nodeName", *CONDITIONS),
        VMI: (
            *("status.phase", "status.nodeName", "status.evacuationNodeName"),
            "status.conditions.lastTransitionTime",
        ),
    },
)


class Way(enum.Enum):
    """What the drain of a node meets at a budget of an operator."""

    GOES = enum.auto()
    """The pod is evicted at once."""
    WAITS = enum.auto()
    """The operator makes way by itself."""
    NOW = enum.auto()
    """Refused by the state of the moment, without a known end."""
    NEVER = enum.auto()
    """Refused until the operator's object is changed."""


class OperatorAnswer(NamedTuple):
    """What an operator does about the eviction of one pod."""

    way: Way
    reason: str = ""
    remedy: str = ""
    """For ``NOW`` and ``NEVER``."""
    awaits: tuple[str, ...] = ()
    """For ``NOW``: the nodes whose return ends it."""
    passes: bool = False
    """Whether these nodes are being rebooted and come back within minutes. For ``WAITS``: whether
    the drain has no part in what is waited for.
    """
    of_pods: bool = False
    """For ``NOW``: whether it lasts until pods of the budget are ready, so that these say why."""


GOES: Final = OperatorAnswer(Way.GOES)


@dataclass(frozen=True, slots=True)
class PodEviction:
    """A pod that a drain evicts, and the budget of an operator that selects it."""

    pod: Object
    budget: Object
    never: str
    """Why the form of the budget can never allow an eviction; empty: it can."""
    cluster: Cluster

    @property
    def node(self) -> str:
        """The node that is drained."""
        return self.pod.at("spec", "nodeName").text or ""

    @property
    def allowed(self) -> int:
        """The number of evictions that the budget allows now;
        a budget without a status allows none.
        """
        return 0 if self.never else self.budget.at("status", "disruptionsAllowed").integer or 0

    @property
    def pods(self) -> Iterator[Object]:
        """The pods in the namespace of the budget. Raises Unseen after those that are known."""
        return self.cluster.list(POD, self.budget.namespace)

    @property
    def selected(self) -> Iterator[Object]:
        """The pods that the budget selects. Raises Unseen after those that are known."""
        return pod_budgets.selected(self.budget, self.pods)


def selected_labels(budget: Object) -> dict[str, str]:
    """Return the labels that the selector of a budget demands.

    Rook selects its OSDs by an expression since 1.19 (rook/rook:pkg/operator/ceph/disruption/
    clusterdisruption/osd.go#createDefaultPDBforOSD).
    """
    selector = budget.at("spec", "selector")
    single = {
        each["key"].text or "": values[0] or ""
        for each in selector["matchExpressions"].items()
        for values in ([item.text for item in each["values"].items()],)
        if each["operator"].text == selectors.IN and len(values) == 1
    }
    return single | dict(selector["matchLabels"].texts)


class Owner(NamedTuple):
    """The object that an owner reference of a budget names."""

    group: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def owners(budget: Object) -> Iterator[Owner]:
    for reference in budget.metadata["ownerReferences"].items():
        group = (reference["apiVersion"].text or "").rpartition("/")[0]
        yield Owner(group, reference["kind"].text or "", reference["name"].text or "")


def owner_of(budget: Object, *groups: str) -> Owner | None:
    """Return the owner of a budget whose API group is one of these or below one of these."""
    return next(
        (
            owner
            for owner in owners(budget)
            for group in groups
            if f".{owner.group}".endswith(f".{group}")
        ),
        None,
    )


def node_of(pod: Object) -> str:
    return pod.at("spec", "nodeName").text or ""


def is_schedulable(node: str, cluster: Cluster) -> bool:
    found = cluster.get(NODE, "", node)
    return found is not None and found.at("spec", "unschedulable").boolean is not True


def cordoned_at(name: str, cluster: Cluster) -> datetime | None:
    """Return when a node was cordoned; None: it is not, or that is not known."""
    node = find(cluster, NODE, "", name)
    return cordoned_since(node) if node is not None else None


_Budget = tuple[str, str]
"""The namespace and the name of a budget."""


def drained_around(budget: Object, cluster: Cluster) -> tuple[datetime, str] | None:
    """Return the node whose drain began first of those that are drained up to a ready pod of a
    budget, and since when; None: no node is known to be drained.

    A cordon alone shows no drain, nor does a node without other pods, which may never have run any.
    """
    return entry(cluster, _drained_around, (budget.namespace, budget.name))


def _drained_around(cluster: Cluster) -> Mapping[_Budget, tuple[datetime, str]]:
    drains = _drains(cluster)
    if not drains or any(unlisted(cluster, kind) for kind in (NODE, POD, PDB, VMI)):
        return {}
    drained, found = drains.keys() - _used(cluster), {}
    for key, places in _nodes_of_budgets(cluster).items() if drained else ():
        if here := places & drained:
            found[key] = min((drains[node], node) for node in here)
    return found


def _drains(cluster: Cluster) -> Mapping[str, datetime]:
    """Return since when cordoned nodes are drained, as far as more than the cordon shows it: what
    drains them, or a VM that was asked to leave since.
    """
    known = cluster.known(NODE)
    closed = {node.name: at for node in known if (at := cordoned_since(node)) is not None}
    found: dict[str, datetime] = {}
    if not closed:
        return found
    for name, update in updaters.of_nodes(cluster).items():
        if name in closed and update.phase is Phase.DRAINING:
            found[name] = max(closed[name], update.since or closed[name])
    for name, text in _departures(cluster):
        at = clock.instant(text)
        if name in closed and at is not None and at >= closed[name]:
            found[name] = min(at, found.get(name, at))
    return found


def _departures(cluster: Cluster) -> Iterator[tuple[str, str | None]]:
    """Yield each node that an eviction moves or has moved a VM away from, and when.

    The state of a VMI does not say who asked for its last migration, and KubeVirt retains the
    migrations that say so, the last five of each VMI
    (kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go#GenerateNewMigration,
    :pkg/virt-controller/watch/migration/migration.go#garbageCollectFinalizedMigrations).
    """
    for migration in cluster.known(VMIM):
        yield migration.annotations.get(migrations.AUTOMATIC[0], ""), migration.created
    for vmi in cluster.known(VMI):
        asked = vmi.condition("EvictionRequested")["lastTransitionTime"].text
        yield vmi.at("status", "evacuationNodeName").text or "", asked


@cached
def _nodes_of_budgets(cluster: Cluster) -> Mapping[_Budget, frozenset[str]]:
    """Return the nodes with ready pods of each budget."""
    found: dict[_Budget, set[str]] = {}
    for pod in cluster.known(POD):
        if node_of(pod) and not pod.ended and pod.is_true("Ready"):
            for budget in pod_budgets.selecting(pod, cluster):
                found.setdefault((budget.namespace, budget.name), set()).add(node_of(pod))
    return {key: frozenset(nodes) for key, nodes in found.items()}


@cached
def _used(cluster: Cluster) -> frozenset[str]:
    """Return the nodes with a VM that is not to leave, or a pod that would be evicted at once: a
    drain has not begun there.
    """
    vms = (node for node, leaves in each(cluster, VMI, _place) if node and not leaves)
    pods = (
        node_of(pod)
        for pod in cluster.known(POD)
        if node_of(pod) and evicted_pods.is_evicted(pod) and not pod.deleted
        if not evicted_pods.is_of_vm(pod)
        if all(map(pod_budgets.allows, pod_budgets.selecting(pod, cluster)))
    )
    return frozenset((*vms, *pods))


def _place(vmi: Object) -> tuple[str, bool]:
    """Return the node of a VMI that has not ended, and whether it is to leave it."""
    status = vmi["status"]
    node = "" if vmi.ended else status["nodeName"].text or ""
    return node, status["evacuationNodeName"].text == node


def not_ready(what: str) -> OperatorAnswer:
    """Return that the budget allows nothing until a pod of it is ready again."""
    reason = f"{what} is not ready, so it allows no disruption now"
    return OperatorAnswer(
        Way.NOW, reason, "Wait until its pods are ready, or repair them.", of_pods=True
    )
