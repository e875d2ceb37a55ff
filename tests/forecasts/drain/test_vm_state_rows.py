"""Each state of a VM on a draining node as a snapshot: state, flags, times, outcome,
and whether the node drains.
"""

from typing import NamedTuple

import pytest

from tests.builders import claim, kubevirt, manifest
from tests.for_each import for_each
from tests.forecasts.drain.test_vm_states import (
    CASES,
    HOTPLUG,
    LAUNCHER,
    MARKED,
    moving,
    row,
    seen,
    target,
)
from tests.forecasts.drain.vm_motion import (
    NOW,
    ago,
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
from virt_admit.reports.drain.words import state_words

MIGRATES, BLOCKS, UNKNOWN, RESTARTS = (
    "migrates",
    "blocks the drain",
    "unknown",
    "restarts elsewhere",
)


class Expected(NamedTuple):
    """What is expected of a case; ``since`` as an age in seconds."""

    outcome: str
    drainable: bool | None
    since: float | None = None
    flags: tuple[Flag, ...] = ()


EXPECTED = {
    "gone": Expected(RESTARTS, True),
    "ended": Expected(RESTARTS, True),
    "ended, failed": Expected(RESTARTS, True),
    "stopping": Expected(RESTARTS, True, 5),
    "starting": Expected(BLOCKS, False, 20),
    "starting, not reported": Expected(BLOCKS, False),
    "refused": Expected(BLOCKS, False),
    "external": Expected(BLOCKS, False, None, (Flag.FOREIGN,)),
    "stale mark": Expected(BLOCKS, False),
    "marked": Expected(MIGRATES, True),
    "marked since": Expected(MIGRATES, True, 30),
    "marked too long": Expected(UNKNOWN, None, 90),
    "marked is the queue": Expected(MIGRATES, True),
    "leftover": Expected(MIGRATES, True, None, (Flag.LEFTOVER,)),
    "tainted": Expected(MIGRATES, True, None, (Flag.TAINTED,)),
    "two pods": Expected(MIGRATES, True, 100),
    "two pods, pending": Expected(BLOCKS, False, 80_000),
    "backoff": Expected(MIGRATES, True, 5),
    "backup": Expected(MIGRATES, True, 30),
    "backup, foreign": Expected(UNKNOWN, None, 30, (Flag.FOREIGN,)),
    "volume": Expected(MIGRATES, True, 30),
    "quota": Expected(BLOCKS, False, 30),
    "queued": Expected(MIGRATES, True, 30),
    "queued in the cluster": Expected(MIGRATES, True, 30),
    "no target": Expected(UNKNOWN, None, 90),
    "unschedulable": Expected(MIGRATES, True, 40),
    "target pending": Expected(MIGRATES, True, 40),
    "target not ready": Expected(MIGRATES, True, 40),
    "attachment not ready": Expected(MIGRATES, True, 40, flags=(Flag.UNATTACHED,)),
    "attachment ready": Expected(MIGRATES, True, 30),
    "preparing": Expected(MIGRATES, True, 30),
    "running": Expected(MIGRATES, True, 60),
    "paused": Expected(MIGRATES, True, 60),
    "post-copy": Expected(MIGRATES, True, 60),
    "aborting": Expected(MIGRATES, True, 30),
    "aborting, deleted": Expected(MIGRATES, True, 5),
    "aborting before it runs": Expected(MIGRATES, True, 5),
    "abort failed": Expected(MIGRATES, True, 60),
    "not closed": Expected(MIGRATES, True, 60),
    "foreign": Expected(MIGRATES, True, 60, (Flag.FOREIGN,)),
    "decentralized": Expected(UNKNOWN, None, 30, (Flag.FOREIGN,)),
    "decentralized, pending": Expected(UNKNOWN, None, 90, (Flag.FOREIGN,)),
    "still": Expected(MIGRATES, True),
    "about to start": Expected(MIGRATES, True, 5),
}
"""By the name of the case in ``CASES``."""


@for_each("case", CASES)
def test_each_row(case):
    expected = EXPECTED[case]
    _, objects, more = CASES[case]
    shared = claim("data", "ReadWriteMany")
    snapshot = seen([*objects, shared] if "attachment" in case else objects, **more)

    found = row(snapshot)

    assert (found.outcome, drain_plan.plan(snapshot, "a").drainable) == (
        expected.outcome,
        expected.drainable,
    ), found
    assert clock.stamp(found.state.since) == (
        None if expected.since is None else ago(expected.since)
    )
    assert found.state.flags == expected.flags
    said = state_words(found.state.state, found.state.flags)
    assert ("pod is not ready" in said) == (case == "target not ready")


def test_each_state_is_a_case():
    assert {case[0] for case in CASES.values()} | {State.ARRIVED} == set(State)
    assert set(CASES) == set(EXPECTED)


# --- the queue ------------------------------------------------------------------------------------


def waiting(name, priority="", age=30.0, of="a", **fields):
    """Return a VM whose migration waits for a place."""
    spec = {"priority": priority} if priority else {}
    return [
        vmi(name, of, evacuationNodeName=of),
        launcher(name, of),
        migration(f"m-{name}", of=name, age=age, spec=spec, **fields),
    ]


def sending(name="cache", on="a", age=60.0):
    state = {
        "migrationUid": f"uid-m-{name}",
        "sourceNode": on,
        "targetNode": "b",
        "startTimestamp": ago(age),
    }
    return [
        vmi(name, on, migrationState=state),
        launcher(name, on),
        migration(f"m-{name}", "Running", of=name, age=age + 20, since={"Running": age}),
        launcher(name, "b", "2", job=f"uid-m-{name}", age=age + 10),
    ]


LIMIT = {"parallelOutboundMigrationsPerNode": 1}
QUEUE = [
    *sending(),
    *waiting("slow", "system-maintenance", 500),
    *waiting("user", "user-triggered", 400),
    *waiting("none", age=600, drain=False),
    *waiting("db", "system-critical", 100),
    *waiting("web", "system-critical", 200),
]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "web",
            (
                "is 1st to 2nd of 5 that wait for a place (in no order among equal ones); a may "
                "send 1 at a time and sends"
            ),
        ),
        (
            "db",
            (
                "is 1st to 2nd of 5 that wait for a place (in no order among equal ones); a may "
                "send 1 at a time and sends"
            ),
        ),
        (
            "user",
            (
                "is 3rd of 5 that wait for a place; a may send 1 at a time and sends shop/cache "
                "for 60 s"
            ),
        ),
        ("slow", "is 4th of 5 that wait for a place; "),
        ("none", "is 5th of 5 that wait for a place; "),
    ],
)
def test_the_place_in_the_queue_follows_the_priority(name, words):
    assert row(cluster(*QUEUE, **LIMIT), name).reason.startswith(words)


