"""Whether the VMs of lost nodes find a place on what is left at the same time, and what is short.

First fit decreasing over plain pods gives a certain yes without the cost of the filters. Sums and
slots give a certain no. Everything else is a bounded search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.placement import candidates, preemption_effects, start_doubts
from virt_admit.forecasts.placement.candidates import FreshPod, SchedulingTarget
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.packing import Item, Packing, pack, waits_for_others
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import MEMORY, PODS, add, missing, show


class Short(NamedTuple):
    """A resource of which too little is left."""

    resource: str
    amount: int
    """Millicores of CPU, else whole units. What the nodes lack together, or what the largest VM
    lacks on the best one.
    """
    vms: int
    """The least number of VMs that find no place."""


class ReturningVm(NamedTuple):
    """A VM that its run strategy starts again, and its pod."""

    vmi: Object
    fresh: FreshPod


@dataclass(frozen=True, slots=True)
class RoomLeft:
    """What becomes of the VMs that start again."""

    fits: bool | None
    """Whether all of them, and the other pods that restart, find a place at the same time."""
    placed: Mapping[str, str]
    """The node of each pod, by ``namespace/name`` of the pod, if ``fits``."""
    nowhere: Mapping[str, str]
    """Why certainly no node takes a VM now, by the name of its pod."""
    safe: frozenset[str]
    """Pods that find a place whatever starts first."""
    short: tuple[Short, ...]
    because: str
    """Why ``fits`` is not true."""
    unseen: tuple[str, ...] = ()


def room(vms: Sequence[ReturningVm], loss: Loss) -> RoomLeft:
    """Return whether the VMs of a loss find a place, next to the other pods that restart."""
    if not vms:
        return RoomLeft(True, {}, {}, frozenset(), (), "")
    found = _quickly([*(vm.fresh for vm in vms), *(_plain(pod) for pod in loss.others)], loss)
    if found is not None:
        return RoomLeft(True, found, {}, frozenset(found), (), "")
    return _as_far_as_read(_Search(vms, loss).result(), vms, loss)


def _as_far_as_read(found: RoomLeft, vms: Sequence[ReturningVm], loss: Loss) -> RoomLeft:
    """Return an answer without what it could not know: the size of a VM,
    or the nodes that its namespace allows.

    A no stays where the VMs that were read find no place without the others.
    """
    unseen = dict.fromkeys(what for vm in vms for what in vm.fresh.unseen)
    if not unseen or found.fits is None:
        return found
    read = [vm for vm in vms if not vm.fresh.unseen]
    if found.fits is False and read and _Search(read, loss).result().fits is False:
        return found
    because = "whether all VMs find a place cannot be determined"
    unknown = tuple(dict.fromkeys((*found.unseen, *unseen)))
    return replace(found, fits=None, safe=frozenset(), short=(), because=because, unseen=unknown)


def _plain(pod: Pod) -> FreshPod:
    return FreshPod(pod, (), sized=True, plain=True)


# --- certain yes ----------------------------------------------------------------------------------


def _quickly(fresh: Sequence[FreshPod], loss: Loss) -> dict[str, str] | None:
    """Return a node for each pod by first fit decreasing; None: not found,
    or more than labels and room decides.
    """
    filters = loss.scheduler
    if filters.unseen or not filters.complete:
        return None
    if any(each.unseen or not each.plain or not filters.is_simple(each.pod) for each in fresh):
        return None
    free: dict[str, dict[str, int]] = {}
    placed: dict[str, str] = {}
    begin: dict[tuple[object, ...], int] = {}
    accepting: dict[tuple[object, ...], tuple[str, ...]] = {}
    for each in sorted(fresh, key=lambda one: _weight(one.pod, filters), reverse=True):
        pod = each.pod
        needed = {name: value for name, value in {PODS: 1, **pod.requests}.items() if value > 0}
        nodes = filters.accepting(pod)
        shape = (nodes if len(nodes) < _FEW else id(nodes), *sorted(needed.items()))
        accepting.setdefault(shape, nodes)  # keeps the tuple alive, so that its id stays its own
        for index in range(begin.get(shape, 0), len(nodes)):
            left = free.get(nodes[index])
            if left is None:
                left = free[nodes[index]] = filters.state.free(filters.state.nodes[nodes[index]])
            if all(left.get(name, 0) >= value for name, value in needed.items()):
                for name, value in needed.items():
                    left[name] -= value
                placed[pod.full_name] = nodes[index]
                begin[shape] = index
                break
        else:
            return None
    return placed


_FEW = 8
"""Nodes up to which a set of nodes is compared by its names."""


def _weight(pod: Pod, filters: FilterPipeline) -> tuple[float, str]:
    """Return the largest share of a node's resource that the pod requests."""
    node = next((node for node in filters.state.nodes.values() if node.allocatable), None)
    offered = (node.allocatable or {}) if node is not None else {}
    shares = (value / offered[name] for name, value in pod.requests.items() if offered.get(name))
    return max(shares, default=0.0), pod.full_name


