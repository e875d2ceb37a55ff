"""Which nodes kube-scheduler would accept for a pod, and why it refuses the others.

``Scheduler`` runs the filters of kube-scheduler's default profile. What a node's labels and taints decide is computed
once for all pods that demand the same, because a cluster has thousands of VMs of few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from virt_admit.model.cluster import Unseen
from virt_admit.model.scheduler.neighbours import Neighbours, neighbours
from virt_admit.model.scheduler.pods import Pod, Spread
from virt_admit.model.scheduler.resources import PODS, Resources, missing, show
from virt_admit.model.scheduler.state import Node, State
from virt_admit.model.scheduler.volumes import Claim
from virt_admit.model.scheduling import tolerates

_UNSCHEDULABLE: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_TRANSIENT: Final = ("node.kubernetes.io/", "kubevirt.io/drain", "medik8s.io/")
"""Prefixes of taints that a cordon, a drain or a maintenance puts on a node for a while."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one pod could go. Nodes are judged one by one, as if nothing else moved."""

    candidates: tuple[str, ...]
    """Names of the nodes that kube-scheduler would accept, sorted."""
    refusals: Mapping[str, str]
    """The other nodes, each with all causes."""
    undetermined: tuple[str, ...] = ()
    """Nodes on which nothing is known to be wrong, but not everything could be read."""
    unseen: tuple[str, ...] = ()
    """What could not be read."""
    complete: bool = True
    """Whether every node of the cluster is known."""

    @property
    def certain(self) -> tuple[str, ...] | None:
        """The candidates, or None if some node could not be judged."""
        return None if self.undetermined or not self.complete else self.candidates


@dataclass(frozen=True, slots=True)
class Volumes:
    """How the claims of pods are looked up."""

    claim: Callable[[str, str], Claim]
    """By namespace and name; raises ``Unseen``."""
    limits: Callable[[str], Mapping[str, int]]
    """Attachable volumes of a node by CSI driver; raises ``Unseen``."""


class _Demand(NamedTuple):
    """What one pod demands, computed before nodes are looked at one by one."""

    pod: Pod
    by_labels: Mapping[str, str]
    claims: tuple[Claim, ...]
    fault: str
    neighbours: Neighbours | None
    unseen: tuple[str, ...]


