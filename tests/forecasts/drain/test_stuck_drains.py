"""Drains that are stuck: flags, VMs that arrive, failures that repeat,
migrations that cannot end in time.
"""

import pytest

from tests.builders import kubevirt, manifest
from tests.forecasts.drain.test_vm_states import (
    BLOCKS,
    CASES,
    LAUNCHER,
    MARKED,
    MIGRATES,
    UNKNOWN,
    moving,
    row,
    target,
)
from tests.forecasts.drain.vm_motion import ago, cluster, failed, launcher, migration, node, vmi
from virt_admit.cli.commands.drain import forecast
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states import vm_states
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.objects import Object


def drain(snapshot, of, output):
    """Return the report about a drain of one node, and the exit code."""
    found = forecast(drain_plan.plan(snapshot, of), snapshot)
    return found.render(output), found.code


# --- a drain that has not moved for an hour -------------------------------------------------------


def stuck():
    slow = {
        "migrationUid": "uid-m-db",
        "sourceNode": "a",
        "targetNode": "b",
        "startTimestamp": ago(65 * 60),
    }
    return [
        vmi(
            evacuationNodeName="a",
            migrationState=slow,
            spec={"domain": {"devices": {}, "memory": {"guest": "64Gi"}}},
        ),
        launcher(),
        launcher(on="b", suffix="2", job="uid-m-db", age=3950),
        migration(
            "m-0",
            "Succeeded",
            age=80_000,
            completed=True,
            startTimestamp=ago(79_000),
            endTimestamp=ago(79_000 - 180),
        ),
        migration("m-db", "Running", age=3960, since={"Running": 3900}),
        vmi("web", evacuationNodeName="a"),
        launcher("web"),
        migration("m-web", of="web", age=3950),
    ]


def test_a_stuck_migration_and_the_one_behind_it_cannot_be_determined():
    report, code = drain(cluster(*stuck(), parallelOutboundMigrationsPerNode=1), "a", "text")

    assert code == 2
    # 69 GB of 150 s are 2 h 52 after a start at 09:55
    assert "has been migrating to b for 65 min, its last one took 3 min" in report
    assert "; KubeVirt cancels it at 12:47 UTC and repeats it" in report
    assert "waits for a place; a may send 1 at a time and sends shop/db for 65 min" in report
    assert "state: its memory is being copied since 09:55 UTC, timeout at 12:47 UTC" in report
    assert "state: it waits for a place in the queue of migrations since 09:54 UTC" in report
    assert report.rstrip().endswith("It cannot be determined whether a drain of a ends.")
    assert "unknown  shop/db" in report
    assert "unknown  shop/web" in report


@pytest.mark.parametrize("setting", ["allowPostCopy", "allowWorkloadDisruption"])
def test_with_an_end_at_the_deadline_both_migrate(setting):
    assert (
        drain(
            cluster(*stuck(), parallelOutboundMigrationsPerNode=1, **{setting: True}), "a", "text"
        )[1]
        == 0
    )


def test_an_end_at_the_deadline_needs_no_time_of_the_listing():
    beat = node("b")
    beat.data["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": ago(0)}
    ]
    assert drain(cluster(*stuck()[:5], beat, time=None, allowPostCopy=True), "a", "text")[1] == 0
    assert drain(cluster(*stuck()[:5], beat, time=None), "a", "text")[1] == 2


@pytest.mark.parametrize(
    ("release", "units"), [("v1.3.0", 800), ("v1.4.0", 150), ("v1.9.0", 150), ("", 150)]
)
def test_the_deadline_follows_the_release(release, units):
    settings = kubevirt({"migrations": {}}, status={"observedKubeVirtVersion": release})
    found = row(cluster(*stuck(), settings)).state
    assert clock.stamp(found.until) == ago(3900 - 69 * units)


def test_the_settings_of_the_migration_itself_win():
    objects = stuck()
    objects[0].data["status"]["migrationState"]["migrationConfiguration"] = {
        "completionTimeoutPerGiB": 20
    }
    assert clock.stamp(row(cluster(*objects)).state.until) == ago(3900 - 69 * 20)