# --- all answers ----------------------------------------------------------------------------------


class _Search:
    """The room after a loss where first fit decreasing did not answer."""

    def __init__(self, vms: Sequence[ReturningVm], loss: Loss) -> None:
        self.loss = loss
        self.filters = loss.scheduler
        self.targets = {vm.fresh.pod.full_name: target(vm, loss) for vm in vms}
        self.names = {vm.fresh.pod.full_name: vm.vmi.full_name for vm in vms}
        self.items = [_item(target) for target in self.targets.values()]
        self.unseen = tuple(
            dict.fromkeys(what for each in self.targets.values() for what in _unseen(each, loss))
        )

    def result(self) -> RoomLeft:
        nowhere = {name: why for name, each in self.targets.items() if (why := self._nowhere(each))}
        alone = fits(self.items, self.loss)
        if alone.fits is False:
            rest = [item for item in self.items if item.pod.full_name not in nowhere]
            safe = self._first(rest)
            because = self._largest(nowhere) or "not all VMs find a place at the same time"
            return RoomLeft(False, {}, nowhere, safe, self._short(nowhere), because, self.unseen)
        if alone.fits is None:
            because = "whether all VMs find a place cannot be determined"
            if alone.preempting:
                because = "VMs find a place only if kube-scheduler preempts pods of lower priority"
            because = self._preempting() or because
            return RoomLeft(
                None, {}, nowhere, self._apart(self.items, ()), (), because, self.unseen
            )
        return self._with_others(alone, nowhere)

    def _preempting(self) -> str:
        """Return which VM has a place only after preemption, and whom that shuts down; empty:
        none.
        """
        for name, found in self.targets.items():
            problem = preemption_effects.problem(found, self.loss.cluster, self.loss.preemption)
            if problem is not None:
                return f"{self.names[name]}: {problem.reason}"
        return ""

    def _with_others(self, alone: Packing, nowhere: Mapping[str, str]) -> RoomLeft:
        lowest = min((item.pod.priority for item in self.items), default=0)
        highest = max((item.pod.priority for item in self.items), default=0)
        meek = any(item.pod.never_preempts for item in self.items)
        rivals = [pod for pod in self.loss.others if meek or pod.priority >= lowest]
        others = [_of_pod(pod, self.loss) for pod in rivals]
        # a pod that has no place is not a rival: it takes no room
        others = [item for item in others if item.nodes or item.uncertain]
        together = fits([*self.items, *others], self.loss)
        if together.fits:
            return RoomLeft(
                True, together.placed, nowhere, frozenset(together.placed), (), "", self.unseen
            )
        unread = dict.fromkeys(what for pod in rivals for what in self.filters.unread_links(pod))
        if together.fits is None and unread:
            because = (
                "whether other pods keep each other off depends on what could not be read: "
                f"{names(unread)}"
            )
            unseen = (*self.unseen, *unread)
            return RoomLeft(
                None, alone.placed, nowhere, self._apart(self.items, others), (), because, unseen
            )
        first = [item for item in others if item.pod.priority > highest]
        if first and fits(first, self.loss).fits and self._never([*self.items, *first]):
            because = "pods of higher priority restart first and take the room"
            return RoomLeft(
                False, {}, nowhere, self._apart(self.items, others), self._short({}, first), because
            )
        because = (
            f"the VMs alone find a place, but {len(others)} other pods restart too: room depends "
            "on who starts first"
        )
        return RoomLeft(
            None, alone.placed, nowhere, self._apart(self.items, others), (), because, self.unseen
        )

    def _never(self, items: Sequence[Item]) -> bool:
        """Return whether pods certainly find no place together, and can preempt none that runs."""
        if self.loss.preemption.outranks_running(item.pod for item in items):
            return False
        return _packed(items, self.loss).fits is False

    def _nowhere(self, found: SchedulingTarget) -> str:
        """Return why certainly no node takes a pod, alone; empty: one does, others may open one,
        or it is unknown.
        """
        pod = found.pod
        if found.placement.certain != () or ((pod.affinity or pod.spread) and len(self.items) > 1):
            return ""
        return (
            start_doubts.best_refusal(found, self.filters, self.loss.cluster)
            or "no node that is left runs KubeVirt"
        )

    def _first(self, items: Sequence[Item]) -> frozenset[str]:
        """Return the pods that certainly find a place although not all do: of the highest
        priorities, or with room for all that could go there.
        """
        safe: frozenset[str] = frozenset()
        for priority in sorted({item.pod.priority for item in items}, reverse=True):
            upper = [item for item in items if item.pod.priority >= priority]
            if not fits(upper, self.loss).fits:
                break
            safe = frozenset(item.pod.full_name for item in upper)
        return safe | self._apart(items, ())

    def _apart(self, items: Sequence[Item], others: Sequence[Item]) -> frozenset[str]:
        """Return the pods for which a node has room even after all others that could go there."""
        every = [*items, *others]
        wanted: dict[str, dict[str, int]] = {}
        for item in every:
            for name in item.nodes:
                add(wanted.setdefault(name, {}), {PODS: 1, **item.pod.requests})
        if any(item.uncertain for item in every):
            return frozenset()
        free = {name: self.filters.state.free(self.filters.state.nodes[name]) for name in wanted}
        roomy = {name for name, total in wanted.items() if not any(missing(total, free[name]))}
        return frozenset(
            item.pod.full_name
            for item in items
            if self.filters.is_simple(item.pod) and not roomy.isdisjoint(item.nodes)
        )

    def _largest(self, nowhere: Mapping[str, str]) -> str:
        """Return the largest VM without a node, and why; empty: each of them has one."""
        if not nowhere:
            return ""
        sizes = {name: self.targets[name].pod.requests.get(MEMORY, 0) for name in nowhere}
        name = max(nowhere, key=lambda each: (sizes[each], each))
        return f"{self.names[name]} ({show(MEMORY, sizes[name])}): {nowhere[name]}"

    def _short(self, nowhere: Mapping[str, str], more: Sequence[Item] = ()) -> tuple[Short, ...]:
        return shortage([*self.items, *more], self.loss, least=max(1, len(nowhere)))


