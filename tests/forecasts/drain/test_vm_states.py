"""The state of each VM of a draining node, as KubeVirt's objects show it,
and what it means for the drain.
"""

import random

import pytest

from tests.builders import kubevirt
from tests.for_each import for_each
from tests.forecasts.drain.vm_motion import (
    NOW,
    ago,
    attachment,
    cluster,
    failed,
    launcher,
    migration,
    node,
    vmi,
)
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot

RUN = "uid-evacuation-1"
LAUNCHER = launcher()


def target(**fields):
    return launcher(on=fields.pop("on", "b"), suffix="2", job=RUN, **{"age": 40, **fields})


def moving(**state):
    """Return the VMI with the state of its current migration."""
    own = {"migrationUid": RUN, "sourceNode": "a", "targetNode": "b", "startTimestamp": ago(60)}
    return vmi(evacuationNodeName="a", migrationState=own | state)


REFUSED = {
    "type": "LiveMigratable",
    "status": "False",
    "reason": "Disks",
    "lastTransitionTime": ago(500),
}
SCHEDULED = {"phase": "Scheduled", "phaseTransitionTimestamp": ago(20)}


def asked(age):
    """Return the condition that the eviction was asked for."""
    return {"type": "EvictionRequested", "status": "True", "lastTransitionTime": ago(age)}


UNSCHEDULABLE = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
]
HOTPLUG = {
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
    ]
}
MARKED = {"evacuationNodeName": "a"}
RUNNING = {"Running": 60}
OTHER_MOVES = [
    vmi(
        "web",
        migrationState={"migrationUid": "uid-other", "sourceNode": "a", "startTimestamp": ago(60)},
    ),
    migration("other", "Running", of="web", since=RUNNING),
    launcher("web", "b", "2", job="uid-other", age=70),
    launcher("web"),
]
OLD_RELEASE = kubevirt(
    {"migrations": {"parallelOutboundMigrationsPerNode": 1}},
    status={"observedKubeVirtVersion": "v1.6.0"},
)