def test_without_the_gate_no_place_is_known():
    old = kubevirt({"migrations": LIMIT}, status={"observedKubeVirtVersion": "v1.8.0"})
    found = row(cluster(*QUEUE, old), "none")
    assert found.reason.startswith("waits with 4 others for a place, in no order; ")


def test_marked_vms_wait_in_the_queue_where_migrations_follow_a_place():
    old = kubevirt({"migrations": LIMIT}, status={"observedKubeVirtVersion": "v1.8.0"})
    marked = [
        each
        for name in ("db", "web")
        for each in (vmi(name, evacuationNodeName="a"), launcher(name))
    ]
    found = row(cluster(*sending(), *marked, old), "web")
    assert found.state.state is State.MARKED
    assert found.reason.startswith("waits with 1 other for a place, in no order; ")


def test_a_migration_that_backs_off_is_not_in_the_queue():
    again = failed(1, "connection reset by peer", age=10)
    sleeping = [vmi(evacuationNodeName="a"), LAUNCHER, again, migration(age=5)]
    found = row(cluster(*sending(), *sleeping, *waiting("web"), **LIMIT), "web")
    assert (found.state.place, found.state.waiting) == (1, 1)
    assert found.reason.startswith(
        "waits for a place; a may send 1 at a time and sends shop/cache for 60 s"
    )


