"""The simulation of a roll-out that is under way: migrations, target pods,
back-offs and nodes go on where they are.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import manifest
from tests.cli.test_upgrade import kubevirt, vm
from tests.cli.test_upgrade_progress import (
    AN_HOUR_AGO,
    GROUP,
    NEW,
    NOW,
    OLD,
    cluster,
    config_node,
    done,
    draining,
    rebooting,
    workers,
)
from tests.for_each import for_each
from tests.forecasts.drain import vm_motion
from tests.forecasts.upgrade import test_simulation
from virt_admit.forecasts.upgrade import vm_interruptions
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.forecasts.upgrade.simulation import UnderWay, World, simulate
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.config_pool_updates import CURRENT


def resumed(world: World, begun: dict[str, int | None]) -> World:
    """Return a world in which the update of these nodes is under way."""
    (pool,) = world.pools
    left = tuple(name for name in pool.nodes if name not in begun)
    return replace(world, pools=(replace(pool, nodes=left, begun=tuple(begun)),), begun=begun)


def test_a_migration_that_runs_ends_when_it_was_said_to() -> None:
    moving = test_simulation.vm("v0", "a", under_way=UnderWay(7, "b"))
    outcome = simulate(resumed(test_simulation.world([moving]), {"a": None}))

    assert [(move.vm, move.target, move.end) for move in outcome.migrations][:1] == [
        ("shop/v0", "b", 7)
    ]
    assert outcome.ended["a"] == 10  # the drain looks every 5 seconds


def test_a_target_pod_without_a_node_keeps_its_place_until_it_is_given_up() -> None:
    held = test_simulation.vm("big", "a", 40, under_way=UnderWay(100))
    other = test_simulation.vm("v0", "a")
    outcome = simulate(resumed(test_simulation.world([held, other], outbound=1), {"a": None}))

    assert [(move.vm, move.start) for move in outcome.migrations] == [("shop/v0", 100)]
    assert "memory: 8Gi missing on b" in outcome.stops["a"]


def test_a_target_pod_without_a_node_starts_as_soon_as_a_node_has_room() -> None:
    """kube-scheduler tries it again when a node is uncordoned, not when KubeVirt gives it up."""
    waiting = test_simulation.vm("v0", "a", under_way=UnderWay(240))
    outcome = simulate(resumed(test_simulation.world([waiting]), {"a": None}))

    assert outcome.migrations[0].start == 0


def test_the_old_pod_of_a_vm_that_has_left_makes_room() -> None:
    """It has not ended yet, so that the filters count it."""
    moved = vm_motion.vmi(
        "web", on="a", migrationState={"sourceNode": "b", "completed": True, "endTimestamp": NOW}
    )
    pods = [
        vm_motion.launcher(name, on=node, suffix=node)
        for name, node in (("web", "b"), ("web", "a"), ("db", "a"))
    ]
    for pod, memory in zip(pods, ("200Gi", "1Gi", "100Gi"), strict=True):
        pod.data["spec"]["containers"] = [
            {"name": "compute", "resources": {"requests": {"memory": memory}}}
        ]
    nodes = [config_node("a"), draining("b")]
    for node in nodes:
        node.data["status"]["allocatable"] = dict(vm_motion.ROOM)
    found = rehearse(
        cluster(workers(), kubevirt(), *nodes, moved, vm_motion.vmi("db", on="a"), *pods), Options()
    )

    assert found.stops == ()
    assert found.possible


def test_a_migration_that_failed_waits_until_its_next_attempt() -> None:
    slept = test_simulation.vm("v0", "a", under_way=UnderWay(33, holds_place=False))
    outcome = simulate(resumed(test_simulation.world([slept]), {"a": None}))

    assert outcome.migrations[0].start == 33


def test_a_migration_for_another_reason_takes_a_place_of_the_cluster() -> None:
    moving = test_simulation.vm("moves", "b", under_way=UnderWay(50, "c"))
    outcome = simulate(
        resumed(
            test_simulation.world([moving, test_simulation.vm("v0", "a")], cluster=1), {"a": None}
        )
    )

    assert [(move.vm, move.start) for move in outcome.migrations[:2]] == [
        ("shop/moves", 0),
        ("shop/v0", 50),
    ]


def test_a_node_that_reboots_holds_its_place_until_it_is_back() -> None:
    outcome = simulate(resumed(test_simulation.world([test_simulation.vm("v0", "b")]), {"a": 120}))

    assert outcome.started == {"a": 0, "b": 120, "c": outcome.ended["b"]}
    assert outcome.ended["a"] == 120


def test_an_obstacle_of_the_pool_does_not_stop_the_nodes_that_were_begun() -> None:
    world = resumed(test_simulation.world([]), {"a": 60})
    (pool,) = world.pools
    outcome = simulate(replace(world, pools=(Pool(pool.name, (), 1, begun=pool.begun),)))

    assert outcome.ended == {"a": 60}


@for_each("seed", range(25))
def test_every_node_is_in_one_place_and_only_those_that_are_left_are_updated(seed: int) -> None:
    chance = random.Random(seed)
    make = (
        done,
        config_node,
        config_node,
        draining,
        lambda name: rebooting(chance.randint(1, 15), name),
    )
    nodes = [chance.choice(make)(name) for name in "abcdefgh"[: chance.randint(2, 8)]]
    vms = [vm(f"v{number}", chance.choice(nodes).name) for number in range(chance.randint(0, 6))]
    found = cluster(*nodes, *vms, workers(maxUnavailable=chance.choice((1, 2, "50%"))), kubevirt())
    result = rehearse(found, Options())
    if result.progress is None:
        assert len({node.annotations[CURRENT] for node in nodes}) == 1
        return
    flying = [each.node for each in result.progress.in_flight]
    left = [*flying, *result.progress.next, *result.progress.waiting]

    assert sorted([*result.progress.done, *left]) == sorted(node.name for node in nodes)
    assert {name for wave in result.waves for name in wave.nodes} <= set(left)
    assert rehearse(found, Options()) == result
    if result.possible:
        assert result.duration is not None
        assert {name for wave in result.waves for name in wave.nodes} == set(left)
        assert {name for wave in result.waves if wave.start.low == 0 for name in wave.nodes} >= set(
            flying
        )


def under_migration() -> tuple[Any, Object]:
    """Return a VM that moves from node b to node a since 20 seconds, and its migration."""
    began = "2027-03-01T11:59:40Z"
    moving = vm("db", "b", seconds=40)
    moving[1].data["status"]["migrationState"] = {
        "migrationUid": "m1",
        "startTimestamp": began,
        "sourceNode": "b",
        "targetNode": "a",
    }
    migration = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstanceMigration",
        "m1",
        "shop",
        metadata={"uid": "m1", "creationTimestamp": began},
        spec={"vmiName": "db"},
        status={"phase": "Running"},
    )
    return moving, migration


def test_a_rehearsal_goes_on_where_a_migration_is() -> None:
    moving, migration = under_migration()
    before = migration.data | {
        "metadata": {
            "name": "m0",
            "namespace": "shop",
            "uid": "m0",
            "creationTimestamp": AN_HOUR_AGO,
        },
        "status": {
            "phase": "Succeeded",
            "migrationState": {
                "startTimestamp": AN_HOUR_AGO,
                "endTimestamp": "2027-03-01T11:01:40Z",
                "completed": True,
            },
        },
    }
    objects = [done("a"), draining("b"), moving, migration, Object(before), workers(), kubevirt()]
    now = rehearse(cluster(*objects), Options(node_minutes=0))
    later = rehearse(cluster(*objects, time="2027-03-01T12:00:30Z"), Options(node_minutes=0))

    assert now.possible is later.possible is True
    assert now.duration is not None
    assert later.duration is not None
    assert later.duration.low < now.duration.low
    assert rehearse(cluster(*objects), Options(node_minutes=0, from_start=True)).vms[0].moves >= 1


@pytest.mark.parametrize("copies", [True, False])
def test_the_limit_of_a_copy_of_disks_is_part_of_the_estimate(copies: bool) -> None:
    moving, migration = under_migration()
    status = moving[1].data["status"]
    claims = {"sourcePVCInfo": {"claimName": "old"}, "destinationPVCInfo": {"claimName": "new"}}
    if copies:
        status["migratedVolumes"] = [{"volumeName": "disk"} | claims]
        status["conditions"] = [
            *status.get("conditions", ()),
            {"type": "VolumesChange", "status": "True"},
        ]
    objects = [done("a"), draining("b"), moving, migration, workers(), kubevirt()]
    rests_on = rehearse(cluster(*objects), Options()).rests_on
    named = [each for each in rests_on if each.startswith("the longest run takes the limits of ")]
    assert [each.partition(": ")[2].partition(" until")[0] for each in named] == [
        "shop/db"
    ] * copies


@pytest.mark.parametrize(
    "away",
    [
        draining("a"),
        config_node("a", OLD, NEW, "Working", since="2027-03-01T11:56:00Z"),
        rebooting(4, "a"),
        done("a", drain=f"uncordon-{NEW}", since="2027-03-01T11:58:00Z"),
    ],
    ids=["draining", "updating", "rebooting", "returning"],
)
def test_a_node_that_comes_back_takes_the_vms_of_the_next_one(away: Object) -> None:
    where = "a" if away.annotations.get(f"{GROUP}/desiredDrain", "").startswith("drain-") else "b"
    result = rehearse(
        cluster(away, config_node("b"), vm("db", where), workers(), kubevirt()), Options()
    )

    assert result.possible is True
    assert [name for wave in result.waves for name in wave.nodes] == ["a", "b"]


def test_a_node_that_comes_back_takes_vms_also_in_a_rehearsal_from_the_start() -> None:
    found = cluster(draining("a"), config_node("b"), vm("db", "a"), workers(), kubevirt())

    assert rehearse(found, Options(from_start=True)).possible is True


def test_a_node_that_virt_controller_has_given_up_while_it_reboots_comes_back() -> None:
    away = rebooting(6, "a")
    away.data["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
    away.data["spec"]["taints"].append(
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    )

    assert (
        rehearse(
            cluster(away, config_node("b"), vm("db", "b"), workers(), kubevirt()), Options()
        ).possible
        is True
    )


def test_a_lasting_taint_of_a_node_that_comes_back_stays() -> None:
    away = rebooting(6, "a")
    away.data["spec"]["taints"].append({"key": "gpu", "effect": "NoSchedule"})

    assert (
        rehearse(
            cluster(away, config_node("b"), vm("db", "b"), workers(), kubevirt()), Options()
        ).possible
        is False
    )


def test_a_node_whose_update_failed_takes_no_vms() -> None:
    failing = config_node("a", OLD, NEW, "Degraded", since=AN_HOUR_AGO)
    result = rehearse(
        cluster(failing, config_node("b"), vm("db", "b"), workers(maxUnavailable=2), kubevirt()),
        Options(),
    )

    assert result.possible is False
    assert {stop.node for stop in result.stops} == {"a", "b"}


@pytest.mark.parametrize(("deadline", "end"), [(100, 100), (900, 540)], ids=["soon", "late"])
def test_a_node_that_is_drained_goes_at_the_deadline_of_its_machine(
    deadline: int, end: int
) -> None:
    """A VM that has not begun to move then starts elsewhere. An earlier end counts."""
    moving = test_simulation.vm("v0", "a", under_way=UnderWay(500, "b"))
    waiting = test_simulation.vm("v1", "a")
    begun = resumed(test_simulation.world([moving, waiting], outbound=1), {"a": None})
    outcome = simulate(replace(begun, deadlines={"a": (deadline, 0)}))

    assert outcome.ended["a"] == end + begun.reboot
    assert outcome.lost.keys() == ({"shop/v1"} if deadline == 100 else set())
    assert outcome.moves["shop/v1"] >= 1
    assert not outcome.stops


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"blocked": "budget db"}, "budget db"),
        ({"gib": 30}, "no other node can take it (memory: 28Gi missing on a, "),
        ({"gib": 30, "under_way": UnderWay(70)}, "no other node can take it (memory: 28Gi"),
        ({"gib": 30, "under_way": UnderWay(7000, holds_place=False)}, "no other node can take it"),
    ],
    ids=["blocked", "no room", "waits for its target pod", "waits for its next attempt"],
)
@pytest.mark.parametrize(("attached", "end"), [(False, 100), (True, 160)])
def test_what_stays_on_a_node_until_its_time_outs_is_lost_and_stops_nothing(
    fields: dict[str, Any], why: str, attached: bool, end: int
) -> None:
    stays = test_simulation.vm("v0", "a", **fields, attached=attached)
    full = [test_simulation.vm(f"full-{name}", name, 30, blocked="x") for name in "bc"]
    begun = resumed(test_simulation.world([stays, *full]), {"a": None})
    (pool,) = begun.pools
    alone = replace(begun, pools=(replace(pool, nodes=()),))
    outcome = simulate(replace(alone, deadlines={"a": (100, 60)}))

    assert outcome.ended["a"] == end
    assert not outcome.stops
    assert outcome.lost["shop/v0"][0] == "a"
    assert outcome.lost["shop/v0"][1].startswith(why)
    assert not outcome.off  # it starts on the node that is back
    assert simulate(alone).stops.keys() == {"a"}  # without time-outs


def test_other_pods_keep_a_node_until_its_time_outs() -> None:
    begun = resumed(test_simulation.world([test_simulation.vm("v0", "a")]), {"a": None})
    begun = replace(begun, stuck={"a": "PodDisruptionBudget db allows none"})

    assert simulate(begun).stops.keys() == {"a"}
    outcome = simulate(replace(begun, deadlines={"a": (100, 0)}))
    assert (outcome.ended["a"], outcome.stops, outcome.lost) == (100, {}, {})


def test_the_vms_that_are_lost_at_the_time_out_of_a_drain_are_named() -> None:
    runs = [
        Outcome(lost={"shop/a": ("n1", "no room")}, off=frozenset({"shop/a"})),
        Outcome(lost=dict.fromkeys(("shop/a", "shop/b"), ("n1", "no room"))),
    ]
    assert list(vm_interruptions.lost(runs)) == [
        "Lost with n1 then: shop/a: no room. Make room elsewhere, or shut the guest down before",
        "Perhaps lost with n1 then: shop/b: no room. Make room elsewhere, or shut the guest down "
        "before",
    ]
    (off,) = vm_interruptions.lost(runs[:1])
    assert off.startswith("Lost with n1 then, without room to start again: shop/a: no room.")
    assert not list(vm_interruptions.lost([Outcome()]))


def test_a_vm_that_was_lost_is_not_woken_by_the_pause_before() -> None:
    """It waits again on its next node: from 500 to 520, when the pause on a would have ended."""
    slept = test_simulation.vm("v0", "a", 20, under_way=UnderWay(510, holds_place=False))
    full = [
        test_simulation.vm(f"full-{name}", name, gib, blocked="x")
        for name, gib in (("c", 15), ("d", 25))
    ]
    given = test_simulation.world([slept, *full], "abcd")
    pools = (Pool("w", (), 1, begun=("a",)), Pool("x", ("b",), 1, begun=("d",)))
    begun = replace(given, pools=pools, begun={"a": None, "d": 200}, reboot=3000)
    outcome = simulate(replace(begun, deadlines={"a": (100, 0)}))

    assert outcome.lost.keys() == {"shop/v0"}
    assert [(each.source, each.target) for each in outcome.migrations] == [("b", "a")]
    assert outcome.ended.keys() == {"a", "b", "d"}
