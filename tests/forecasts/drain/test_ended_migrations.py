"""Migrations that have ended, or failed, while some objects do not show it yet."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.test_vm_states import (
    LAUNCHER,
    MARKED,
    MIGRATES,
    RUN,
    UNKNOWN,
    row,
    target,
)
from tests.forecasts.drain.vm_motion import ago, cluster, failed, launcher, migration, node, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.model.kubernetes import clock

COPIED = (
    LAUNCHER,
    migration(phase="Running", since={"Running": 440}),
    launcher(on="b", suffix="2", job=RUN, age=450),
)


def active(age, **fields):
    """Return a VMI whose guest has been active on the target for some seconds."""
    state = {"migrationUid": RUN, "sourceNode": "a", "targetNode": "b", "mode": "PreCopy"}
    state |= {"targetPod": COPIED[2].name, "startTimestamp": ago(440)}
    if age is not None:
        state["targetNodeDomainReadyTimestamp"] = ago(age)
    return vmi(**MARKED, migrationState=state | fields)


def test_a_migration_that_failed_and_is_still_open_has_moved_nothing():
    state = {
        "migrationUid": RUN,
        "sourceNode": "a",
        "targetNode": "b",
        "completed": True,
        "failed": True,
    }
    copied = migration(phase="Running"), launcher(on="b", suffix="2", job=RUN, age=50)
    for mark, expected in ((MARKED, State.BACKOFF), ({}, State.STILL)):
        found = cluster(
            vmi(**mark, migrationState={**state, "endTimestamp": ago(1)}), LAUNCHER, *copied
        )
        assert row(found).state.state is expected
        assert not row(found).state.placed
        assert State.NOT_CLOSED not in [
            each.state.state for each in drain_plan.plan(found, "b").nodes[0].visitors
        ]

    ended = vmi(
        **MARKED,
        migrationState={**state, "endTimestamp": ago(1), "failureReason": "connection reset"},
    )
    paused = row(cluster(ended, LAUNCHER, *copied))
    assert "1 attempt failed (connection reset); the next one starts at" in paused.reason
    assert paused.state.until == clock.instant(ago(1 - 20))
    late = {"endTimestamp": ago(100), "failureReason": "connection reset"}
    overdue = row(cluster(vmi(**MARKED, migrationState=state | late), LAUNCHER, *copied))
    assert "1 attempt failed (connection reset); the next one was due at" in overdue.reason
    closed = row(
        cluster(
            ended,
            LAUNCHER,
            migration(phase="Failed", since={"Running": 60, "Failed": 1}),
            migration("2"),
        )
    )
    assert closed.state.failure is not None
    assert (closed.state.state, closed.state.failure.text) == (State.BACKOFF, "connection reset")
    again = row(cluster(ended, LAUNCHER, failed(1, "connection reset", age=300), *copied))
    assert "2 attempts failed" in again.reason
    assert again.state.until == clock.instant(ago(1 - 40))

    late = row(
        cluster(
            vmi(**MARKED, migrationState={**state, "endTimestamp": ago(400)}), LAUNCHER, *copied
        )
    )
    assert (late.state.state, late.outcome) == (State.NOT_CLOSED, UNKNOWN)
    assert "has not migrated, but its migration is still open" in late.reason


def handler(on, release):
    image = f"registry.example/kubevirt/virt-handler:{release}"
    labels = {"kubevirt.io": "virt-handler"}
    spec = {"nodeName": on, "containers": [{"name": "virt-handler", "image": image}]}
    return manifest(
        "v1", "Pod", f"virt-handler-{on}", "kubevirt", metadata={"labels": labels}, spec=spec
    )


@pytest.mark.parametrize("releases", [("v1.6.3", "v1.5.3"), ("v1.6.3", "v1.6.3"), ()])
def test_a_guest_active_on_its_target_for_minutes_is_no_longer_copied(releases):
    handlers = map(handler, "ab", releases)
    found = row(cluster(active(420), *COPIED, *handlers))
    assert (found.state.state, found.state.late, found.outcome) == (State.NOT_CLOSED, True, UNKNOWN)
    assert f"migration {COPIED[1].name} hangs: its memory is copied" in found.reason
    assert "active on b since" in found.reason
    assert "(7 min)" in found.reason
    differ = "a has virt-handler:v1.6.3 and b has virt-handler:v1.5.3"
    assert (differ in found.reason) is (len(set(releases)) == 2)
    assert f"kubectl exec {COPIED[2].name} -n" in found.remedy
    assert "allowPostCopy" not in found.remedy
    assert "bandwidth" not in found.remedy


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(active(60), id="a minute"),
        pytest.param(active(420, mode="PostCopy"), id="post-copy"),
        pytest.param(active(None), id="not active there"),
    ],
)
def test_a_guest_that_was_just_handed_over_or_is_copied_is_not_accused(state):
    found = row(cluster(state, *COPIED, handler("a", "v1.6.3"), handler("b", "v1.5.3")))
    assert found.state.state in (State.RUNNING, State.POST_COPY)
    assert "hangs" not in found.reason


@pytest.mark.parametrize(
    ("own", "state"),
    [
        pytest.param({"metadata": {"deletionTimestamp": ago(3)}}, State.ABORTING, id="cancelled"),
        pytest.param({"drain": False}, State.STILL, id="of a user"),
    ],
)
def test_a_migration_that_fails_without_a_pause_announces_none(own, state):
    """Source: migration.go#handleMigrationBackoff."""
    over = {
        "migrationUid": RUN,
        "sourceNode": "a",
        "targetNode": "b",
        "completed": True,
        "failed": True,
    }
    ends = vmi(**MARKED, migrationState={**over, "endTimestamp": ago(1)})
    found = row(cluster(ends, LAUNCHER, migration(phase="Running", **own), target()))

    assert (found.state.state, found.outcome) == (state, MIGRATES)
    assert "attempt" not in found.reason


