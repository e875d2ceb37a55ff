"""The simulation of a roll-out: limits, time-outs, room that appears later, stops, determinism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.upstream.migration_cases import node
from virt_admit.model.cluster import Snapshot
from virt_admit.model.kubevirt.room import scheduler
from virt_admit.model.objects import Object
from virt_admit.model.rehearsal import simulation
from virt_admit.model.rehearsal.limits import MigrationLimits
from virt_admit.model.rehearsal.rollouts import Obstacle, Pool
from virt_admit.model.rehearsal.simulation import Outcome, Vm, World, simulate
from virt_admit.model.scheduler.pods import Pod

GIB = 2**30


def vm(name: str, where: str, gib: int = 1, seconds: int = 40, **fields: object) -> Vm:
    pod = Pod(namespace="shop", name=name, requests={"cpu": 100, "memory": gib * GIB})
    usual = Vm(f"shop/{name}", where, pod, migrates=True, stays_off=False, blocked="", seconds=seconds)
    return replace(usual, **fields)  # type: ignore[arg-type]


def world(
    vms: list[Vm], nodes: str = "abc", *, cluster: int = 5, outbound: int = 2, gib: int = 32, at_once: int = 1
) -> World:
    found = Snapshot([Object(node(name, gib * 1024, 0)) for name in nodes], complete=["*"])
    placed = scheduler(found)
    for each in vms:
        placed.state.bind(replace(each.pod, node=each.node))
    pools = (Pool("workers", tuple(nodes), at_once),)
    return World(placed, pools, tuple(vms), MigrationLimits(cluster, outbound, "test"), 0)


def most_at_once(outcome: Outcome, source: str = "") -> int:
    moves = [move for move in outcome.migrations if source in ("", move.source)]
    return max(sum(other.start <= move.start < other.end for other in moves) for move in moves)


def test_the_limit_of_a_node_binds() -> None:
    outcome = simulate(world([vm(f"v{number}", "a") for number in range(6)], outbound=2))

    assert most_at_once(outcome, "a") == 2
    assert outcome.ended["a"] == 3 * 40


def test_the_limit_of_the_cluster_binds() -> None:
    vms = [vm(f"{name}{number}", name) for name in "ab" for number in range(3)]

    outcome = simulate(world(vms, "abcd", cluster=3, outbound=2, at_once=2))

    assert most_at_once(outcome) == 3


def test_a_free_place_is_taken_when_kubevirt_looks_at_its_queue_again() -> None:
    outcome = simulate(world([vm("v0", "a", seconds=6), vm("v1", "a", seconds=6)], outbound=1))

    assert [(move.start, move.end) for move in outcome.migrations[:2]] == [(0, 6), (10, 16)]
    assert outcome.ended["a"] == 20


def test_a_vm_without_room_stops_the_roll_out() -> None:
    outcome = simulate(world([vm("big", "a", 20), vm("other", "b", 20)], "ab"))

    assert list(outcome.stops) == ["a"]
    assert "memory missing on b" in outcome.stops["a"]
    assert outcome.ended == {}


def test_one_node_cannot_be_emptied() -> None:
    assert list(simulate(world([vm("v", "a")], "a")).stops) == ["a"]


def test_a_paused_pool_is_not_started() -> None:
    given = world([vm("v", "a")])
    paused = tuple(replace(pool, obstacle=Obstacle("paused", "resume")) for pool in given.pools)

    assert simulate(replace(given, pools=paused)).started == {}


def test_the_bound_in_events_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MAX_EVENTS", 3)

    assert simulate(world([vm(f"v{number}", "a") for number in range(9)])).exhausted


def test_the_same_world_gives_the_same_outcome() -> None:
    vms = [vm(f"{name}{number}", name, 1 + number) for name in "abc" for number in range(4)]

    assert simulate(world(vms, "abcd")) == simulate(world(vms, "abcd"))


def test_forty_seconds_each_for_ten_thousand_moves_take_111_hours() -> None:
    per_node = 20
    outcome = simulate(world([vm(f"v{number}", "a") for number in range(per_node)], outbound=1))

    assert outcome.ended["a"] * (10_000 // per_node) == 10_000 * 40  # 111 hours