def is_bound(vm: ReturningVm, loss: Loss) -> bool | None:
    """Return whether no node that is left can ever run a VM; None: that is not known.

    Capacity, cordons and readiness pass; a disk of a lost node, a selector or a device that others
    lack does not.
    """
    fresh = vm.fresh
    pod = fresh.pod if fresh.sized else replace(fresh.pod, requests={})
    runs = loss.scheduler.ever(pod, "", SCHEDULABLE)
    if runs is None and loss.scheduler.complete and loss.scheduler.claim_fault(pod):
        return False  # it passes when the claim is repaired
    if runs is None or (runs and (fresh.unseen or not fresh.sized)):
        return None
    return not runs


def target(vm: ReturningVm, loss: Loss) -> SchedulingTarget:
    """Return where the fresh pod of a VM could go after the loss."""
    return candidates.target(vm.vmi, loss.cluster, moves=False, preemptor=loss.preemption)


def _unseen(found: SchedulingTarget, loss: Loss) -> Iterable[str]:
    yield from found.placement.unseen
    if not found.placement.is_certain and not found.placement.unseen:
        yield from (f"room on node {name}" for name in found.placement.undetermined)
        if not loss.scheduler.complete:
            yield "the nodes of the cluster"


def _item(found: SchedulingTarget) -> Item:
    place = found.placement
    return Item(found.pod, place.candidates, uncertain=not place.is_certain, gone=found.gone)


def _of_pod(pod: Pod, loss: Loss) -> Item:
    placement = loss.scheduler.place(pod)
    return Item(pod, placement.candidates, uncertain=not placement.is_certain)


