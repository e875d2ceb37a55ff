"""The simulation of a roll-out: limits, time-outs, room that appears later, stops, determinism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.upstream.migration_cases import node
from virt_admit.forecasts.placement.candidates import scheduler
from virt_admit.forecasts.upgrade import savings, simulation
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.rollouts import Obstacle, Pool
from virt_admit.forecasts.upgrade.simulation import UNSCHEDULABLE, Vm, World, simulate
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.parallel_migrations import MigrationLimits
from virt_admit.model.scheduler.pods import Pod

GIB = 2**30


def vm(name: str, where: str, gib: int = 1, seconds: int = 40, **fields: object) -> Vm:
    pod = Pod(namespace="shop", name=name, requests={"cpu": 100, "memory": gib * GIB})
    usual = Vm(
        f"shop/{name}", where, pod, migrates=True, stays_off=False, blocked="", seconds=seconds
    )
    return replace(usual, **fields)  # type: ignore[arg-type]


def world(
    vms: list[Vm],
    nodes: str = "abc",
    *,
    cluster: int = 5,
    outbound: int = 2,
    gib: int = 32,
    at_once: int = 1,
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


def test_a_migration_waits_until_its_volumes_are_rebuilt() -> None:
    outcome = simulate(world([vm("slow", "a", ready=100), vm("other", "a")]))

    assert outcome.ended["a"] == 100 + 40


def test_the_limit_of_the_cluster_binds() -> None:
    vms = [vm(f"{name}{number}", name) for name in "ab" for number in range(3)]

    outcome = simulate(world(vms, "abcd", cluster=3, outbound=2, at_once=2))

    assert most_at_once(outcome) == 3


@pytest.mark.parametrize(("favourable", "second"), [(True, (6, 12)), (False, (10, 16))])
def test_a_free_place_is_taken_when_kubevirt_looks_at_its_queue_again(
    favourable: bool, second: tuple[int, int]
) -> None:
    given = world([vm("v0", "a", seconds=6), vm("v1", "a", seconds=6)], outbound=1)
    outcome = simulate(replace(given, favourable=favourable))

    assert [(move.start, move.end) for move in outcome.migrations[:2]] == [(0, 6), second]
    assert outcome.ended["a"] == (second[1] + 4) // 5 * 5  # the drain looks every 5 seconds


def test_a_vm_without_room_stops_the_roll_out() -> None:
    outcome = simulate(world([vm("big", "a", 20), vm("other", "b", 20)], "ab"))

    assert list(outcome.stops) == ["a"]
    assert "memory: 8Gi missing on b" in outcome.stops["a"]
    assert outcome.ended == {}


def test_a_drain_waits_for_a_migration_to_its_node() -> None:
    """The VM of a arrives on b after b was cordoned: it moves again, to d, before b is updated."""
    given = world([vm("v0", "a", 10, seconds=100), vm("big", "c", 30)], "abcd")
    pools = (Pool("w", ("a",), 1), Pool("x", ("d", "b"), 1))

    outcome = simulate(replace(given, pools=pools, reboot=50))

    assert [(move.target, move.start) for move in outcome.migrations] == [("b", 0), ("d", 100)]
    assert outcome.started["b"] == 50
    assert outcome.ended["b"] == 100 + 100 + 50


def test_who_goes_first_decides_whether_it_ends() -> None:
    """Two nodes are drained at once, and the third has room for two of their four VMs."""
    vms = [vm(f"{name}{number}", name, 8) for name in "ab" for number in range(2)]
    given = world(vms, "abc", cluster=1, at_once=2, gib=18)

    assert simulate(given).stops == {}
    assert sorted(simulate(replace(given, favourable=False)).stops) == ["a", "b"]


def test_of_equal_nodes_an_updated_one_is_the_better() -> None:
    given = world([vm("v", "b")], "abc")
    moves = {
        luck: sum(simulate(replace(given, favourable=luck)).moves.values())
        for luck in (True, False)
    }

    assert moves == {True: 1, False: 2}


def test_a_node_that_is_done_already_is_as_good_as_an_updated_one() -> None:
    """The pool has the nodes b and c alone: a is done. A VM that goes to c moves once more."""
    given = replace(world([vm("v", "b")], "abc"), pools=(Pool("w", ("b", "c"), 1),))
    moves = {
        luck: sum(simulate(replace(given, favourable=luck)).moves.values())
        for luck in (True, False)
    }

    assert moves == {True: 1, False: 2}


def test_an_unschedulable_target_pod_holds_its_place_for_five_minutes() -> None:
    """The first VM finds no room, and with one place the second one waits for it."""
    vms = [vm("big", "a", 20, 40), vm("small", "a", 1, 40), vm("other", "b", 20, 40)]
    outcome = simulate(world(vms, "ab", cluster=1, outbound=1))

    assert [(move.vm, move.start) for move in outcome.migrations] == [("shop/small", UNSCHEDULABLE)]
    assert list(outcome.stops) == ["a"]


def test_room_that_appears_ends_the_wait() -> None:
    """b is drained at the same time: its VM ends after 100 s on d,
    and b comes back without any VM.
    """
    vms = [vm("big", "a", 20, 40), vm("other", "b", 20, 100), vm("c", "c", 20)]
    given = world(vms, "abcd", cluster=5, outbound=2, gib=32)
    full = replace(given, pools=(Pool("w", ("b",), 1), Pool("x", ("a",), 1)))

    outcome = simulate(full)

    assert [(move.vm, move.start) for move in outcome.migrations] == [
        ("shop/other", 0),
        ("shop/big", 100),
    ]
    assert outcome.stops == {}


@pytest.mark.parametrize(
    ("seconds", "starts"),
    [
        (290, 290),  # the first target pod still waits
        # it failed at 300, and the next one is created after the first pause
        (310, UNSCHEDULABLE + 20),
        (630, UNSCHEDULABLE * 2 + 20 + 40),  # the second failed at 620: the pause is doubled
        (970, UNSCHEDULABLE * 3 + 20 + 40 + 80),
    ],
)
def test_the_pause_after_each_failure_is_doubled(seconds: int, starts: int) -> None:
    """The only other room is on b, which comes back after so many seconds."""
    vms = [vm("big", "a", 20, 40), vm("c", "c", 20, 40)]
    given = world(vms, "abc", cluster=5, outbound=2)
    pools = (Pool("w", ("b",), 1), Pool("x", ("a",), 1))

    outcome = simulate(replace(given, pools=pools, reboot=seconds))

    assert [(move.vm, move.start) for move in outcome.migrations] == [("shop/big", starts)]


@pytest.mark.parametrize("limit", [1, 10**9])
def test_limits_from_one_to_huge(limit: int) -> None:
    outcome = simulate(
        world([vm(f"v{number}", "a") for number in range(8)], cluster=limit, outbound=limit)
    )

    assert most_at_once(outcome, "a") == min(limit, 8)
    assert outcome.ended["a"] == 40 * 8 // min(limit, 8)


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


def test_the_nodes_of_the_control_plane_are_updated_one_by_one_before_the_others() -> None:
    given = world([], "abcd", at_once=2)
    pools = (replace(given.pools[0], alone=frozenset("ab")),)

    outcome = simulate(replace(given, pools=pools, reboot=50))

    assert outcome.started == {"a": 0, "b": 50, "c": 100, "d": 100}


@pytest.mark.parametrize(("gib", "hints"), [(10, ["maxUnavailable"]), (20, [])])
def test_another_node_at_once_is_a_hint_only_if_its_vms_find_room(
    gib: int, hints: list[str]
) -> None:
    """The VMs of two nodes find room on the other two, or that of the second one waits."""
    vms = [vm(name, name, gib) for name in "abc"]
    given = replace(world(vms, "abcd"), reboot=600)

    found = [each.setting for each in savings.faster(given, simulate(given))]

    assert found == hints


def test_a_vm_without_room_elsewhere_starts_when_its_node_is_back() -> None:
    """What is only shut down stops nothing, says the contract."""
    big = vm("big", "a", gib=30, migrates=False)
    other = vm("other", "b", gib=20, migrates=False)
    outcome = simulate(replace(world([big, other], "ab"), reboot=600))

    assert outcome.stops == {}
    assert outcome.ended.keys() == {"a", "b"}
    assert outcome.off == frozenset()
    assert outcome.moves == {"shop/big": 1, "shop/other": 1}
    assert outcome.waited["shop/big"] == 600


def test_a_vm_that_finds_no_room_until_the_end_is_off() -> None:
    big = vm("big", "a", gib=30, migrates=False)
    large = replace(big, pod=replace(big.pod, requests={"cpu": 100, "memory": 40 * GIB}))
    outcome = simulate(world([large], "ab"))

    assert (outcome.stops, outcome.off) == ({}, {"shop/big"})