def test_a_vm_behind_one_that_never_ends_never_starts():
    """The VM that holds the place has a target pod that no node takes, and no node can take it."""
    _, objects, _ = CASES["unschedulable"]
    holder = [vmi("db", "x", evacuationNodeName="x"), launcher("db", "x"), *objects[2:]]
    other = [vmi("web", evacuationNodeName="a"), launcher("web"), migration("m-web", of="web")]
    holder[0].data["spec"]["nodeSelector"] = {"only": "db"}
    nodes = [node("x", unschedulable=True), node("free")]
    snapshot = cluster(*holder, *other, *nodes, nodes=("a",), parallelMigrationsPerCluster=1)
    assert row(snapshot, "db", of="x").outcome == BLOCKS
    found = row(snapshot, "web")
    assert (found.state.state, found.outcome) == (State.QUEUED, BLOCKS), found.reason
    assert "see why shop/db, which holds the place, does not end" in found.remedy


# --- causes that KubeVirt tells in events ---------------------------------------------------------


def event(message, age=20, name="db", reason="FailedCreate"):
    about = {"kind": "VirtualMachineInstance", "namespace": "shop", "name": name}
    said = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": ago(age)}
    return manifest("v1", "Event", f"{name}.{age}", "shop", involvedObject=about, **said)


@pytest.mark.parametrize("case", ["no target", "marked too long"])
def test_an_event_names_the_cause_why_nothing_was_created(case):
    _, objects, _ = CASES[case]
    denied = event(
        'Error creating pod: admission webhook "pods.example.com" denied the request: no quotas'
    )
    found = row(cluster(*objects, denied, event("an older one", age=30)))
    assert found.outcome == BLOCKS
    assert 'admission webhook "pods.example.com" denied the request' in found.reason
    for other in (
        event("old", age=5000),
        event("of another VM", name="web"),
        event("else", reason="Migrated"),
    ):
        unknown = row(cluster(*objects, other))
        assert unknown.outcome == UNKNOWN
        assert "the cause cannot be determined" in unknown.reason


@pytest.mark.parametrize("case", ["no target", "quota"])
@pytest.mark.parametrize(("used", "outcome"), [("24Gi", BLOCKS), ("2Gi", UNKNOWN)])
def test_a_quota_that_refuses_the_target_pod_is_told_with_its_amounts(case, used, outcome):
    """One that has room by now does not block: KubeVirt tries again."""
    _, objects, _ = CASES[case]
    figures = "requested: limits.memory=5Gi, used: limits.memory=24Gi, limited: limits.memory=26Gi"
    said = f'Error creating pod: pods "p" is forbidden: exceeded quota: q, {figures}'
    quota = manifest(
        "v1",
        "ResourceQuota",
        "q",
        "shop",
        spec={"hard": {"limits.memory": "26Gi"}},
        status={"hard": {"limits.memory": "26Gi"}, "used": {"limits.memory": used}},
    )
    found = row(cluster(*objects, event(said), quota))
    assert found.outcome == outcome
    assert ("raise ResourceQuota q to at least limits.memory" in found.remedy) is (
        outcome == BLOCKS
    )
    assert ("KubeVirt tries again by itself" in found.reason) is (outcome == UNKNOWN)


def test_a_quota_that_rancher_writes_is_shown_and_not_edited():
    _, objects, _ = CASES["no target"]
    figures = "requested: limits.memory=5Gi, used: limits.memory=24Gi, limited: limits.memory=26Gi"
    said = f'Error creating pod: pods "p" is forbidden: exceeded quota: q, {figures}'
    labels = {"resourcequota.management.cattle.io/default-resource-quota": "true"}
    fields = {"metadata": {"labels": labels}, "spec": {"hard": {"limits.memory": "26Gi"}}}
    quota = manifest("v1", "ResourceQuota", "q", "shop", **fields)
    found = row(cluster(*objects, event(said), quota))
    assert found.remedy.endswith("there: kubectl describe resourcequota q -n shop")


def binding(resource, created="2026-01-01T00:00:00Z"):
    group, made = "admissionregistration.k8s.io/v1", {"creationTimestamp": created}
    rule = {"apiGroups": ["kubevirt.io"], "resources": [resource], "operations": ["CREATE"]}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": []}
    bound = {"policyName": "moves", "validationActions": ["Deny"]}
    return [
        manifest("v1", "Namespace", "shop"),
        manifest(group, "ValidatingAdmissionPolicy", "moves", spec=policy),
        manifest(group, "ValidatingAdmissionPolicyBinding", "all", spec=bound, metadata=made),
    ]


