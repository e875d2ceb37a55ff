"""How much room the loss of nodes or of a zone leaves for the VMs that start again: the sum of what is free.

Nothing fits where the sum is short, so a shortage is certain. The opposite is not: the free room may be in pieces. The sum
does not change when VMs move, so a migration or a drain never turns a yes into a no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand as expand_module
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources, vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import VmLedger
from virt_admit.model.scheduler.ledger import Ledger, NodeSums, Role, Shape, as_requests
from virt_admit.model.scheduler.preemption import HIGHEST

READS: Final = union(vm_ledger.READS, expand_module.READS, launcher_resources.READS, {VMI: ("spec",)})


@dataclass(frozen=True)
class Tolerance:
    """Which losses the cluster must survive. The strictest one counts."""

    nodes: int = 1
    zones: int = 0
    reserve: int = field(default=0, metadata={"unit": "percent"})
    """Percent of what the nodes offer that must stay free."""


ONE_NODE: Final = Tolerance()


class Loss(NamedTuple):
    """Nodes that stop at the same moment."""

    nodes: frozenset[str]
    zone: str = ""

    def __str__(self) -> str:
        return f"zone {self.zone}" if self.zone else " and ".join(sorted(self.nodes))


class Weighed(NamedTuple):
    """What a loss takes of the free room: what was free on the nodes, and what their VMs need on others."""

    weight: int
    loss: Loss


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


@dataclass(frozen=True, eq=False)
class Room:
    """What the nodes with KubeVirt offer and hold."""

    ledger: Ledger
    vms: VmLedger
    computed: Mapping[tuple[str, str], tuple[str, Shape]] = field(default_factory=dict)
    """Node and shape of VMIs that start again and have no pod, by namespace and name."""
    worst: dict[Any, Any] = field(default_factory=dict)
    """Results that are remembered as long as the room does not change."""
    _amounts: dict[tuple[str, RoomView], Mapping[str, Amounts]] = field(default_factory=dict)

    def open(self, view: RoomView = VMS_ALONE) -> list[str]:
        """Return the nodes on which VMs may run, whether or not they are cordoned or Ready at the moment."""
        tolerant = view.tolerant or any(self.ledger.sums(name).tolerant for name in ("", *self.ledger.nodes))
        return [
            name
            for name, node in self.ledger.nodes.items()
            if node.hosts_vms and (tolerant or not node.is_closed or Role.RETURNS in self.ledger.sums(name).by_role)
        ]

    def amounts(self, resource: str, view: RoomView = VMS_ALONE) -> Mapping[str, Amounts]:
        """Return what is free and what needs another place after a loss, by node on which VMs may run.

        Raises:
            Unseen: a node does not report what it offers.
        """
        key = resource, view
        if key not in self._amounts:
            self._amounts[key] = {name: self._of(name, resource, view) for name in self.open(view)}
        return self._amounts[key]

    def _of(self, name: str, resource: str, view: RoomView) -> Amounts:
        offered = self.ledger.nodes[name].allocatable
        if offered is None:
            raise Unseen(f"status.allocatable of node {name}")
        sums = self.ledger.sums(name)
        kept = sums.of(resource) - _preemptible(sums, resource, self._highest(view), view)
        needs = sums.by_role.get(Role.RETURNS, {}).get(resource, 0)
        if view.everything:
            needs += sums.by_role.get(Role.CONTROLLED, {}).get(resource, 0)
        return Amounts(max(0, offered.get(resource, 0) - kept), needs)

    def _highest(self, view: RoomView) -> int | None:
        known = [self.ledger.sums(name).highest for name in ("", *self.ledger.nodes)]
        return max((each for each in (*known, view.highest) if each is not None), default=None)

    def free(self, resource: str, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource is free on all nodes together."""
        return sum(each.free for each in self.amounts(resource, view).values())

    def pending(self, resource: str) -> int:
        """Return what VMs that start at the moment ask for and no node holds yet."""
        return self.ledger.sums("").by_role.get(Role.RETURNS, {}).get(resource, 0)

    def losses(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> Iterator[Weighed]:
        """Yield the losses that the cluster must survive, the heaviest first. None if nothing would be left.

        Of several nodes or zones at once only the heaviest ones are tried.
        """
        amounts = self.amounts(resource, view)
        nodes = {name: each.free + each.needs for name, each in amounts.items() if self.ledger.nodes[name].can_be_lost}
        yield from sorted(
            (*_of_nodes(nodes, tolerance.nodes, len(amounts)), *self._of_zones(nodes, tolerance.zones)),
            key=lambda each: (-each.weight, sorted(each.loss.nodes)),
        )

    def _of_zones(self, weights: Mapping[str, int], number: int) -> Iterator[Weighed]:
        zones: dict[str, set[str]] = {}
        for name in weights:
            zones.setdefault(self.ledger.nodes[name].zone, set()).add(name)
        if number < 1 or number >= len(zones) or "" in zones:
            return
        weighed = sorted(((sum(weights[name] for name in names), zone) for zone, names in zones.items()), reverse=True)
        if number == 1:
            for weight, zone in weighed:
                yield Weighed(weight, Loss(frozenset(zones[zone]), zone))
            return
        lost = weighed[:number]
        nodes = frozenset(name for _, zone in lost for name in zones[zone])
        yield Weighed(sum(weight for weight, _ in lost), Loss(nodes, " and ".join(sorted(zone for _, zone in lost))))

    def reserve(self, resource: str, tolerance: Tolerance, view: RoomView = VMS_ALONE) -> int:
        """Return how much of a resource must stay free."""
        offered = sum((self.ledger.nodes[name].allocatable or {}).get(resource, 0) for name in self.open(view))
        return -(-offered * tolerance.reserve // 100)


def _of_nodes(weights: Mapping[str, int], number: int, among: int) -> Iterator[Weighed]:
    if number < 1 or number >= among:
        return
    if number == 1:
        for name, weight in weights.items():
            yield Weighed(weight, Loss(frozenset((name,))))
        return
    heaviest = sorted(weights, key=lambda name: (-weights[name], name))[:number]
    yield Weighed(sum(weights[name] for name in heaviest), Loss(frozenset(heaviest)))


def _preemptible(sums: NodeSums, resource: str, highest: int | None, view: RoomView) -> int:
    """Return how much of a resource pods hold that VMs of the highest priority could shut down."""
    if highest is None:
        return 0
    return sum(
        amounts.get(resource, 0)
        for priority, by_role in sums.preemptible.items()
        for role, amounts in by_role.items()
        if priority < highest and not (view.everything and role is Role.CONTROLLED)
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