# --- flags and visitors ---------------------------------------------------------------------------


def test_a_mark_outlives_an_uncordon():
    objects = [vmi(**MARKED), LAUNCHER]
    assert row(cluster(*objects, node("a"))).state.flags == (Flag.LEFTOVER,)
    assert row(cluster(*objects)).state.flags == ()


def test_flags_of_taints_and_foreign_migrations():
    assert row(cluster(*CASES["tainted"][1])).state.flags == (Flag.TAINTED,)
    foreign = [moving(), LAUNCHER, migration(phase="Running", drain=False), target()]
    marked = row(cluster(*foreign))
    assert marked.state.flags == (Flag.FOREIGN,)  # of the migration, not of the VM
    assert "a person or another program asked for migration" in marked.reason
    del foreign[0].data["status"]["evacuationNodeName"]
    assert row(cluster(*foreign)).state.flags == (Flag.FOREIGN,)


def test_a_vm_that_arrives_with_copies_of_its_disks_takes_its_time():
    copied, *others = CASES["running"][1]
    names = {"sourcePVCInfo": {"claimName": "old"}, "destinationPVCInfo": {"claimName": "new"}}
    status = copied.data["status"] | {"migratedVolumes": [{"volumeName": "root"} | names]}
    changes = {"type": "VolumesChange", "status": "True"}
    status["conditions"] = [*status.get("conditions", ()), changes]
    snapshot = cluster(Object({**copied.data, "status": status}), *others)
    (found,) = drain_plan.plan(snapshot, "b").nodes[0].visitors
    assert "arrives from a, then has to leave again" in found.reason


def test_a_vm_that_arrives_is_listed_on_its_target_and_counted_on_its_source():
    snapshot = cluster(*CASES["running"][1])
    (found,) = drain_plan.plan(snapshot, "b").nodes[0].visitors
    assert (found.state.source, found.state.flags) == ("a", (Flag.ARRIVING,))
    assert "arrives from a in a moment, then has to leave again" in found.reason
    assert drain_plan.plan(snapshot, "b").nodes[0].forecasts == ()
    text, code = drain(snapshot, "b", "text")
    assert code == 0
    assert text.startswith("node b: 0 VMs and 1 of another node: 1 migrates")


SOON = "arrives from a in a moment"


@pytest.mark.parametrize(
    ("container", "outcome"), [("ContainerCreating", MIGRATES), ("ImagePullBackOff", UNKNOWN)]
)
def test_what_keeps_a_target_pod_from_starting_is_told_at_both_nodes(container, outcome):
    waits = [{"name": "compute", "state": {"waiting": {"reason": container}}}]
    pod = target(phase="Pending", conditions=[], containerStatuses=waits)
    snapshot = cluster(vmi(**MARKED), LAUNCHER, migration(phase="Scheduling"), pod)
    (arriving,) = drain_plan.plan(snapshot, "b").nodes[0].visitors

    assert (row(snapshot).outcome, arriving.outcome) == (outcome, outcome)
    assert (SOON in arriving.reason) is (outcome == MIGRATES)
    assert (SOON in drain(snapshot, "b", "text")[0]) is (outcome == MIGRATES)


@pytest.mark.parametrize("case", ["aborting", "silent"])
def test_a_migration_that_is_cancelled_or_whose_node_is_silent_does_not_arrive_soon(case):
    silent = node("b", ready="Unknown")
    objects = CASES["running" if case == "silent" else case][1]
    snapshot = cluster(*objects, *([silent] if case == "silent" else []))
    (arriving,) = drain_plan.plan(snapshot, "b").nodes[0].visitors

    assert "if it arrives from a after all" in arriving.reason


def test_a_vm_that_has_left_is_listed_until_its_old_pod_ends():
    left = [vmi(on="b"), LAUNCHER, launcher(on="b", suffix="2", age=100)]
    (found,) = drain_plan.plan(cluster(*left), "a").nodes[0].visitors
    assert (found.state.state, found.outcome) == (State.ARRIVED, MIGRATES)


