"""How much room the loss of nodes or of a zone leaves for the VMs that start again: the sum of what is free.

Nothing fits where the sum is short, so a shortage is certain. The opposite is not: the free room may be in pieces. The sum
does not change when VMs move, so a migration or a drain never turns a yes into a no.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.outage.tolerance import Tolerance
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand as expand_module
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources, vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import VmLedger
from virt_admit.model.scheduler.ledger import Ledger, NodeSums, Role, Shape, as_requests
from virt_admit.model.scheduler.preemption import HIGHEST
from virt_admit.model.scheduler.resources import PODS

READS: Final = union(vm_ledger.READS, expand_module.READS, launcher_resources.READS, {VMI: ("spec",)})


class RoomLoss(NamedTuple):
    """Nodes that stop at the same moment."""

    nodes: frozenset[str]
    zone: str = ""

    def __str__(self) -> str:
        return f"zone {self.zone}" if self.zone else " and ".join(sorted(self.nodes))


class Weighed(NamedTuple):
    """What a loss takes of the free room: what was free on the nodes, and what their VMs need on others."""

    weight: int
    loss: RoomLoss


class RoomView(NamedTuple):
    """How the room is counted."""

    everything: bool = False
    """Whether pods of other controllers need a new place too."""
    tolerant: bool = False
    """Whether a VM tolerates the taints of nodes that are closed to others."""
    highest: int | None = None
    """The highest priority of a new VM."""


VMS_ALONE: Final = RoomView()


class Amounts(NamedTuple):
    """One resource on one node."""

    free: int
    needs: int
    """What has to find another place after its loss."""


NOT_REPORTED: Final = Amounts(-1, 0)


class _Vms(NamedTuple):
    """What the VMs of a node that return demand."""

    highest: int | None
    tolerant: bool


class _Table(NamedTuple):
    """One resource on all nodes."""

    amounts: Mapping[str, Amounts]
    free: int


@dataclass(frozen=True, eq=False)
class Room:
    """What the nodes with KubeVirt offer and hold."""

    ledger: Ledger
    vms: VmLedger
    computed: Mapping[tuple[str, str], tuple[str, Shape]] = field(default_factory=dict)
    """Node and shape of VMIs that start again and have no pod, by namespace and name."""
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """Results that are remembered as long as the cluster does not change."""

    def open(self, view: RoomView = VMS_ALONE) -> Collection[str]:
        """Return the nodes on which VMs may run, whether or not they are cordoned or Ready at the moment.

        Raises:
            Unseen: one of them does not report what it offers.
        """
        return self.amounts(PODS, view)

    def amounts(self, resource: str, view: RoomView = VMS_ALONE) -> Mapping[str, Amounts]:
        """Return what is free and what needs another place after a loss, by node on which VMs may run.

        Raises:
            Unseen: a node does not report what it offers.
        """
        return self._table(resource, view).amounts

    def free(self, resource: str, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource is free on all nodes together."""
        return self._table(resource, view).free

    def _table(self, resource: str, view: RoomView) -> _Table:
        key = "table", resource, view
        if key not in self.memo:
            effective = self._effective(view)
            amounts = self.ledger.derive(
                ("amounts", resource, effective), lambda name: self._of(name, resource, effective)
            )
            silent = min((name for name, each in amounts.items() if each is NOT_REPORTED), default=None)
            if silent is not None:  # the first by name: the order of nodes depends on what happened before
                raise Unseen(f"status.allocatable of node {silent}")
            self.memo[key] = _Table(amounts, sum(each.free for each in amounts.values()))
        found: _Table = self.memo[key]
        return found

    def _effective(self, view: RoomView) -> RoomView:
        """Return the view with what the VMs of the cluster demand."""
        if "vms" not in self.memo:
            self.memo["vms"] = self.ledger.derive("vms", self._vms_of), self._vms_of("")
        known, starting = self.memo["vms"]
        every = (*known.values(), starting)
        highest = max(
            (each for each in (view.highest, *(vms.highest for vms in every)) if each is not None), default=None
        )
        return view._replace(highest=highest, tolerant=view.tolerant or any(vms.tolerant for vms in every))

    def _vms_of(self, name: str) -> _Vms:
        sums = self.ledger.sums(name)
        return _Vms(sums.highest, sums.tolerant)

    def _of(self, name: str, resource: str, view: RoomView) -> Amounts | None:
        """Return the amounts of a node; None: no VM may run there."""
        node, sums = self.ledger.nodes[name], self.ledger.sums(name)
        if not node.hosts_vms or (node.is_closed and not view.tolerant and Role.RETURNS not in sums.by_role):
            return None
        if node.allocatable is None:
            return NOT_REPORTED
        kept = sums.of(resource) - _preemptible(sums, resource, view)
        needs = sums.by_role.get(Role.RETURNS, {}).get(resource, 0)
        if view.everything:
            needs += sums.by_role.get(Role.CONTROLLED, {}).get(resource, 0)
        return Amounts(max(0, node.allocatable.get(resource, 0) - kept), needs)

    def pending(self, resource: str) -> int:
        """Return what VMs that start at the moment ask for and no node holds yet."""
        return self.ledger.sums("").by_role.get(Role.RETURNS, {}).get(resource, 0)

    def losses(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> Sequence[Weighed]:
        """Return the losses that the cluster must survive, the heaviest first. None if nothing would be left.

        Of several nodes or zones at once only the heaviest ones are tried.
        """
        key = "losses", resource, tolerance, view
        if key not in self.memo:
            weights, nodes = self._weights(resource, view), len(self.amounts(resource, view))
            found = (*_of_nodes(weights, tolerance.nodes, nodes), *self._of_zones(weights, tolerance.zones))
            self.memo[key] = sorted(found, key=lambda each: (-each.weight, sorted(each.loss.nodes)))
        losses: Sequence[Weighed] = self.memo[key]
        return losses

    def _weights(self, resource: str, view: RoomView) -> Mapping[str, int]:
        """Return what the loss of each node takes of the free room."""
        key = "weights", resource, view
        if key not in self.memo:
            nodes, amounts = self.ledger.nodes, self.amounts(resource, view)
            self.memo[key] = {name: each.free + each.needs for name, each in amounts.items() if nodes[name].can_be_lost}
        found: Mapping[str, int] = self.memo[key]
        return found

    def at_most(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return an upper bound of the weight of each loss, which is found faster than the losses."""
        weights = self._weights(resource, view)
        if tolerance.zones:
            return sum(weights.values())
        return max(weights.values(), default=0) * tolerance.nodes

    def _of_zones(self, weights: Mapping[str, int], number: int) -> Iterator[Weighed]:
        zones: dict[str, set[str]] = {}
        for name in weights if number else ():
            zones.setdefault(self.ledger.nodes[name].zone, set()).add(name)
        if number < 1 or number >= len(zones) or "" in zones:
            return
        weighed = sorted(((sum(weights[name] for name in names), zone) for zone, names in zones.items()), reverse=True)
        if number == 1:
            for weight, zone in weighed:
                yield Weighed(weight, RoomLoss(frozenset(zones[zone]), zone))
            return
        lost = weighed[:number]
        nodes = frozenset(name for _, zone in lost for name in zones[zone])
        yield Weighed(
            sum(weight for weight, _ in lost), RoomLoss(nodes, " and ".join(sorted(zone for _, zone in lost)))
        )

    def reserve(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource must stay free."""
        offered = sum((self.ledger.nodes[name].allocatable or {}).get(resource, 0) for name in self.open(view))
        return -(-offered * tolerance.reserve // 100)


def _of_nodes(weights: Mapping[str, int], number: int, among: int) -> Iterator[Weighed]:
    if number < 1 or number >= among:
        return
    if number == 1:
        for name, weight in weights.items():
            yield Weighed(weight, RoomLoss(frozenset((name,))))
        return
    heaviest = sorted(weights, key=lambda name: (-weights[name], name))[:number]
    yield Weighed(sum(weights[name] for name in heaviest), RoomLoss(frozenset(heaviest)))


def _preemptible(sums: NodeSums, resource: str, view: RoomView) -> int:
    """Return how much of a resource pods hold that VMs of the highest priority could shut down."""
    if view.highest is None:
        return 0
    return sum(
        amounts.get(resource, 0)
        for priority, by_role in sums.preemptible.items()
        for role, amounts in by_role.items()
        if priority < view.highest and not (view.everything and role is Role.CONTROLLED)
    )


def room(cluster: Cluster) -> Room:
    """Return the room of a cluster.

    Raises:
        Unseen: nodes, pods, VMIs or VMs cannot be read.
    """
    found = cluster.cached(_room)
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def _room(cluster: Cluster) -> Room | Unseen:
    try:
        vms = vm_ledger.of(cluster)
    except Unseen as unseen:
        return unseen
    computed = dict(_computed(vms, cluster))
    ledger = vms.ledger.copy() if computed else vms.ledger
    for node, shape in computed.values():
        ledger.add(node, shape)
    return Room(ledger, vms, {key: each for key, each in computed.items() if each[1].role is Role.RETURNS})


def _computed(vms: VmLedger, cluster: Cluster) -> Iterator[tuple[tuple[str, str], tuple[str, Shape]]]:
    """Yield the VMIs that have no pod, in the size that KubeVirt computes. One whose size cannot be determined counts as
    nothing: a shortage stays certain without it."""
    for namespace, name in vms.without_pod():
        check_time()
        try:
            vmi = cluster.get(VMI, namespace, name)
        except Unseen:
            continue
        given = expand(vmi, cluster) if vmi is not None else None
        if given is not None and not given.unseen:
            requests = as_requests(launcher_resources.pod(given, cluster).requests)
            role = Role.RETURNS if vms.starts_again(namespace, name) else Role.STAYS
            priority = HIGHEST if role is Role.STAYS or given.spec["priorityClassName"].text else 0
            yield (namespace, name), (vms.node_of(namespace, name), Shape(role, requests, priority))
