"""Which nodes kube-scheduler would accept for a pod, and why it refuses the others.

``FilterPipeline`` runs the filters of kube-scheduler's default profile. What a node's labels and
taints decide is computed once for all pods that demand the same, because a cluster has thousands of
VMs of few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from virt_admit.model.kubernetes.cluster import Unseen, check_time
from virt_admit.model.scheduler import unread_links
from virt_admit.model.scheduler.inter_pod_affinity import InterPodAffinity, inter_pod_affinity
from virt_admit.model.scheduler.node_labels import counts_for_spread, label_causes
from virt_admit.model.scheduler.pod_placement import ByLabels, Placement
from virt_admit.model.scheduler.pod_terms import MOST_TERMS
from virt_admit.model.scheduler.pods import Pod, Spread
from virt_admit.model.scheduler.resources import PODS, Resources, missing, show
from virt_admit.model.scheduler.room_index import RoomIndex
from virt_admit.model.scheduler.snapshot import Node, SchedulerSnapshot, labels_of
from virt_admit.model.scheduler.topology_spread import SPREAD, SpreadDomains, spread_domains
from virt_admit.model.scheduler.volumes import Claim, Volumes


class _Demand(NamedTuple):
    """What one pod demands, computed before nodes are looked at one by one."""

    pod: Pod
    by_labels: ByLabels
    claims: tuple[Claim, ...]
    fault: str
    affinity: InterPodAffinity
    spread: tuple[SpreadDomains, ...]
    unseen: tuple[str, ...]


@dataclass(slots=True)
class FilterPipeline:
    """The filters over one state of a cluster."""

    state: SchedulerSnapshot
    volumes: Volumes
    unseen: tuple[str, ...] = ()
    """Kinds of which more objects may exist, such as pods: no node certainly accepts a pod."""
    complete: bool = True
    """Whether every node of the cluster is known."""
    most_terms: int = MOST_TERMS
    """Affinity terms of one pod that are searched."""
    unread_namespaces: str = ""
    """Namespaces of which there may be more than are known, so that their labels are not; empty:
    all are known.
    """
    _static: dict[Any, ByLabels] = field(default_factory=dict)
    _reach: dict[Any, frozenset[str]] = field(default_factory=dict)
    """The nodes that cannot reach a volume, by what the volume demands."""
    _room: RoomIndex | None = None
    _last: tuple[_Demand, Sequence[Pod], int] | None = None
    """What ``accepts`` was asked last, with the generation of the state."""
    _limited: bool | None = None
    _before: FilterPipeline | None = None
    """The filters before the cluster lost nodes: what labels decide is derived from theirs."""

    def fork(self, state: SchedulerSnapshot | None = None) -> FilterPipeline:
        """Return the same filters over a copy of the state to try placements on,
        or over other pods on its nodes.
        """
        found = self._over(state or self.state.fork())
        found._static, found._reach = self._static, self._reach
        found._limited, found._before = self.limits_volumes, self._before
        return found

    def without_pods(self, pods: Iterable[Pod]) -> FilterPipeline:
        """Return the filters over the cluster without these pods; the same if there are none."""
        gone = list(pods)
        if not gone:
            return self
        found = self.fork()
        for pod in gone:
            found.state.unbind(pod)
        return found

    def without_nodes(self, lost: Container[str]) -> FilterPipeline:
        """Return the filters over the cluster without these nodes and the pods on them."""
        found = self._over(self.state.without_nodes(lost))
        found._limited, found._before = self.limits_volumes, self
        return found

    def changed(self, names: Container[str], change: Callable[[Node], Node]) -> FilterPipeline:
        """Return the filters over a copy of the cluster in which these nodes are changed."""
        state = self.state.fork()
        nodes = {
            name: change(node) if name in names else node for name, node in state.nodes.items()
        }
        return self._over(replace(state, nodes=nodes))

    def cordoned(self, names: Container[str]) -> FilterPipeline:
        """Return the filters over a copy of the cluster in which these nodes are cordoned."""
        return self.changed(names, lambda node: replace(node, cordoned=True))

    def _over(self, state: SchedulerSnapshot) -> FilterPipeline:
        """Return the filters over another state, without what was computed for this one."""
        return FilterPipeline(
            state, self.volumes, self.unseen, self.complete, self.most_terms, self.unread_namespaces
        )

    def place(self, pod: Pod, without: str = "", gone: Sequence[Pod] = ()) -> Placement:
        """Return the nodes on which the pod would be schedulable, leaving out the node ``without``.

        ``gone``: pods on that node that will have ended before the pod is scheduled.
        """
        demand = self._demand(pod, gone)
        judged: dict[str, str | None] = {}
        for name in self._doubtful(demand):
            check_time()
            if name != without:
                causes, unseen = self._causes(demand, self.state.nodes[name])
                judged[name] = "; ".join(causes) if causes or not unseen else None
        return Placement(
            demand.by_labels,
            without,
            judged,
            demand.unseen,
            self.complete,
            guessed=self._is_guessed(pod),
        )

    def ever(
        self, pod: Pod, without: str, unless: str, refused: Collection[str] = ()
    ) -> bool | None:
        """Return whether another node could run the pod at some time, whatever is cordoned,
        full or down now.

        What never passes by itself: labels, affinity to nodes, lasting taints, volumes of another
        node, and more of a resource than a node has at all. None: that cannot be determined.

        Args:
            pod: the pod to place.
            without: the node that it is on.
            unless: a label that every node for such pods has, whatever its value is now; empty:
                all nodes count.
            refused: further nodes that never run it, for reasons that kube-scheduler does not know.
        """
        claims, fault, unseen = self._claims(pod, ())
        if not self.complete or fault:
            return None
        lasting = replace(
            pod, node_selector={k: v for k, v in pod.node_selector.items() if k != unless}
        )
        left_out = {without, *refused}
        others = (
            node
            for name, node in self.state.nodes.items()
            if name not in left_out and (not unless or unless in node.labels)
        )
        found = any(self._may_run(lasting, claims, node) for node in others)
        # what was not read may forbid more, and never less
        return None if found and unseen else found

    @staticmethod
    def _may_run(pod: Pod, claims: Sequence[Claim], node: Node) -> bool:
        if any(label_causes(pod, node, moment=False)) or any(
            claim.refusal(node.name, node.labels, moment=False) for claim in claims
        ):
            return False
        return node.allocatable is None or not any(
            missing({PODS: 1, **pod.requests}, node.allocatable)
        )

    def _doubtful(self, demand: _Demand) -> Iterable[str]:
        """Return all nodes that may refuse the pod for more than labels and taints."""
        nodes = self.state.nodes
        if demand.fault:
            return nodes
        found: set[str] = set()
        for claim in demand.claims:
            found |= self._out_of_reach(claim)
        if demand.affinity.attracted or demand.spread:
            return nodes
        for domain in (*demand.affinity.repelled_by, *demand.affinity.avoided):
            found.update(self._index.in_domain(domain))
        found |= self._index.short_of(demand.pod.requests)
        found |= self._index.near_limit(demand.claims)
        return found

    def _out_of_reach(self, claim: Claim) -> frozenset[str]:
        if claim.unserved:  # of each volume on its own: a node that has it attached serves it
            unserved = claim.unserved.keys() & self.state.nodes.keys()
            return self._out_of_reach(replace(claim, unserved={})) | unserved
        key = claim.node_affinity, claim.zones, claim.free
        found = self._reach.get(key)
        if found is None:
            if self._before is not None:
                found = self._before._out_of_reach(claim).intersection(self.state.nodes)
            else:
                nodes = self.state.nodes.values()
                found = frozenset(
                    node.name for node in nodes if claim.refusal(node.name, node.labels)
                )
            self._reach[key] = found
        return found

    @property
    def _index(self) -> RoomIndex:
        """The index of the state, made again after pods were bound."""
        if self._room is None or self._room.generation != self.state.generation:
            self._room = RoomIndex(self.state, self.volumes)
        return self._room

    def accepting(self, pod: Pod) -> tuple[str, ...]:
        """Return the nodes that let the pod in by name, labels,
        taints and the reach of its volumes, sorted.
        """
        accepting = self._by_labels(pod).accepting
        claims, fault, _ = self._claims(pod, ())
        refusing: set[str] = set()
        for claim in claims:
            refusing |= self._out_of_reach(claim)
        if fault:
            return ()
        if refusing:
            return tuple(name for name in accepting if name not in refusing)
        return accepting

    def claim_fault(self, pod: Pod) -> str:
        """Return why no node can take a pod now because of its claims: one is lost, say; empty:
        none stops it.
        """
        return self._claims(pod, ())[1]

    def accepts(self, pod: Pod, name: str, gone: Sequence[Pod] = ()) -> bool:
        """Return whether one node certainly takes the pod, next to pods bound meanwhile."""
        last = self._last
        if (
            last is None
            or last[0].pod is not pod
            or last[1] is not gone
            or last[2] != self.state.generation
        ):
            last = self._last = self._demand(pod, gone), gone, self.state.generation
        demand = last[0]
        causes, blind = self._causes(demand, self.state.nodes[name])
        return not (causes or blind or demand.unseen)

    def lacking(self, requests: Resources) -> set[str]:
        """Return the nodes that certainly have less room than requested."""
        return self._index.lacking(requests)

    def refuses(self, pod: Pod, name: str, gone: Sequence[Pod], others: FilterPipeline) -> bool:
        """Return whether one node certainly refuses the pod.

        ``others``: the filters over the pods that count for affinity and topology spread, without
        those ``gone``.
        """
        causes, _ = self._causes(others._demand(pod, gone), self.state.nodes[name])
        return bool(causes)

    def attached(self, name: str, driver: str) -> int:
        """Return how many volumes of a CSI driver the pods of a node use."""
        return len(self._index.attached(name, driver))

    @property
    def limits_volumes(self) -> bool:
        """Whether some node limits the number of volumes, which bound pods do not change."""
        if self._limited is None:
            self._limited = self._index.limited
        return self._limited

    def is_simple(self, pod: Pod) -> bool:
        """Return whether labels and room alone decide where the pod can go, whatever others do."""
        state = self.state
        repelled = any(label in state.repelling for label in labels_of(pod))
        limited = pod.claims and (self.limits_volumes or self._has_exclusive_claim(pod))
        unsearched = next(self.unsearched(pod), None) is not None
        return not (
            pod.affinity or pod.anti_affinity or pod.spread or repelled or limited or unsearched
        )

    def _has_exclusive_claim(self, pod: Pod) -> bool:
        """Return whether one pod alone may use a claim of this pod, or that cannot be read."""
        try:
            return any(self.volumes.claim(pod.namespace, name).exclusive for name in pod.claims)
        except Unseen:
            return True

    def _demand(self, pod: Pod, gone: Sequence[Pod] = ()) -> _Demand:
        claims, fault, unseen = self._claims(pod, gone)
        return _Demand(
            pod,
            self._by_labels(pod),
            claims,
            fault,
            inter_pod_affinity(pod, self.state, frozenset(map(id, gone))),
            self.spread(pod, gone),
            (*self.unseen, *unseen, *self.unsearched(pod, gone), *self.unread_links(pod)),
        )

    def spread(self, pod: Pod, gone: Sequence[Pod] = ()) -> tuple[SpreadDomains, ...]:
        """Return how the pods are spread that the constraints of a pod count."""
        ids = frozenset(map(id, gone))

        def counts(node: Node, constraint: Spread) -> bool:
            return counts_for_spread(pod, node, constraint)

        return tuple(spread_domains(pod, each, self.state, counts, ids) for each in pod.spread)

    def unread_links(self, pod: Pod) -> Iterator[str]:
        """Yield what could not be read of nodes and namespaces although other pods decide by it
        where the pod can go.
        """
        return unread_links.unread_links(
            pod, self.state, complete=self.complete, namespaces=self.unread_namespaces
        )

    def _is_guessed(self, pod: Pod) -> bool:
        """Return whether pods, nodes or namespaces that were not read may open nodes to a pod that
        are closed now.
        """
        if pod.affinity or pod.spread:
            return bool(self.unseen or self.unread_namespaces or not self.complete)
        return bool(self.unread_namespaces) and unread_links.may_be_repelled(pod, self.state)

    def unsearched(self, pod: Pod, gone: Sequence[Pod] = ()) -> Iterator[str]:
        """Yield the affinity that may refuse the pod a place, but has too many terms: its own,
        and one of another pod.
        """
        if pod.unsearched is not None:
            yield pod.unsearched.what
        for other in self.state.unsearched:
            if (
                other.unsearched is not None
                and other.unsearched.may_select(pod.namespace)
                and other not in gone
            ):
                yield other.unsearched.what
                break

    def _causes(self, demand: _Demand, node: Node) -> tuple[list[str], list[str]]:
        """Return why a node refuses the pod, and what could not be read."""
        unseen: list[str] = []
        causes = [
            cause for cause in (demand.by_labels.refusing.get(node.name), demand.fault) if cause
        ]
        causes += self._by_volumes(demand.claims, node, unseen)
        causes += self._by_room(demand.pod.requests, node)
        if node.allocatable is None:
            unseen.append(f"status.allocatable of node {node.name}")
        causes += demand.affinity.refusals(node.labels)
        causes += [
            f"{SPREAD}{each.constraint.topology_key}"
            for each in demand.spread
            if each.refuses(node.labels)
        ]
        return causes, unseen

    # --- labels, names and taints: the same for all pods that demand the same

    def _by_labels(self, pod: Pod) -> ByLabels:
        key = (
            tuple(pod.node_selector.items()),
            pod.node_affinity,
            pod.forbidden_labels,
            repr(pod.tolerations),
            repr(pod.attachment_tolerations),
        )
        found = self._static.get(key)
        if found is None and self._before is not None:
            before, nodes = self._before._by_labels(pod), self.state.nodes
            found = self._static[key] = ByLabels(
                tuple(name for name in before.accepting if name in nodes),
                {name: why for name, why in before.refusing.items() if name in nodes},
            )
        if found is None:
            causes = {}
            for name, node in self.state.nodes.items():
                check_time()
                causes[name] = "; ".join(label_causes(pod, node, moment=True))
            found = ByLabels(
                tuple(sorted(name for name, why in causes.items() if not why)),
                {name: why for name, why in causes.items() if why},
            )
            self._static[key] = found
        return found

    # --- room

    def _by_room(self, requests: Resources, node: Node) -> Sequence[str]:
        if node.allocatable is None:
            return ()
        lacking = sorted(missing({PODS: 1, **requests}, self.state.free(node)))
        # a node may report fewer devices than its pods use: what is missing for this pod is what it
        # asks for
        limit = f"limit of {node.allocatable.get(PODS, 0)} reached, "
        return [
            f"{name}: {limit if name == PODS else ''}"
            f"{show(name, min(lack, requests[name]) if '/' in name else lack)} missing"
            for name, lack in lacking
        ]

    # --- volumes

    def _claims(self, pod: Pod, gone: Sequence[Pod]) -> tuple[tuple[Claim, ...], str, list[str]]:
        """Return the claims of a pod, why they leave no node to it, and what could not be read."""
        claims: list[Claim] = []
        unseen: list[str] = []
        fault = pod.fault
        for name in pod.claims:
            try:
                claim = self.volumes.claim(pod.namespace, name)
            except Unseen as blind:
                unseen.append(blind.what)
                continue
            claims.append(claim)
            fault = fault or claim.fault or self._exclusive(pod, claim, gone)
        return tuple(claims), fault, unseen

    def _exclusive(self, pod: Pod, claim: Claim, gone: Sequence[Pod]) -> str:
        if not claim.exclusive:
            return ""
        for other in self.state.all_pods():
            if self.complete and other.node not in self.state.nodes:
                # kube-scheduler counts the pods of existing nodes
                # (backend/cache/cache.go#updateUsedPVCSet)
                continue
            if (
                other.namespace == pod.namespace
                and claim.name in other.claims
                and other not in gone
            ):
                return f"claim {claim.name} allows one pod, and pod {other.name} uses it"
        return ""

    def _by_volumes(self, claims: Sequence[Claim], node: Node, unseen: list[str]) -> Iterator[str]:
        refusals = (claim.refusal(node.name, node.labels) for claim in claims)
        yield from filter(None, dict.fromkeys(refusals))  # several of one driver share theirs
        if any(claim.driver for claim in claims):
            try:
                yield from self._over_limit(claims, node)
            except Unseen as blind:
                unseen.append(blind.what)

    def _over_limit(self, claims: Sequence[Claim], node: Node) -> Iterator[str]:
        for driver, limit in self.volumes.limits(node.name).items():
            here = self._index.attached(node.name, driver)
            new = {claim.handle for claim in claims if claim.driver == driver} - here
            if new and len(here) + len(new) > limit:
                yield f"volumes of {driver}: {len(here)} of {limit} in use, needs {len(new)}"
            elif new and node.name in self._index.unread:
                raise Unseen(self._index.unread[node.name])