def test_a_target_pod_is_the_room_of_its_vm():
    """The target pod holds the only place of the other node; a second one is not needed."""
    tight = node("b")
    tight.data["status"]["allocatable"]["pods"] = "1"
    snapshot = cluster(*CASES["running"][1], tight, nodes=("a",))
    assert drain(snapshot, "a", "text")[1] == 0


# --- failures -------------------------------------------------------------------------------------

FEATURES = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=9, Domain=10, Message='operation failed: guest CPU doesn't match specification: "
    "missing features: vmx-vmfunc,vmx-eptp')"
)


def test_a_pair_that_never_works_is_no_candidate():
    found = row(cluster(vmi(), LAUNCHER, failed(1, FEATURES)))
    assert found.outcome == MIGRATES
    assert found.placement.certain == ("c",)
    assert "it lacks vmx-vmfunc,vmx-eptp" in found.placement.refusals["b"]
    assert (found.state.attempts, str(found.state.failure.kind)) == (1, "P")


def test_pairs_that_never_work_block_once_no_node_is_left():
    found = row(
        cluster(vmi(), LAUNCHER, failed(1, FEATURES), failed(2, FEATURES, target="c", age=3000))
    )
    assert found.outcome == BLOCKS
    assert "b, c: it lacks vmx-vmfunc,vmx-eptp" in found.reason
    assert "CPU model" in found.remedy


ABORTED = "Live migration has been aborted"


def test_one_time_out_is_open_and_two_block():
    timed_out = [failed(1, ABORTED, age=9000, lasted=750), failed(2, ABORTED, age=4000, lasted=751)]
    assert row(cluster(vmi(), LAUNCHER, timed_out[0])).outcome == UNKNOWN
    assert row(cluster(vmi(), LAUNCHER, *timed_out)).outcome == BLOCKS
    assert row(cluster(vmi(), LAUNCHER, *timed_out, allowPostCopy=True)).outcome == MIGRATES


TIMED_OUT = (failed(1, ABORTED, age=9000, lasted=750), failed(2, ABORTED, age=4000, lasted=751))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        # 750 s of 125 MB/s are 21 times 4 GiB
        (
            {},
            (
                "copied 21 times at 1 Gbit/s: it is written faster than it is copied, and "
                "allowAutoConverge is off"
            ),
        ),
        (
            {"allowAutoConverge": True},
            "copied 21 times at 1 Gbit/s: it is written faster than it is copied",
        ),
        (
            {"bandwidthPerMigration": "64Mi"},
            "copied 11 times at the bandwidth limit: it is written faster",
        ),
        ({"bandwidthPerMigration": "8Mi"}, "timed out"),
    ],
)
def test_a_guest_that_writes_faster_than_it_is_copied_is_told_from_a_slow_network(settings, says):
    found = row(cluster(vmi(), LAUNCHER, *TIMED_OUT, **settings))
    assert (found.outcome, says in found.reason) == (BLOCKS, True), found.reason
    assert ("is written" in found.reason) is (settings.get("bandwidthPerMigration") != "8Mi")
    assert ("allowAutoConverge" in found.remedy) is ("allowAutoConverge" not in settings)
    assert "kubectl edit kubevirt" in found.remedy


def test_the_settings_that_count_are_edited():
    policy = manifest(
        "migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "slow", spec={"selectors": {}}
    )
    found = row(cluster(vmi(), LAUNCHER, *TIMED_OUT, policy))
    assert found.remedy.endswith(" ends the guest): kubectl edit migrationpolicy slow")


def test_older_releases_name_the_deadline():
    said = "Live migration is not completed after 600 seconds and has been aborted"
    stuck = "Live migration stuck for 150 seconds and has been aborted"
    assert (
        row(cluster(vmi(), LAUNCHER, failed(1, said, age=9000), failed(2, said))).outcome == BLOCKS
    )
    assert (
        row(cluster(vmi(), LAUNCHER, failed(1, stuck, age=9000), failed(2, stuck))).outcome
        == UNKNOWN
    )


