"""How much room an object asks for that it does not have yet: a VM that starts or grows,
a pool with more replicas.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import ref

from virt_admit.forecasts.outage import tolerance
from virt_admit.forecasts.outage.failover_room import room as room_of
from virt_admit.forecasts.outage.recent_starts import RecentStart, recent_starts, together
from virt_admit.forecasts.placement import permanent_constraints, quotas
from virt_admit.forecasts.placement.planned_objects import planned
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.int_or_percent import MAX_INT32
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_resources, vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import Taken, VmLedger
from virt_admit.model.scheduler.preemption import HIGHEST
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS, Resources, add
from virt_admit.model.scheduler.room_totals import RoomView

READS: Final[Reads] = union(vm_ledger.READS, permanent_constraints.READS, quotas.READS)

_INSIGNIFICANT: Final = 100
"""A VMI has defaults that its VM lacks. A difference below one part in so many is none."""


@dataclass(frozen=True)
class RoomDemand:
    """The room that an object asks for on top of what it has."""

    requests: Resources
    view: RoomView
    number: int
    """VMs that start. 0: what runs already grows."""
    obj: Object
    cluster: Cluster

    @functools.cached_property
    def returns(self) -> bool:
        """Whether it is certain that its VMs start on another node after the loss of theirs.

        Mostly nothing asks.
        """
        return _returns(self.obj, self.cluster)


def demand(obj: Object, old: Object | None, cluster: Cluster) -> RoomDemand | None:
    """Return the room that an object asks for; None: none, because nothing starts or grows.

    Raises:
        Unseen: the ledger of the cluster or the size of the VM cannot be read.
    """
    if kinds.of(obj) not in (VM, POOL, VMIRS) or not tolerance.may_ask(obj, old):
        return None
    room = room_of(cluster)
    last: _LastDemand | None = room.memo.get(demand)  # the webhook asks again after the rule
    if last is None or not last.is_of(obj, old):
        versions = ref(obj), None if old is None else ref(old)
        last = room.memo[demand] = _LastDemand(*versions, *_demand(obj, old, room.vms, cluster))
    return (
        RoomDemand(last.requests, _view(obj), last.number, obj, cluster) if last.requests else None
    )


class _LastDemand(NamedTuple):
    """What an object of the last review asked for.

    The memo outlives reviews, so it does not keep their objects alive.
    """

    obj: ref[Object]
    old: ref[Object] | None
    requests: Resources
    number: int

    def is_of(self, obj: Object, old: Object | None) -> bool:
        return self.obj() is obj and (
            self.old is None if old is None else self.old is not None and self.old() is old
        )


def _demand(
    obj: Object, old: Object | None, ledger: VmLedger, cluster: Cluster
) -> tuple[Resources, int]:
    asked, number = (_of_vm if kinds.of(obj) is VM else _of_set)(obj, old, ledger, cluster)
    return {resource: amount for resource, amount in asked.items() if amount > 0}, number


def _of_vm(
    obj: Object, old: Object | None, ledger: VmLedger, cluster: Cluster
) -> tuple[Resources, int]:
    namespace = vms.namespace_of(obj)
    starts = _starts(obj)
    if ledger.runs(namespace, obj.name):
        if old is not None:
            return _more(size(obj, cluster), size(old, cluster)), 0
        vmi = cluster.get(VMI, namespace, obj.name)
        new = size(obj, cluster)
        grown = _more(new, size(vmi, cluster)) if vmi is not None else {}
        return {key: value for key, value in grown.items() if value * _INSIGNIFICANT > new[key]}, 0
    if not starts:
        return {}, 0
    if old is not None and _starts(old):
        return _more(size(obj, cluster), size(old, cluster)), 0
    return size(obj, cluster), 1


def _of_set(
    obj: Object, old: Object | None, ledger: VmLedger, cluster: Cluster
) -> tuple[Resources, int]:
    """Return the demand of a pool or replica set.

    Replicas that run without a known old version are not new.
    """
    replicas = _replicas(obj)
    before = _replicas(old) if old is not None else min(replicas, _running_of(obj, ledger))
    each = size(obj, cluster)
    then = size(old, cluster) if old is not None else each
    asked = {key: replicas * value - before * then.get(key, 0) for key, value in each.items()}
    return asked, max(0, replicas - before)


def _replicas(obj: Object) -> int:
    if kinds.of(obj) is POOL and not _starts(obj):
        return 0
    replicas = obj.at("spec", "replicas").integer
    return min(max(0, 1 if replicas is None else replicas), MAX_INT32)


def _running_of(obj: Object, ledger: VmLedger) -> int:
    """Return how many VMIs of a pool or replica set run."""
    return sum(1 for _ in _members(identity(obj), ledger))


def _members(of: tuple[str, str, str], ledger: VmLedger) -> Iterator[str]:
    """Yield the names of the VMIs that run and have a name that a pool or replica set gives
    (pkg/virt-controller/watch/pool/pool.go#indexFromName, replicaset.go: generateName)."""
    kind, namespace, name = of
    suffix = re.compile(r"-\d+" if kind == POOL.kind else r"-?[a-z0-9]{5}")
    for _, vmi in ledger.names(VMI, namespace):
        if vmi.startswith(name) and suffix.fullmatch(vmi, len(name)) is not None:
            yield vmi


def _starts(obj: Object) -> bool:
    return vms.run_strategy(vms.vm_spec(obj)) in tolerance.STARTING


def _returns(obj: Object, cluster: Cluster) -> bool:
    """Return whether it is certain that the VM starts on another node after the loss of its own."""
    if kinds.of(obj) is not VMIRS and vms.run_strategy(vms.vm_spec(obj)) not in (
        "Always",
        "RerunOnFailure",
    ):
        return False
    hosts = permanent_constraints.hosts(expand(obj, cluster), cluster)
    return len(tuple(itertools.islice((host for host in hosts if not host.refusal), 2))) > 1


def _view(obj: Object) -> RoomView:
    spec = vms.vmi_spec(obj).map
    return RoomView(
        tolerant=spec.get("tolerations") is not None,
        highest=HIGHEST if spec.get("priorityClassName") else None,
    )


def size(obj: Object, cluster: Cluster) -> Resources:
    """Return what one launcher pod of an object requests, with ``pods``: 1.

    Raises:
        Unseen: its instance type, or what KubeVirt adds, cannot be read.
    """
    return {**launcher_resources.certain_requests(expand(obj, cluster), cluster), PODS: 1}


def _more(new: Resources, old: Resources) -> Resources:
    return {key: value - old.get(key, 0) for key, value in new.items()}


# --- the objects of one run -----------------------------------------------------------------------


class Run(NamedTuple):
    """What the objects of one run ask for together."""

    ahead: Mapping[tuple[str, str, str], Resources]
    """By kind, namespace and name: what the objects before this one ask for."""
    total: Resources
    demands: tuple[RoomDemand, ...]

    @property
    def number(self) -> int:
        """The VMs that start."""
        return sum(each.number for each in self.demands)

    def that_fit(self, resource: str, room: int) -> int:
        """Return how many VMs, in the order of the run, this much of a resource suffices for."""
        fitting = 0
        for asked in self.demands:
            each = asked.requests.get(resource, 0)
            if each > room:
                return fitting + (room * asked.number // each if asked.number > 1 else 0)
            room, fitting = room - each, fitting + asked.number
        return fitting


def identity(obj: Object) -> tuple[str, str, str]:
    """Return what names an object in a run."""
    return obj.kind, vms.namespace_of(obj), obj.name


@cached
def run(cluster: Cluster) -> Run:
    """Return what the objects that are judged together ask for."""
    ahead: dict[tuple[str, str, str], Resources] = {}
    total: dict[str, int] = {}
    demands: list[RoomDemand] = []
    for obj, asked in _demands(cluster):
        if identity(obj) in ahead:
            continue
        ahead[identity(obj)] = dict(total)
        demands.append(asked)
        add(total, asked.requests)
    return Run(ahead, total, tuple(demands))


def _demands(cluster: Cluster) -> Iterator[tuple[Object, RoomDemand]]:
    for obj, old in cluster.cached(planned):
        try:
            asked = demand(obj, old, cluster)
        except Unseen:
            continue  # it counts as nothing: a shortage is certain without it
        if asked is not None:
            yield obj, asked


# --- what was admitted a moment ago ---------------------------------------------------------------


def remembered(
    obj: Object, old: Object | None, known: RecentStart | None, cluster: Cluster
) -> RecentStart | None:
    """Return what to remember of an object that was admitted; None:
    it asks for nothing that its pods do not show.

    Args:
        obj: a VM, a pool or a replica set.
        old: its version before the update.
        known: what is remembered of it.
        cluster: what is known.

    Raises:
        Unseen: the ledger of the cluster or the size of the VM cannot be read.
    """
    ledger, asked = room_of(cluster).vms, demand(obj, old, cluster)
    if known is not None and not outstanding(known, ledger):
        known = None
    if kinds.of(obj) is not VM:
        return _of_members(obj, known, asked, ledger)
    before = ledger.taken(vms.namespace_of(obj), obj.name)
    # perhaps while its last VMI ends
    turned_on = _starts(obj) and (old is None or not _starts(old))
    # nothing of it is counted elsewhere
    if not before and (known is not None or asked is not None or turned_on):
        return RecentStart(identity(obj), size(obj, cluster), before) if _starts(obj) else None
    if asked is None:
        return known
    first = known.requests if known is not None else {}
    return RecentStart(identity(obj), together(first, [asked.requests]), before)


def _of_members(
    obj: Object, known: RecentStart | None, asked: RoomDemand | None, ledger: VmLedger
) -> RecentStart | None:
    if known is not None and not _replicas(obj):
        return None
    if asked is None or not asked.number:
        return known
    before = sum(
        1 for vmi in _members(identity(obj), ledger) if ledger.taken(vms.namespace_of(obj), vmi)
    )
    left = outstanding(known, ledger) if known is not None else {}
    more = (
        known.number - (before - int(known.before))
        if known is not None and isinstance(known.before, int)
        else 0
    )
    return RecentStart(identity(obj), together(left, [asked.requests]), before, asked.number + more)


def outstanding(start: RecentStart, ledger: VmLedger) -> Resources:
    """Return what an admitted object asks for and its pods do not show yet; empty: nothing."""
    _, namespace, name = start.identity
    if isinstance(start.before, Taken):
        return start.requests if ledger.taken(namespace, name) == start.before else {}
    now = sum(1 for vmi in _members(start.identity, ledger) if ledger.taken(namespace, vmi))
    left = min(start.number, start.number - (now - start.before))
    if left > 0:
        return {key: amount * left // start.number for key, amount in start.requests.items()}
    return {}


def ahead_of(
    obj: Object, old: Object | None, asked: RoomDemand, cluster: Cluster
) -> list[Resources]:
    """Return what objects admitted a moment ago ask for and their pods do not show yet."""
    recent = cluster.cached(recent_starts)
    if not recent:
        return []
    own, ledger = identity(obj), room_of(cluster).vms
    # than it asked for before
    is_more = old is not None and (kinds.of(obj) is not VM or not asked.number)
    found = (outstanding(start, ledger) for start in recent if is_more or start.identity != own)
    return [each for each in found if each]


# --- the field that decides -----------------------------------------------------------------------


def field_of(obj: Object, resource: str, asked: RoomDemand) -> Field:
    """Return the field that makes the VM ask for a resource, else the one that starts it."""
    domain = vms.vmi_spec(obj)["domain"]
    if asked.number > 1 or kinds.of(obj) is VMIRS or (kinds.of(obj) is POOL and asked.number):
        return obj.at("spec", "replicas")
    for found in _fields(domain, resource):
        if found.present:
            return found
    spec = vms.vm_spec(obj)
    return spec["running"] if spec["running"].present else spec["runStrategy"]


def _fields(domain: Field, resource: str) -> Iterator[Field]:
    if resource == MEMORY:
        yield from (domain.at("memory", "guest"), domain.at("resources", "requests", "memory"))
    elif resource == CPU:
        yield from (
            domain.at("resources", "requests", "cpu"),
            domain.at("cpu", "sockets"),
            domain.at("cpu", "cores"),
        )
    else:
        for kind in ("gpus", "hostDevices"):
            for device in domain.at("devices", kind).items():
                if device["deviceName"].text == resource:
                    yield device["deviceName"]