def fits(items: Sequence[Item], loss: Loss) -> Packing:
    """Return whether pods find a place at the same time.

    None also where preemption may make room.
    """
    packed = _packed(items, loss)
    if packed.fits is False and loss.preemption.may_fit(items):
        return replace(packed, fits=None, preempting=True)
    return packed


def _packed(items: Sequence[Item], loss: Loss) -> Packing:
    plain = all(not item.uncertain for item in items)
    quick = _quickly([_plain(item.pod) for item in items], loss) if plain else None
    if quick is not None:
        return Packing(True, quick)
    own = [item for item in items if not waits_for_others(item.pod)]  # others open no node to these
    if plain and bounds_say_no(own, loss.scheduler):
        return Packing(False, {})
    return pack(items, loss.scheduler)


def bounds_say_no(items: Sequence[Item], filters: FilterPipeline) -> bool:
    """Return whether sums or slots prove that pods find no place at the same time."""
    return any(short.vms for short in _bounds(items, filters))


def _bounds(items: Sequence[Item], filters: FilterPipeline) -> Iterable[Short]:
    """Yield for each resource what the nodes lack together, and the least pods without a place."""
    reach = sorted({name for item in items for name in item.nodes})
    if any(filters.state.nodes[name].allocatable is None for name in reach):
        return
    free = [filters.state.free(filters.state.nodes[name]) for name in reach]
    for resource in sorted({name for item in items for name in (PODS, *item.pod.requests)}):
        wanted = sorted(value for item in items if (value := _amount(item, resource)) > 0)
        rooms = [max(0, each.get(resource, 0)) for each in free]
        lack = sum(wanted) - sum(rooms)
        waiting = max(_over_sum(wanted, sum(rooms)), _over_slots(wanted, rooms))
        if waiting:
            yield Short(resource, max(lack, 0), waiting)


def _amount(item: Item, resource: str) -> int:
    return 1 if resource == PODS else item.pod.requests.get(resource, 0)


def _over_sum(wanted: Sequence[int], free: int) -> int:
    """Return how many of these sizes certainly do not fit into so much room, the smallest first."""
    fitting = 0
    for value in wanted:
        free -= value
        if free < 0:
            break
        fitting += 1
    return len(wanted) - fitting


def _over_slots(wanted: Sequence[int], rooms: Sequence[int]) -> int:
    """Return how many certainly find no place because single nodes are too small for them."""
    most = 0
    for size in sorted(set(wanted)):
        places = sum(room // size for room in rooms)
        most = max(most, sum(value >= size for value in wanted) - places)
    return most


def shortage(items: Sequence[Item], loss: Loss, least: int) -> tuple[Short, ...]:
    """Return what is short for pods that do not fit: what nodes lack together,
    else what the largest pod lacks.

    ``least``: the number of pods that certainly find no place, whatever the bounds say.
    """
    hosts = [
        name for name, node in loss.scheduler.state.nodes.items() if SCHEDULABLE in node.labels
    ]
    found = {short.resource: short for short in _bounds(_on(items, hosts), loss.scheduler)}
    for item in items:
        for resource, amount in _least_missing(item, loss.scheduler, hosts):
            known = found.get(resource, Short(resource, 0, 0))
            if not known.amount or not item.nodes:
                found[resource] = known._replace(amount=max(known.amount, amount))
    return tuple(
        short._replace(vms=max(short.vms, least))
        for _, short in sorted(found.items())
        if short.amount or short.vms
    )


def _on(items: Sequence[Item], hosts: Sequence[str]) -> list[Item]:
    """Return the items with the nodes that labels leave them, full or not."""
    return [item if item.nodes else replace(item, nodes=tuple(hosts)) for item in items]


def _least_missing(
    item: Item, filters: FilterPipeline, hosts: Sequence[str]
) -> list[tuple[str, int]]:
    """Return what a pod without a node lacks on the node that lacks least."""
    if item.nodes:
        return []
    needed = {PODS: 1, **item.pod.requests}
    nodes = (filters.state.nodes[name] for name in filters.accepting(item.pod) if name in hosts)
    free = (filters.state.free(node) for node in nodes if node.allocatable is not None)
    lacks = (lack for each in free if (lack := list(missing(needed, each))))
    return min(lacks, key=lambda lack: (len(lack), lack[0][1]), default=[])