@pytest.mark.parametrize(("over", "state"), [(5, State.STILL), (70, State.NO_TARGET)])
def test_a_target_pod_is_missed_only_some_time_after_the_pause(over, state):
    """The pause after three failures is 80 s, longer than KubeVirt needs to create a target pod."""
    ends = [
        failed(number, "connection reset", age=80 + over + (3 - number) * 200)
        for number in (1, 2, 3)
    ]
    found = row(cluster(vmi(**MARKED), LAUNCHER, *ends, migration("evacuation-4", age=80 + over)))

    assert found.state.state is state


def test_a_vm_that_has_left_a_node_is_not_there_for_its_next_migration():
    moved = vmi(
        on="b", migrationState={"migrationUid": "uid-old", "sourceNode": "a", "completed": True}
    )
    again = migration("user-2", drain=False, age=1)
    (left,) = drain_plan.plan(cluster(moved, LAUNCHER, target(), again), "a").nodes[0].visitors

    assert (left.state.state, left.state.target, left.state.migration) == (State.ARRIVED, "b", None)
    assert "another reason" not in left.reason


def test_a_vm_counts_for_the_node_that_its_last_migration_left_too():
    """Source: migration.go#outboundMigrationsOnNode, which looks at the VMI alone."""
    moved = vmi(
        "web",
        on="b",
        migrationState={"migrationUid": "uid-old", "sourceNode": "a", "completed": True},
    )
    again = migration("other", "Scheduling", of="web", since={"Scheduling": 10})
    waiting = [vmi(**MARKED), LAUNCHER, migration(age=300), moved, launcher("web", on="b"), again]
    found = row(
        cluster(*waiting, parallelOutboundMigrationsPerNode=1, parallelMigrationsPerCluster=2)
    )
    assert (found.state.state, found.state.holders) == (State.QUEUED, (("shop", "web"),))
    assert (
        row(cluster(*waiting, parallelOutboundMigrationsPerNode=2)).state.state is not State.QUEUED
    )