CASES = {
    "gone": (State.GONE, [vmi(activePods={"lost": "a"})], {}),
    "ended": (State.ENDED, [vmi(), launcher(phase="Succeeded")], {}),
    "ended, failed": (State.ENDED, [vmi(), launcher(phase="Failed")], {}),
    "stopping": (
        State.STOPPING,
        [vmi(metadata={"deletionTimestamp": ago(5)}), LAUNCHER],
        {"until": 5 - 30},
    ),
    "refused": (State.REFUSED, [vmi(reported=False, conditions=[REFUSED]), LAUNCHER], {}),
    "external": (
        State.EXTERNAL,
        [
            vmi(spec={"evictionStrategy": "External"}),
            LAUNCHER,
            migration(phase="Running", drain=False),
        ],
        {},
    ),
    "starting": (
        State.STARTING,
        [vmi(phase="Scheduled", phaseTransitionTimestamps=[SCHEDULED]), LAUNCHER],
        {},
    ),
    "starting, not reported": (State.STARTING, [vmi(reported=False), LAUNCHER], {}),
    "stale mark": (State.STALE_MARK, [vmi(evacuationNodeName="c"), LAUNCHER], {}),
    "marked": (State.MARKED, [vmi(**MARKED), LAUNCHER], {}),
    "marked since": (State.MARKED, [vmi(**MARKED, conditions=[asked(30)]), LAUNCHER], {}),
    "marked too long": (State.MARKED, [vmi(**MARKED, conditions=[asked(90)]), LAUNCHER], {}),
    "leftover": (State.MARKED, [vmi(**MARKED), LAUNCHER, node("a")], {}),
    "marked is the queue": (State.MARKED, [vmi(**MARKED), LAUNCHER, *OTHER_MOVES, OLD_RELEASE], {}),
    "tainted": (
        State.MARKED,
        [vmi(), LAUNCHER, node("a", taints=[{"key": "kubevirt.io/drain", "effect": "NoSchedule"}])],
        {},
    ),
    "two pods": (
        State.TWO_PODS,
        [vmi(), launcher(age=100), launcher(suffix="0", on="c", age=90_000)],
        {},
    ),
    "two pods, pending": (
        State.TWO_PODS,
        [vmi(**MARKED), LAUNCHER, launcher(suffix="0", on="c", age=90_000), migration()],
        {},
    ),
    "backoff": (
        State.BACKOFF,
        [vmi(**MARKED), LAUNCHER, failed(1, "connection reset by peer", age=10), migration(age=5)],
        {"until": -10},
    ),
    "backup": (
        State.BLOCKED_BY_BACKUP,
        [vmi(**MARKED), LAUNCHER, migration(conditions=("migrationBlockedByBackup",))],
        {},
    ),
    "backup, foreign": (
        State.BLOCKED_BY_BACKUP,
        [vmi(), LAUNCHER, migration(conditions=("migrationBlockedByBackup",), drain=False)],
        {},
    ),
    "volume": (
        State.BLOCKED_BY_VOLUME,
        [vmi(**MARKED), LAUNCHER, migration(conditions=("migrationBlockedByUtilityVolumes",))],
        {"until": 30 - 150},
    ),
    "quota": (
        State.QUOTA,
        [vmi(**MARKED), LAUNCHER, migration(conditions=("migrationRejectedByResourceQuota",))],
        {},
    ),
    "queued": (
        State.QUEUED,
        [vmi(**MARKED), LAUNCHER, migration(), *OTHER_MOVES],
        {"kubevirt": {"parallelOutboundMigrationsPerNode": 1}},
    ),
    "queued in the cluster": (
        State.QUEUED,
        [vmi(**MARKED), LAUNCHER, migration(), *OTHER_MOVES],
        {"kubevirt": {"parallelMigrationsPerCluster": 1}},
    ),
    "no target": (State.NO_TARGET, [vmi(**MARKED), LAUNCHER, migration(age=90)], {}),
    "unschedulable": (
        State.UNSCHEDULABLE,
        [
            vmi(**MARKED),
            LAUNCHER,
            migration(),
            target(on="", phase="Pending", conditions=UNSCHEDULABLE),
        ],
        {"until": 40 - 300},
    ),
    "target pending": (
        State.TARGET_PENDING,
        [
            vmi(**MARKED),
            LAUNCHER,
            migration(phase="Scheduling"),
            target(phase="Pending", conditions=[]),
        ],
        {"until": 40 - 900},
    ),
    "target not ready": (
        State.TARGET_NOT_READY,
        [vmi(**MARKED), LAUNCHER, migration(phase="Scheduling"), target(ready=False)],
        {},
    ),
    "attachment not ready": (
        State.TARGET_NOT_READY,
        [
            vmi(**MARKED, spec=HOTPLUG),
            LAUNCHER,
            migration(),
            target(),
            attachment(target(), ready=False),
        ],
        {},
    ),
    "attachment ready": (
        State.PREPARING,
        [
            vmi(**MARKED, spec=HOTPLUG),
            LAUNCHER,
            migration(),
            target(),
            attachment(target(), ready=True),
        ],
        {},
    ),
    "preparing": (
        State.PREPARING,
        [vmi(**MARKED), LAUNCHER, migration(phase="PreparingTarget"), target()],
        {},
    ),
    # 4 GiB are 5 GB of 150 s, from a start 60 s ago
    "running": (
        State.RUNNING,
        [moving(), LAUNCHER, migration(phase="Running", since=RUNNING), target()],
        {"until": 60 - 750},
    ),
    "paused": (
        State.PAUSED,
        [moving(mode="Paused"), LAUNCHER, migration(phase="Running"), target()],
        {"until": 60 - 1500},
    ),
    "post-copy": (
        State.POST_COPY,
        [moving(mode="PostCopy"), LAUNCHER, migration(phase="Running"), target()],
        {},
    ),
    "aborting": (
        State.ABORTING,
        [moving(abortStatus="Aborting"), LAUNCHER, migration(phase="Running"), target()],
        {},
    ),
    "aborting, deleted": (
        State.ABORTING,
        [
            moving(),
            LAUNCHER,
            migration(phase="Running", metadata={"deletionTimestamp": ago(5)}),
            target(),
        ],
        {},
    ),
    "aborting before it runs": (
        State.ABORTING,
        [vmi(**MARKED), LAUNCHER, migration(metadata={"deletionTimestamp": ago(5)})],
        {},
    ),
    "abort failed": (
        State.RUNNING,
        [moving(abortStatus="Failed"), LAUNCHER, migration(phase="Running"), target()],
        {"until": 60 - 750},
    ),
    "not closed": (
        State.NOT_CLOSED,
        [
            vmi(
                on="a",
                conditions=[{"type": "HotVCPUChange", "status": "True"}],
                migrationState={
                    "migrationUid": RUN,
                    "sourceNode": "c",
                    "completed": True,
                    "endTimestamp": ago(60),
                },
            ),
            LAUNCHER,
            migration(phase="Running"),
        ],
        {},
    ),
    "foreign": (
        State.RUNNING,
        [moving(), LAUNCHER, migration(phase="Running", drain=False), target()],
        {"until": 60 - 750},
    ),
    "decentralized, pending": (
        State.DECENTRALIZED,
        [vmi(), LAUNCHER, migration(age=90, drain=False, spec={"sendTo": {"migrationID": "x"}})],
        {},
    ),
    "decentralized": (
        State.DECENTRALIZED,
        [
            vmi(),
            LAUNCHER,
            migration(phase="Synchronizing", drain=False, spec={"sendTo": {"migrationID": "x"}}),
        ],
        {},
    ),
    "still": (State.STILL, [vmi(), LAUNCHER], {}),
    "about to start": (State.STILL, [vmi(**MARKED), LAUNCHER, migration(age=5)], {}),
}