def test_a_policy_may_deny_a_migration_of_which_no_event_says_anything():
    _, objects, _ = CASES["marked too long"]
    found = row(cluster(*objects, *binding("virtualmachineinstancemigrations")))
    assert found.outcome == UNKNOWN
    assert found.reason.endswith(
        "; ValidatingAdmissionPolicyBinding all (ValidatingAdmissionPolicy moves, Deny) covers "
        "virtualmachineinstancemigrations in shop, so it may deny them"
    )
    for others in (binding("pods"), binding("virtualmachineinstancemigrations", ago(1))):
        assert "the cause cannot be determined" in row(cluster(*objects, *others)).reason


# --- details of single rows -----------------------------------------------------------------------


def test_a_migration_that_began_counts_although_the_vm_cannot_migrate_any_more():
    objects = [moving(), LAUNCHER, migration(phase="Running"), target()]
    objects[0].data["status"]["conditions"][0]["status"] = "False"
    found = row(cluster(*objects))
    assert (found.state.state, found.outcome) == (State.RUNNING, MIGRATES)


@pytest.mark.parametrize(("began", "outcome"), [(140, MIGRATES), (160, UNKNOWN)])
def test_a_first_migration_is_not_late_before_kubevirt_itself_would_give_it_up(began, outcome):
    """4Gi take half a minute over an assumed network; ``progressTimeout`` is 150 s."""
    objects = [moving(startTimestamp=ago(began)), LAUNCHER, migration(phase="Running"), target()]
    found = row(cluster(*objects))
    assert (found.state.state, found.outcome) == (State.RUNNING, outcome)


def test_a_vm_whose_migration_stays_open_needs_room_on_another_node():
    left = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "c",
        "targetNode": "a",
        "completed": True,
    }
    objects = [vmi(migrationState=left), LAUNCHER, migration(phase="Running")]
    full = [node(name, unschedulable=True) for name in ("b", "c")]
    found = row(cluster(*objects, *full))
    assert (found.state.state, found.outcome) == (State.NOT_CLOSED, BLOCKS)


@pytest.mark.parametrize("hidden", ["virtualmachineinstancemigrations.kubevirt.io", "pods"])
def test_a_migration_of_which_a_part_was_not_read_is_neither_stuck_nor_done(hidden):
    """Its target pod has the only room; without it the VM has no candidate,
    without the migration two pods.
    """
    full = [node(name, unschedulable=True) for name in ("b", "c")]
    _, objects, _ = CASES["target not ready"]
    whole = cluster(*objects, *full)
    assert row(whole).outcome == MIGRATES
    kept = [each for each in whole if not hidden.startswith(f"{each.kind.lower()}s")]
    assert row(Snapshot(kept, ["*"], [hidden], time=NOW)).outcome == UNKNOWN
    arriving = drain_plan.plan(Snapshot(kept, ["*"], [hidden], time=NOW), "b").nodes[0]
    assert arriving.drainable is None


@pytest.mark.parametrize(
    ("case", "others", "outcome"),
    [
        ("running", ("a", "c"), MIGRATES),  # cancelled at its deadline, then to c
        ("running", ("a",), BLOCKS),
        ("preparing", ("a", "c"), UNKNOWN),
        ("post-copy", ("a", "c"), UNKNOWN),
    ],
)
def test_a_migration_to_a_node_that_does_not_report(case, others, outcome):
    dead = node("b")
    dead.data["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": ago(600)}
    ]
    found = row(cluster(*CASES[case][1], dead, nodes=others))
    assert found.outcome == outcome, found.reason
    assert ("b does not report" in found.reason) is (outcome != BLOCKS)


def test_a_gate_that_replaces_the_deadline_leaves_the_end_open():
    gates = {"developerConfiguration": {"featureGates": ["MigrationStallDetection"]}}
    setting = kubevirt(gates, status={"observedKubeVirtVersion": "v1.9.0"})
    _, objects, _ = CASES["running"]
    assert row(cluster(*objects, setting)).state.until is None