DONE = {"migrationUid": RUN, "sourceNode": "a", "targetNode": "b", "completed": True}


def left_behind(ended, *objects, age=2000, state=None, **fields):
    """Return node ``a``, whose VM has moved to ``b`` so many seconds ago,
    while its old pod is still there.
    """
    moved = vmi(on="b", migrationState={**(state or DONE), "endTimestamp": ago(ended)}, **fields)
    done = migration(phase="Succeeded", age=age)
    return cluster(moved, LAUNCHER, target(age=age), done, node("a"), *objects)


NOT_READY = {"type": "Ready", "status": "False", "message": "Guest VM is not reported as running"}


@pytest.mark.parametrize(
    ("state", "fields", "says", "remedy"),
    [
        (
            DONE,
            {},
            "where its guest runs since its migration has succeeded, but its old pod",
            "lists no guest any more, then delete that pod",
        ),
        (
            {**DONE, "targetNode": "c"},
            {},
            "two guests on one disk",
            "which of both pods runs the guest",
        ),
        (
            DONE,
            {"conditions": [NOT_READY]},
            "the only guest, as its VMI is not Ready (Guest VM is not",
            "which of both pods runs the guest",
        ),
    ],
    ids=["it has succeeded", "it is not known which one ended", "the guest is not reported"],
)
def test_an_old_pod_that_does_not_end_may_run_a_guest(state, fields, says, remedy):
    """KubeVirt refuses its eviction, or the drain ends a guest
    (pod-eviction-admitter.go#admitLauncherPod).
    """
    snapshot = left_behind(1900, state=state, **fields)
    (found,) = drain_plan.plan(snapshot, "a").nodes
    (left,) = found.visitors

    assert (found.drainable, left.outcome, left.state.state) == (None, UNKNOWN, State.ARRIVED)
    assert "its old pod virt-launcher-db-1 has not ended for 31 min" in left.reason
    assert says in left.reason
    assert remedy in left.remedy
    assert row(snapshot, of="b").state.state is State.TWO_PODS


def test_an_upgrade_does_not_pass_such_an_old_pod():
    """With no eviction strategy nothing else keeps the nodes from becoming empty."""
    snapshot = left_behind(1900, spec={"evictionStrategy": "None"})
    (found,) = [each for each in drain_plan.plan(snapshot).nodes if each.visitors]
    result = rehearsal.rehearse(snapshot, rehearsal.Options())

    assert found.undecided == found.visitors
    assert result.possible is None
    assert any("its old pod virt-launcher-db-1 has not ended" in each for each in result.unseen)


def test_the_old_pod_of_a_long_migration_has_its_time_to_end():
    """Both pods live while the memory is copied, so their age says nothing."""
    snapshot = left_behind(8)
    (found,) = drain_plan.plan(snapshot, "a").nodes

    assert (found.drainable, found.visitors[0].outcome) == (True, MIGRATES)
    assert row(snapshot, of="b").outcome == MIGRATES


def test_a_source_pod_that_nothing_ends_keeps_the_next_migration():
    """KubeVirt creates no third pod, so that a drain of the node with the guest waits, too
    (kubevirt/kubevirt#18320).
    """
    moved = vmi(on="b", migrationState={**DONE, "endTimestamp": ago(1900)})
    done, waits = migration(phase="Succeeded", age=2000), migration("next", age=600)
    found = row(cluster(moved, LAUNCHER, target(age=2000), done, waits), of="b")
    assert found.state.state is State.TWO_PODS
    assert (
        "its source pod virt-launcher-db-1 on a still runs 31 min after migration" in found.reason
    )
    assert "the guest runs on b" in found.reason
    assert "so next waits" in found.reason
    assert found.remedy.endswith(
        ": kubectl exec virt-launcher-db-1 -n shop -c compute -- virsh list"
    )