def seen(objects, time=NOW, **more):
    return cluster(*objects, time=time, **more.get("kubevirt", {}))


def row(snapshot, name="db", of="a"):
    return next(
        each for each in drain_plan.plan(snapshot, of).nodes[0].forecasts if each.vmi.name == name
    )


@for_each("case", CASES)
def test_each_state_is_recognised_with_the_time_of_the_next_step(case):
    state, objects, more = CASES[case]

    found = row(seen(objects, **more)).state

    assert found.state is state
    assert clock.stamp(found.until) == (ago(more["until"]) if "until" in more else None)


@for_each("case", CASES)
def test_the_order_of_objects_does_not_matter(case):
    _, objects, more = CASES[case]
    expected = row(seen(objects, **more))
    for seed in range(3):
        shuffled = random.Random(seed).sample(
            list(seen(objects, **more)), k=len(list(seen(objects, **more)))
        )
        found = row(Snapshot(shuffled, ["*"], time=NOW))
        assert (found.state, found.reason) == (expected.state, expected.reason)


@for_each("case", CASES)
def test_without_the_time_of_the_listing_no_next_step_has_a_time(case):
    _, objects, more = CASES[case]
    assert row(seen(objects, time=None, **more)).state.until is None


def test_refused_and_external_are_named():
    refused = vmi()
    refused.data["status"]["conditions"][0]["status"] = "False"
    assert row(cluster(refused, LAUNCHER)).state.state is State.REFUSED
    assert row(cluster(refused, LAUNCHER)).state.flags == ()
    rests = row(cluster(refused, LAUNCHER, node("a"))).state
    assert (rests.state, rests.flags) == (State.REFUSED, (Flag.UNASKED,))
    external = vmi(spec={"evictionStrategy": "External"})
    assert row(cluster(external, LAUNCHER)).state.state is State.STILL
    external.data["status"]["evacuationNodeName"] = "a"
    assert row(cluster(external, LAUNCHER)).state.state is State.EXTERNAL


def test_a_place_that_has_just_become_free_is_not_a_missing_target():
    """KubeVirt looks at its queue every 1 to 5 s; the migration waited for the place before."""
    ended = migration("other", "Succeeded", of="web", since={"Succeeded": 10}, sourceNode="a")
    waiting = [vmi(**MARKED), LAUNCHER, migration(age=300)]
    assert row(cluster(*waiting)).state.state is State.NO_TARGET
    assert row(cluster(*waiting, ended)).state.state is State.STILL
    ended = migration("other", "Succeeded", of="web", since={"Succeeded": 70}, sourceNode="a")
    assert row(cluster(*waiting, ended)).state.state is State.NO_TARGET


def test_a_place_of_the_cluster_that_has_just_become_free_is_not_a_missing_target():
    waiting = [vmi(**MARKED), LAUNCHER, migration(age=300)]
    ended = migration("other", "Succeeded", of="web", since={"Succeeded": 10}, sourceNode="b")
    assert row(cluster(*waiting, ended, parallelMigrationsPerCluster=1)).state.state is State.STILL
    assert (
        row(cluster(*waiting, ended, parallelMigrationsPerCluster=2)).state.state is State.NO_TARGET
    )


def test_a_limit_of_zero_is_no_missing_place():
    """KubeVirt starts no migration then; that is said of the cluster.

    No end of another one is looked for.
    """
    waiting = [vmi(**MARKED), LAUNCHER, migration(age=300)]
    assert row(cluster(*waiting, parallelMigrationsPerCluster=0)).outcome == BLOCKS