def test_an_abort_that_a_user_asked_for_is_no_time_out():
    asked = failed(1, ABORTED, lasted=751, abortRequested=True)
    assert row(cluster(vmi(), LAUNCHER, asked)).outcome == MIGRATES
    assert row(cluster(vmi(), LAUNCHER, failed(1, ABORTED, lasted=300))).outcome == MIGRATES


def test_three_failures_of_the_moment_block_and_two_wait():
    reset = [
        failed(number, "connection reset by peer", age=9000 - number * 1000) for number in (1, 2, 3)
    ]
    assert row(cluster(vmi(), LAUNCHER, *reset[:2])).outcome == MIGRATES
    found = row(cluster(vmi(), LAUNCHER, *reset))
    assert found.outcome == BLOCKS
    assert "connection reset by peer" in found.reason


def test_attempts_that_found_no_node_do_not_count():
    """Room decides, and there is room by now."""
    before = [
        migration(
            f"old-{number}", "Failed", age=900 - number, since={"Scheduling": 800, "Failed": 500}
        )
        for number in range(3)
    ]
    assert row(cluster(vmi(), LAUNCHER, *before)).outcome == MIGRATES


@pytest.mark.parametrize(("failures", "seconds"), [(1, 20), (2, 40), (3, 80), (4, 160), (5, 320)])
def test_the_next_attempt_starts_after_twice_the_time(failures, seconds):
    past = [
        failed(number, "connection reset", age=1 + (failures - number) * 500)
        for number in range(1, failures + 1)
    ]
    found = vm_states.of(vmi(**MARKED), cluster(vmi(**MARKED), LAUNCHER, *past, migration(age=0.5)))
    assert clock.stamp(found.until) == ago(1 - seconds)


# --- migrations that last hours -------------------------------------------------------------------


def test_a_migration_that_may_last_hours_is_said_with_the_hours():
    spec = {"domain": {"devices": {}, "memory": {"guest": "64Gi"}}}
    large = vmi(spec=spec)
    text = drain(cluster(large, LAUNCHER), "a", "text")[0]
    assert (
        "note: A migration of shop/db with a busy guest lasts at most 2 h 52, then is "
        "cancelled and repeated"
    ) in text
    assert "completionTimeoutPerGiB 150 × 69 GB" in text
    under_way = cluster(large, LAUNCHER, migration(age=38))
    assert "A migration of" not in drain(under_way, "a", "text")[0]
    paused = vmi(spec=spec, conditions=[{"type": "Paused", "status": "True"}])
    assert "A migration of" not in drain(cluster(paused, LAUNCHER), "a", "text")[0]
    for harmless in ({"allowPostCopy": True}, {"completionTimeoutPerGiB": 20}):
        assert "A migration of" not in drain(cluster(large, LAUNCHER, **harmless), "a", "text")[0]


def test_progress_time_outs_that_are_switched_off_are_named():
    text = drain(cluster(vmi(), LAUNCHER, progressTimeout=0), "a", "text")[0]
    assert "also without progress (progressTimeout 0)" in text


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("DiskPressure", "Free disk space"),
        ("MemoryPressure", "Free memory"),
        ("PIDPressure", "End the processes"),
    ],
)
def test_a_node_under_pressure_may_end_its_vms(kind, remedy):
    here = node("a")
    assert not [
        note
        for note in drain_plan.plan(cluster(here, node("b")), "a").nodes[0].notes
        if "Pressure" in note
    ]
    here.data["status"]["conditions"].append(
        {"type": kind, "status": "True", "lastTransitionTime": ago(2640)}
    )
    (note,) = drain_plan.plan(cluster(here, node("b")), "a").nodes[0].notes

    assert note.startswith(
        f"This node has {kind} for 44 min: no new pod starts on it, and its kubelet may end its "
        "pods"
    )
    assert remedy in note
