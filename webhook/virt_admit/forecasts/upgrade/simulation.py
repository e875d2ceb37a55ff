"""The simulation: nodes are cordoned, emptied and rebooted, while KubeVirt's queue moves their VMs.

A discrete-event simulation with an event queue of its own: the events are six, their order must be
the same for the same input, and a process per VM (as simpy has) would cost memory for 10,000 VMs
without making the code shorter. Source of the queue:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#handleTargetPodCreation,
#handleMigrationBackoff, #handlePendingPodTimeout; drain/evacuation/evacuation.go#sync.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from virt_admit.forecasts.upgrade.outcomes import MAX_EVENTS, Migration, Outcome
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.forecasts.upgrade.scoring import Targets
from virt_admit.model.kubevirt.settings.parallel_migrations import MigrationLimits
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import MEMORY

UNSCHEDULABLE: Final = 300
"""Seconds that a target pod may stay unschedulable
(migration.go#defaultUnschedulablePendingTimeoutSeconds)."""
BACKOFF: Final = 20
"""Seconds before the second attempt, doubled for each further one."""
MAX_DOUBLINGS: Final = 4
"""Only the last five migrations of a VM are kept, so no more failures count
(#garbageCollectFinalizedMigrations)."""
RECHECK: Final = 5
"""Seconds between two looks at a migration that waits for a free place (#handleTargetPodCreation),
and between two attempts of ``kubectl drain`` to evict a pod (k8s.io/kubectl/pkg/drain/drain.go).
Both begin with the cordon."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A migration at the beginning."""

    seconds: int
    """When it ends, its unschedulable target pod is given up, or the next attempt may begin."""
    target: str = ""
    """The node that has its target pod; empty: none."""
    holds_place: bool = True
    """Whether it counts among the running ones."""


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM at the beginning, and what a drain of its node does to it."""

    name: str
    """``namespace/name``."""
    node: str
    pod: Pod
    migrates: bool
    stays_off: bool
    blocked: str
    """Why the drain of its node never completes because of it; empty: it moves."""
    seconds: int
    """How long one move takes in this run."""
    under_way: UnderWay | None = None
    """The migration that has begun already."""
    ready: int = 0
    """When its volumes are rebuilt, so that it can migrate."""
    attached: bool = False
    """Whether a volume of it is attached to its node."""


@dataclass(frozen=True, slots=True)
class World:
    """What a simulation starts from."""

    scheduler: FilterPipeline
    pools: tuple[Pool, ...]
    vms: tuple[Vm, ...]
    limits: MigrationLimits
    reboot: int
    """Seconds for the update and reboot of one node."""
    stuck: Mapping[str, str] = field(default_factory=dict)
    """Nodes that other pods keep from becoming empty, each with the reason."""
    begun: Mapping[str, int | None] = field(default_factory=dict)
    """Nodes whose update is under way: the seconds until they are back; None:
    they are still drained.
    """
    favourable: bool = True
    """How chance decides: which VM KubeVirt moves first, when it looks at its queue, and which of
    equal nodes kube-scheduler chooses. True: as it is best for the roll-out. False: as it is worst.
    """
    closed: frozenset[str] = frozenset()
    """Nodes that take no VM before their update ends."""
    seed: int | None = None
    """The seed with which chance decides by itself,
    where ``favourable`` would decide on an order or a node.
    """
    deadlines: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Seconds after which the drain of a node ends that is drained now, and those for which the
    node then stays while volumes are attached, before it is deleted with the VMs that are left.
    """


def simulate(world: World, progress: Callable[[int], None] = lambda _: None) -> Outcome:
    """Run a roll-out to its end, or until nothing can go on."""
    return _Run(world, progress).run()


class _Run:
    def __init__(self, world: World, progress: Callable[[int], None]) -> None:
        self.world, self.progress = world, progress
        self.outcome = Outcome()
        self.now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._chance = None if world.seed is None else Random(world.seed)  # noqa: S311 - no secret
        self._pool_of = {node: pool.name for pool in world.pools for node in pool.to_do}
        pods, to_do = [vm.pod for vm in world.vms], self._pool_of.keys()
        self._targets = Targets(
            world.scheduler, pods, to_do, favourable=world.favourable, chance=self._chance
        )
        for node in world.closed:
            self._targets.close(node)
        self._pending = {pool.name: deque(pool.nodes) for pool in world.pools}
        self._busy = dict.fromkeys(self._pending, 0)
        self._on_node: dict[str, dict[str, Vm]] = {}
        for vm in world.vms:
            self._on_node.setdefault(vm.node, {})[vm.name] = vm
        self._queues: dict[str, deque[Vm]] = {}
        self._running = 0
        self._outbound: dict[str, int] = {}
        self._inbound: Counter[str] = Counter()
        """Migrations under way to each node. A drain waits for them,
        because virt-api refuses to evict a target pod.
        """
        self._waiting: dict[str, Vm] = {}
        """VMs whose target pod exists and is unschedulable; each holds one of the places."""
        self._paused: dict[str, Vm] = {}
        """VMs whose migration failed and is repeated later."""
        self._failures: dict[str, int] = {}
        self._rechecks: set[str] = set()
        """Nodes whose next look at their queue is an event."""
        self._moving: set[str] = set()
        """VMs whose migration had begun at the beginning and has not ended."""
        self._due: set[str] = set()
        """Nodes that are drained until a time-out, so that nothing there stops the roll-out."""
        self._off: dict[str, tuple[Vm, int]] = {}
        """VMs that were shut down or lost and have no room to start again, and since when."""
        self._at_work = 0
        """Moves, restarts and reboots under way: while there is one, something may still change."""

    def run(self) -> Outcome:
        self._resume_migrations()
        self._resume_nodes()
        self._retry_waiting()  # a node may have come back just now
        self._start_nodes()
        self._start_moves()
        for count in itertools.count(1):
            if not self._events or self._is_stuck():
                break
            if count > MAX_EVENTS:
                self.outcome.exhausted = True
                break
            self.now, _, act = heapq.heappop(self._events)
            act()
            self._retry_waiting()
            self._start_nodes()
            self._start_moves()
        self.outcome.off = frozenset(self._off)
        return self.outcome

    def _after(self, seconds: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), act))

    # --- what is under way at the beginning

    def _resume_migrations(self) -> None:
        for vm in self.world.vms:
            if vm.under_way is not None and not vm.blocked:
                self._moving.add(vm.name)
                self._resume(vm, vm.under_way)

    def _resume(self, vm: Vm, move: UnderWay) -> None:
        if not move.holds_place:
            self._paused[vm.name] = vm
            self._after(move.seconds, lambda: self._again(vm))
            return
        self._running += 1
        self._outbound[vm.node] = self._outbound.get(vm.node, 0) + 1
        if move.target:  # the scheduler counts its target pod already
            self._at_work += 1
            self._inbound[move.target] += 1
            self._after(move.seconds, lambda: self._migrated(vm, move.target, 0))
        else:
            self._waiting[vm.name] = vm
            self._after(move.seconds, lambda: self._timed_out(vm))

    def _resume_nodes(self) -> None:
        for pool in self.world.pools:
            for node in pool.begun:
                self._busy[pool.name] += 1
                left = self.world.begun.get(node)
                if left is None:
                    if node in self.world.deadlines:
                        self._due.add(node)
                        end = self.world.deadlines[node][0]
                        self._after(end, lambda node=node: self._drain_over(node))  # type: ignore[misc]
                    self._start_node(node)
                else:
                    self.outcome.started[node] = 0
                    self._targets.close(node)
                    self._at_work += 1
                    self._after(left, lambda node=node: self._updated(node))  # type: ignore[misc]

    # --- nodes

    def _start_nodes(self) -> None:
        for pool in self.world.pools:
            while pool.obstacle is None and self._may_begin(pool):
                self._busy[pool.name] += 1
                self._start_node(self._pending[pool.name].popleft())

    def _may_begin(self, pool: Pool) -> bool:
        """Return whether the next node of a pool has a place. One that is updated alone has all."""
        pending, busy = self._pending[pool.name], self._busy[pool.name]
        if not pending or busy >= pool.capacity:
            return False
        started, ended = self.outcome.started.keys(), self.outcome.ended.keys()
        return not busy or not (pending[0] in pool.alone or pool.alone & (started - ended))

    def _start_node(self, node: str) -> None:
        self.outcome.started[node] = self.now
        self._targets.close(node)
        queue: deque[Vm] = deque()
        for vm in self._in_order(node):
            if vm.name in self._moving:
                continue
            if vm.blocked:
                if node not in self._due:
                    self.outcome.stops.setdefault(node, f"{vm.name}: {vm.blocked}")
            elif vm.migrates:
                queue.append(vm)
            else:
                self._at_work += 1
                self._after(vm.seconds, lambda vm=vm: self._restarted(vm))  # type: ignore[misc]
        if node in self.world.stuck and node not in self._due:
            self.outcome.stops.setdefault(node, self.world.stuck[node])
        self._queues[node] = queue
        self._finish_if_empty(node)

    def _in_order(self, node: str) -> Sequence[Vm]:
        """Return the VMs of a node in the order in which they move: the largest first, or last,
        or by chance.
        """
        own = list(self._on_node.get(node, {}).values())
        if self._chance is not None:
            return self._chance.sample(own, len(own))
        return sorted(
            own, key=lambda vm: vm.pod.requests.get(MEMORY, 0), reverse=self.world.favourable
        )

    def _finish_if_empty(self, node: str) -> None:
        if node not in self._queues or node in self.outcome.stops:
            return
        if node in self._due and node in self.world.stuck:
            return  # its other pods keep it until the time-out
        if not self._on_node.get(node) and not self._inbound[node]:
            del self._queues[node]
            self._due.discard(node)
            self._at_work += 1
            self._after(self._until_recheck(node) + self.world.reboot, lambda: self._updated(node))

    def _drain_over(self, node: str) -> None:
        """The drain of a node has lasted too long: it is deleted once no volume is attached."""
        left = self._on_node.get(node, {}).values()
        wait = self.world.deadlines[node][1] if any(vm.attached for vm in left) else 0
        self._after(wait, lambda: self._deleted(node))

    def _deleted(self, node: str) -> None:
        """A node is deleted: VMs that are not on their way are lost, and start elsewhere."""
        if node not in self._due:
            return
        self._due.discard(node)
        idle = [*self._waiting.values(), *self._paused.values()]
        blocked = [vm for vm in self._on_node.get(node, {}).values() if vm.blocked]
        for vm in [*self._queues.pop(node), *(vm for vm in idle if vm.node == node), *blocked]:
            self._lose(vm)
        self._at_work += 1
        self._after(self.world.reboot, lambda: self._updated(node))

    def _lose(self, vm: Vm) -> None:
        self.outcome.lost[vm.name] = vm.node, vm.blocked or self._no_room(vm)
        if self._waiting.pop(vm.name, None) is not None:
            self._release(vm)
        self._paused.pop(vm.name, None)
        self._moving.discard(vm.name)
        self._targets.leave(vm.pod, vm.node)
        del self._on_node[vm.node][vm.name]
        if not vm.stays_off:
            self._start(vm, self.now)

    def _updated(self, node: str) -> None:
        self._at_work -= 1
        self.outcome.ended[node] = self.now
        self._busy[self._pool_of[node]] -= 1
        self._targets.open(node)
        self._start_those_off()
        self.progress(len(self.outcome.ended))

    # --- VMs

    def _restarted(self, vm: Vm) -> None:
        """A VM was shut down, and starts again if its run strategy says so, on a node with room."""
        self._at_work -= 1
        self._targets.leave(vm.pod, vm.node)
        del self._on_node[vm.node][vm.name]
        if not vm.stays_off:
            self._start(vm, self.now)
        self._finish_if_empty(vm.node)

    def _start(self, vm: Vm, since: int) -> None:
        """Start a VM that is off since some second on a node that has room, if one has."""
        self._off[vm.name] = vm, since
        if target := self._targets.choose(vm.pod):
            del self._off[vm.name]
            self.outcome.start(vm.name, self.now - since)
            self._arrive(vm, target)

    def _start_those_off(self) -> None:
        for vm, since in list(self._off.values()):
            self._start(vm, since)

    def _arrive(self, vm: Vm, target: str) -> None:
        self._targets.enter(vm.pod, target)
        self._on_node.setdefault(target, {})[vm.name] = replace(vm, node=target)
        if target in self._queues:  # it was cordoned meanwhile
            self._queues[target].append(self._on_node[target][vm.name])

    def _until_recheck(self, node: str) -> int:
        """Return the seconds until the drain of a node and its pending migrations are looked at
        again.
        """
        return (self.outcome.started[node] - self.now) % RECHECK

    def _recheck_later(self, node: str, seconds: int) -> None:
        if node not in self._rechecks:
            self._rechecks.add(node)
            self._after(seconds, lambda: self._rechecks.discard(node))

    def _has_place(self, node: str) -> bool:
        limits = self.world.limits
        return self._running < limits.cluster and self._outbound.get(node, 0) < limits.node

    def _start_moves(self) -> None:
        """Create target pods while there are places: node by node,
        or in turns if chance is not favourable.
        """
        turns = deque(
            self._queues
            if self._chance is None
            else self._chance.sample([*self._queues], len(self._queues))
        )
        while turns:
            node = turns.popleft()
            if not self._may_start(node):
                continue
            self._create_target(self._queues[node].popleft())
            if self._chance is not None:
                turns.insert(self._chance.randint(0, len(turns)), node)
            elif self.world.favourable:
                turns.appendleft(node)
            else:
                turns.append(node)
                # also the next free place is another node's first
                self._queues[node] = self._queues.pop(node)

    def _may_start(self, node: str) -> bool:
        if not self._queues[node] or not self._has_place(node):
            return False
        wait = 0 if self.world.favourable else self._until_recheck(node)
        if wait:
            self._recheck_later(node, wait)
        return not wait

    def _create_target(self, vm: Vm) -> None:
        self._running += 1
        self._outbound[vm.node] = self._outbound.get(vm.node, 0) + 1
        if not self._try(vm):
            self.outcome.crowded = True
            self._waiting[vm.name] = vm
            self._after(UNSCHEDULABLE, lambda: self._timed_out(vm))

    def _try(self, vm: Vm) -> bool:
        """Start the migration if some node takes the target pod."""
        target = self._targets.choose(vm.pod)
        if not target:
            return False
        self._at_work += 1
        self._inbound[target] += 1
        # the target pod counts from now on, the source pod still does
        self._targets.enter(vm.pod, target)
        start = self.now
        wait = max(vm.ready - self.now, 0)
        self._after(wait + vm.seconds, lambda: self._migrated(vm, target, start))
        return True

    def _migrated(self, vm: Vm, target: str, start: int) -> None:
        self._at_work -= 1
        self._inbound[target] -= 1
        self.outcome.migrations.append(Migration(vm.name, vm.node, target, start, self.now))
        self._release(vm)
        self._targets.leave(vm.pod, vm.node)
        del self._on_node[vm.node][vm.name]
        self.outcome.moves[vm.name] = self.outcome.moves.get(vm.name, 0) + 1
        self._failures.pop(vm.name, None)
        self._moving.discard(vm.name)
        moved = replace(vm, node=target, under_way=None)
        self._on_node.setdefault(target, {})[vm.name] = moved
        if target in self._queues:
            self._queues[target].append(moved)
        if vm.node not in self._queues:
            self._start_those_off()
        self._finish_if_empty(vm.node)

    def _release(self, vm: Vm) -> None:
        self._running -= 1
        self._outbound[vm.node] -= 1

    def _retry_waiting(self) -> None:
        for vm in list(self._waiting.values()):
            if self._try(vm):
                del self._waiting[vm.name]

    def _timed_out(self, vm: Vm) -> None:
        """The target pod was unschedulable for too long:
        the migration fails and is repeated after a pause.
        """
        if self._waiting.get(vm.name) is not vm:
            return
        del self._waiting[vm.name]
        self._release(vm)
        failures = self._failures[vm.name] = self._failures.get(vm.name, 0) + 1
        self._paused[vm.name] = vm
        self._after(BACKOFF * 2 ** min(failures - 1, MAX_DOUBLINGS), lambda: self._again(vm))

    def _again(self, vm: Vm) -> None:
        if self._paused.get(vm.name) is not vm:
            return  # it was lost meanwhile, and may pause on its next node
        del self._paused[vm.name]
        self._moving.discard(vm.name)
        if vm.node in self._queues:  # else it moved although its node is not drained yet
            self._queues[vm.node].append(vm)

    def _is_stuck(self) -> bool:
        """Return whether nothing is under way that could make room, and no VM finds room as it is.

        Each node with such VMs is a stop then.
        """
        if self._at_work or self._due:
            return False
        rest = [
            *self._waiting.values(),
            *self._paused.values(),
            *(vm for queue in self._queues.values() for vm in queue),
        ]
        if not rest or any(self._targets.choose(vm.pod) for vm in rest):
            return False
        for vm in rest:
            if vm.node not in self.outcome.stops:
                self.outcome.stops[vm.node] = f"{vm.name}: {self._no_room(vm)}"
        return True

    def _no_room(self, vm: Vm) -> str:
        if self._targets.choose(vm.pod):
            return "its migration has not begun by then"
        return f"no other node can take it ({self._targets.why(vm.pod)})"