def test_a_target_pod_that_was_given_up_just_now_has_held_the_place():
    """A migration that failed before its hand-over names no source node
    (migration.go#deleteTimedOutTargetPod).
    """
    waiting = [vmi(**MARKED), LAUNCHER, migration(age=300)]
    given_up = migration("other", "Failed", of="web", since={"Failed": 10})
    assert row(cluster(*waiting, vmi("web"), given_up)).state.state is State.STILL
    assert row(cluster(*waiting, vmi("web", on="b"), given_up)).state.state is State.NO_TARGET


def test_a_migration_that_was_cancelled_is_no_reason_to_wait():
    """Source: migration.go#handleMigrationBackoff,
    which skips migrations that are being deleted.
    """
    objects = [vmi(**MARKED), LAUNCHER, migration(age=5)]
    assert row(cluster(*objects, failed(1, "reset", age=5))).state.state is State.BACKOFF
    cancelled = failed(1, "reset", age=5, metadata={"deletionTimestamp": ago(6)})
    assert row(cluster(*objects, cancelled)).state.state is State.STILL


def test_a_vm_waits_behind_one_that_has_arrived_where_it_cannot_leave_again():
    """Its migration ends in a moment, so the place becomes free,
    with or without room for it elsewhere.
    """
    moved = vmi(
        "web",
        on="b",
        migrationState={"migrationUid": "uid-other", "completed": True, "sourceNode": "a"},
    )
    done = migration("other", "Running", of="web", since={"Running": 60})
    here = [
        vmi(**MARKED),
        LAUNCHER,
        migration(age=300),
        moved,
        launcher("web", on="b", job="uid-other"),
    ]
    full = node("a", unschedulable=True), node("b"), node("c", unschedulable=True)
    found = row(cluster(*here, done, *full, parallelMigrationsPerCluster=1))
    assert (found.state.state, found.outcome) == (State.QUEUED, MIGRATES)


def test_the_target_pod_of_a_cancelled_migration_is_not_taken_for_the_guest():
    here, stranded = launcher(age=80_000), launcher(on="b", suffix="2", job="uid-cancelled", age=50)
    found = cluster(vmi(), here, stranded)
    (visitor,) = drain_plan.plan(found, "b").nodes[0].visitors
    for seen_from in (row(found), visitor):
        assert (seen_from.state.state, seen_from.state.detail) == (State.TWO_PODS, stranded.name)

    (left,) = drain_plan.plan(cluster(vmi(on="b"), here, stranded), "a").nodes[0].visitors
    assert (left.state.state, left.state.target) == (State.ARRIVED, "b")


MIGRATES, BLOCKS, UNKNOWN = "migrates", "blocks the drain", "unknown"


def test_an_unschedulable_target_blocks_while_no_node_has_room():
    _, objects, _ = CASES["unschedulable"]
    full = [node(name, unschedulable=True) for name in ("b", "c")]
    found = row(cluster(*objects, *full))
    assert found.outcome == BLOCKS
    assert "0/3 nodes are available" in found.reason


@pytest.mark.parametrize(
    ("case", "age", "outcome"),
    [("two pods", 200, MIGRATES), ("two pods", 400, BLOCKS), ("aborting", 400, UNKNOWN)],
)
def test_waits_that_last_too_long(case, age, outcome):
    _, objects, _ = CASES[case]
    if case == "two pods":
        objects = [vmi(), launcher(age=age), launcher(suffix="0", on="c", age=90_000)]
    else:
        objects = [
            moving(),
            LAUNCHER,
            migration(phase="Running", metadata={"deletionTimestamp": ago(age)}),
            target(),
        ]
    assert row(cluster(*objects)).outcome == outcome
    # without the time of the listing only heartbeats tell it, and there are none
    assert row(cluster(*objects, time=None)).outcome == MIGRATES


@pytest.mark.parametrize(("age", "drainable"), [(60, True), (5 * 3600, None)])
def test_a_migration_that_outlives_its_deadline_has_no_known_end(age, drainable):
    objects = [
        moving(startTimestamp=ago(age)),
        LAUNCHER,
        migration(phase="Running", since={"Running": age}),
        target(),
    ]
    (found,) = drain_plan.plan(cluster(*objects), "a").nodes

    assert found.drainable is drainable
    assert ("its time was over at" in found.forecasts[0].reason) is (drainable is None)