def test_the_time_for_utility_volumes_is_that_of_kubevirt_or_of_the_migration():
    _, objects, _ = CASES["volume"]
    assert clock.stamp(row(cluster(*objects, utilityVolumesTimeout=60)).state.until) == ago(30 - 60)
    own = {"kubevirt.io/migrationUtilityVolumesTimeoutSeconds": "90"}
    blocked = migration(
        conditions=("migrationBlockedByUtilityVolumes",), metadata={"annotations": own}
    )
    found = row(cluster(vmi(**MARKED), LAUNCHER, blocked, utilityVolumesTimeout=60))
    assert clock.stamp(found.state.until) == ago(30 - 90)


def test_a_backup_is_named_and_only_a_critical_migration_aborts_it():
    tracking = {"changedBlockTracking": {"backupStatus": {"backupName": "nightly"}}}
    blocked = {"conditions": ("migrationBlockedByBackup",)}
    critical = migration(**blocked, spec={"priority": "system-critical"}, drain=False)
    ordinary = migration(**blocked, spec={"priority": "system-maintenance"})
    found = row(cluster(vmi(**MARKED, **tracking), LAUNCHER, critical))
    assert found.outcome == MIGRATES
    assert "waits for backup nightly" in found.reason
    assert row(cluster(vmi(**MARKED, **tracking), LAUNCHER, ordinary)).outcome == UNKNOWN


@pytest.mark.parametrize(("release", "kept"), [("v1.6.0", False), ("v1.6.1", True)])
def test_before_1_6_1_nothing_protects_the_pods_that_attach_volumes(release, kept):
    setting = kubevirt({"migrations": {}}, status={"observedKubeVirtVersion": release})
    shared = claim("data", "ReadWriteMany")
    shared.data["spec"] |= {"volumeName": "pv-1", "storageClassName": "shared"}
    shared.data["status"] = {"phase": "Bound"}
    volume = manifest(
        "v1", "PersistentVolume", "pv-1", spec={"nfs": {}, "accessModes": ["ReadWriteMany"]}
    )
    found = row(cluster(vmi(spec=HOTPLUG), LAUNCHER, shared, volume, setting))
    assert found.outcome == MIGRATES, found.reason
    assert ("may detach disks of the running guest" in found.reason) is not kept
    assert bool(found.remedy) is not kept


def test_a_mark_that_outlives_the_drain_can_be_removed_but_not_in_post_copy():
    uncordoned = node("a")
    assert row(cluster(vmi(**MARKED), LAUNCHER, uncordoned)).remedy.endswith(
        "virtctl evacuate-cancel vmi db -n shop"
    )
    objects = [moving(mode="PostCopy"), LAUNCHER, migration(phase="Running"), target(), uncordoned]
    found = row(cluster(*objects))
    assert found.state.flags == (Flag.LEFTOVER,)
    assert found.remedy == ""


def test_failures_of_different_causes_do_not_add_up():
    reset = [
        failed(number, "connection reset by peer", age=9000 - number * 1000) for number in (1, 2)
    ]
    pair = failed(3, "guest CPU doesn't match specification: missing features: vmx", age=5000)
    found = row(cluster(vmi(), LAUNCHER, *reset, pair))
    assert found.outcome == MIGRATES
    assert found.placement.certain == ("c",)


def test_three_failures_block_whatever_created_the_migrations():
    asked = [
        failed(number, "connection reset", age=9000 - number * 1000, drain=False)
        for number in (1, 2, 3)
    ]
    assert row(cluster(vmi(), LAUNCHER, *asked)).outcome == BLOCKS


def test_a_vm_that_has_left_says_since_when():
    left = {
        "migrationUid": "x",
        "sourceNode": "a",
        "targetNode": "b",
        "completed": True,
        "endTimestamp": ago(40),
    }
    objects = [vmi(on="b", migrationState=left), LAUNCHER, launcher(on="b", suffix="2", age=100)]
    (found,) = drain_plan.plan(cluster(*objects, time=NOW), "a").nodes[0].visitors
    assert (found.state.state, clock.stamp(found.state.since)) == (State.ARRIVED, ago(40))