@dataclass(slots=True)
class Scheduler:
    """The filters over one state of a cluster."""

    state: State
    volumes: Volumes
    unseen: tuple[str, ...] = ()
    """Kinds of which there may be more objects than are known, such as pods: no node certainly accepts a pod."""
    complete: bool = True
    """Whether every node of the cluster is known."""
    moment: bool = True
    """Whether cordons, transient taints, readiness, other pods and free capacity count."""
    _static: dict[Any, Mapping[str, str]] = field(default_factory=dict)

    def fork(self) -> Scheduler:
        """Return the same filters over a copy of the state, to try placements on."""
        return Scheduler(self.state.fork(), self.volumes, self.unseen, self.complete, self.moment, self._static)

    def place(self, pod: Pod, without: str = "", gone: Sequence[Pod] = ()) -> Placement:
        """Return the nodes on which the pod would be schedulable, leaving out the node ``without``.

        ``gone``: pods on that node that will have ended before the pod is scheduled.
        """
        demand = self._demand(pod, gone)
        candidates: list[str] = []
        refusals: dict[str, str] = {}
        undetermined: list[str] = []
        unseen = list(demand.unseen)
        for name, node in self.state.nodes.items():
            if name == without:
                continue
            causes, blind = self._causes(demand, node)
            unseen += blind
            if causes:
                refusals[name] = "; ".join(causes)
            elif demand.unseen or blind:
                undetermined.append(name)
            else:
                candidates.append(name)
        return Placement(
            tuple(sorted(candidates)),
            refusals,
            tuple(sorted(undetermined)),
            tuple(dict.fromkeys(unseen)),
            self.complete,
        )

    def accepts(self, pod: Pod, name: str) -> bool:
        """Return whether one node certainly takes the pod, the pods that were bound meanwhile included."""
        demand = self._demand(pod)
        causes, blind = self._causes(demand, self.state.nodes[name])
        return not (causes or blind or demand.unseen)

    def _demand(self, pod: Pod, gone: Sequence[Pod] = ()) -> _Demand:
        claims, fault, unseen = self._claims(pod, gone)
        return _Demand(
            pod,
            self._by_labels(pod),
            claims,
            fault,
            self._neighbours(pod, gone) if self.moment else None,
            (*(self.unseen if self.moment else ()), *unseen),
        )

    def _causes(self, demand: _Demand, node: Node) -> tuple[list[str], list[str]]:
        """Return why a node refuses the pod, and what could not be read."""
        unseen: list[str] = []
        causes = [cause for cause in (demand.by_labels[node.name], demand.fault) if cause]
        causes += self._by_volumes(demand.claims, node, unseen)
        if self.moment:
            causes += self._by_room(demand.pod.requests, node)
            if node.allocatable is None:
                unseen.append(f"status.allocatable of node {node.name}")
            if demand.neighbours is not None:
                causes += demand.neighbours.refusals(node.labels)
        return causes, unseen

    # --- labels, names and taints: the same for all pods that demand the same

    def _by_labels(self, pod: Pod) -> Mapping[str, str]:
        key = (
            tuple(pod.node_selector.items()),
            pod.node_affinity,
            pod.forbidden_labels,
            repr(pod.tolerations),
            self.moment,
        )
        found = self._static.get(key)
        if found is None:
            found = {
                name: "; ".join(label_causes(pod, node, moment=self.moment)) for name, node in self.state.nodes.items()
            }
            self._static[key] = found
        return found

    # --- room

    def _by_room(self, requests: Resources, node: Node) -> Sequence[str]:
        if node.allocatable is None:
            return ()
        lacking = missing({PODS: 1, **requests}, self.state.free(node))
        return [f"{name}: {show(name, lack)} missing" for name, lack in lacking]

    # --- neighbours

    def _neighbours(self, pod: Pod, gone: Sequence[Pod]) -> Neighbours:
        return neighbours(
            pod,
            self.state,
            lambda node, constraint: counts_for_spread(pod, node, constraint, moment=self.moment),
            frozenset(map(id, gone)),
        )

    # --- volumes

    def _claims(self, pod: Pod, gone: Sequence[Pod]) -> tuple[tuple[Claim, ...], str, list[str]]:
        """Return the claims of a pod, why no node can take it because of them, and what could not be read."""
        claims: list[Claim] = []
        unseen: list[str] = []
        fault = ""
        for name in pod.claims:
            try:
                claim = self.volumes.claim(pod.namespace, name)
            except Unseen as blind:
                unseen.append(blind.what)
                continue
            claims.append(claim)
            fault = fault or claim.fault or self._exclusive(pod, claim, gone)
        return tuple(claims), fault if self.moment else "", unseen

    def _exclusive(self, pod: Pod, claim: Claim, gone: Sequence[Pod]) -> str:
        if not claim.exclusive or not self.moment:
            return ""
        for other in self.state.all_pods():
            if other.namespace == pod.namespace and claim.name in other.claims and other not in gone:
                return f"claim {claim.name} allows one pod, and pod {other.name} uses it"
        return ""

    def _by_volumes(self, claims: Sequence[Claim], node: Node, unseen: list[str]) -> Iterator[str]:
        for claim in claims:
            refusal = claim.refusal(node.name, node.labels)
            if refusal:
                yield refusal
        if self.moment and any(claim.driver for claim in claims):
            try:
                yield from self._over_limit(claims, node)
            except Unseen as blind:
                unseen.append(blind.what)

    def _over_limit(self, claims: Sequence[Claim], node: Node) -> Iterator[str]:
        limits = self.volumes.limits(node.name)
        if not limits.keys() & {claim.driver for claim in claims}:
            return
        attached = self._attached(node)
        for driver, limit in limits.items():
            here = {handle for other, handle in attached if other == driver}
            new = {claim.handle for claim in claims if claim.driver == driver} - here
            if new and len(here) + len(new) > limit:
                yield f"volumes of {driver}: {len(here) + len(new) - limit} more than the limit of {limit}"

    def _attached(self, node: Node) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for pod in self.state.pods.get(node.name, ()):
            for name in pod.claims:
                try:
                    claim = self.volumes.claim(pod.namespace, name)
                except Unseen:
                    continue
                if claim.driver:
                    found.add((claim.driver, claim.handle))
        return found


def label_causes(pod: Pod, node: Node, *, moment: bool) -> Iterator[str]:
    """Yield why the node's name, labels and taints keep the pod off, in words."""
    for key, value in pod.node_selector.items():
        if node.labels.get(key) != value:
            yield pod.meanings.get(key) or f"node selector {key}={value}"
    if pod.node_affinity is not None and not pod.node_affinity.matches(node.name, node.labels):
        yield "node affinity"
    for key in pod.forbidden_labels:
        if key in node.labels:
            yield pod.meanings.get(key) or f"label {key}"
    if moment and node.cordoned and not tolerates(pod.tolerations, _UNSCHEDULABLE):
        yield "cordoned"
    if moment and not node.ready:
        yield "not Ready"
    for taint in node.taints:
        if (moment or not is_transient(taint)) and not tolerates(pod.tolerations, taint):
            cordon = node.cordoned and taint.get("key") == _UNSCHEDULABLE["key"]
            if not cordon:
                yield f"taint {taint.get('key')}"


def is_transient(taint: Mapping[str, Any]) -> bool:
    """Return whether a taint goes away by itself or with a drain, so that rules at admission must not count it."""
    return str(taint.get("key") or "").startswith(_TRANSIENT)


def counts_for_spread(pod: Pod, node: Node, constraint: Spread, *, moment: bool) -> bool:
    """Return whether a node is one of those over which a spread constraint counts pods.

    Source: podtopologyspread/common.go#matchNodeInclusionPolicies.
    """
    if constraint.honor_affinity:
        if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
            return False
        if pod.node_affinity is not None and not pod.node_affinity.matches(node.name, node.labels):
            return False
        if any(key in node.labels for key in pod.forbidden_labels):
            return False
    if constraint.honor_taints and moment:
        taints = (*node.taints, *((_UNSCHEDULABLE,) if node.cordoned else ()))
        return all(tolerates(pod.tolerations, taint) for taint in taints)
    return True
