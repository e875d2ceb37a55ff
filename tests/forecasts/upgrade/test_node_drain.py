"""How long a drain of one node lasts from now."""

from __future__ import annotations

import pytest

from tests.forecasts.drain.vm_motion import ago, cluster, launcher, migration, node, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import node_drain
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.kubernetes.cluster import Snapshot

LAST = {
    "migrationUid": "uid-old",
    "completed": True,
    "sourceNode": "c",
    "targetNode": "a",
    "startTimestamp": ago(5000),
    "endTimestamp": ago(4900),
}
"""The last migration took 100 s, so the next one takes 100 to 150 s."""


def guests(count, **fields):
    return [
        obj
        for number in range(count)
        for obj in (vmi(f"vm{number}", migrationState=LAST, **fields), launcher(f"vm{number}"))
    ]


def seconds(*objects, pods=0, of="a", **kubevirt):
    snapshot = cluster(*objects, **kubevirt)
    return node_drain.remaining(drain_plan.plan(snapshot, of).nodes[0], pods, snapshot)


def test_one_migration():
    assert seconds(*guests(1)) == Range(100, 155)


@pytest.mark.parametrize(
    ("places", "low", "high"),
    [(1, 400, 4 * 150 + 4 * 5), (2, 200, 2 * 150 + 75 + 2 * 5), (4, 100, 150 + 112.5 + 5)],
)
def test_places_of_the_queue(places, low, high):
    """In the worst order the longest migration begins last;
    each look at the queue takes up to 5 s.
    """
    found = seconds(*guests(4), parallelOutboundMigrationsPerNode=places)
    assert found is not None
    assert (found.low, found.high) == (low, round(high + 0.01))


def test_the_limit_of_the_cluster_is_shared():
    """The migration of another node may go first."""
    web = vmi("web", on="b")
    web.data["status"]["migrationState"] = LAST
    other = [web, launcher("web", "b"), migration(of="web")]
    alone = seconds(*guests(1), parallelMigrationsPerCluster=1)
    shared = seconds(*guests(1), *other, parallelMigrationsPerCluster=1)
    assert alone is not None
    assert shared is not None
    assert (shared.low, shared.high) == (alone.low, alone.high + 150)
    assert seconds(*guests(1), *other, parallelMigrationsPerCluster=5) == alone


def running(since):
    state = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "a",
        "targetNode": "b",
        "startTimestamp": ago(since),
    }
    return [
        vmi(evacuationNodeName="a", migrationState=state),
        launcher(),
        launcher(on="b", suffix="2", job="uid-evacuation-1", age=since + 5),
        migration(phase="Running", age=since + 10, since={"Running": since}),
    ]


def test_a_running_migration_has_what_is_left_and_at_most_its_deadline():
    """5 GB of 150 s: the deadline is 750 s after the start."""
    early, later = (
        seconds(*running(2), allowPostCopy=True),
        seconds(*running(700), allowPostCopy=True),
    )
    assert early is not None
    assert later is not None
    assert (early.high, later.high) == (748 + 5, 50 + 5)
    assert early.low > later.low == 0


def test_a_shutdown_waits_for_no_place_and_other_pods_have_their_grace_period():
    off = vmi(spec={"evictionStrategy": "None", "terminationGracePeriodSeconds": 600})
    assert seconds(off, launcher()) == Range(5, 630)
    assert seconds(pods=3) == Range(0, 30)
    assert seconds() == Range(0, 0)


@pytest.mark.parametrize(
    "objects",
    [
        [vmi(spec={"evictionStrategy": "External"}), launcher()],
        [*guests(1), *(node(name, unschedulable=True) for name in ("b", "c"))],
        running(10_000),
    ],
    ids=["blocks", "no room", "far too slow"],
)
def test_a_drain_that_does_not_end_or_whose_end_is_not_known_has_no_estimate(objects):
    assert seconds(*objects) is None


def test_limits_that_cannot_be_read_leave_no_estimate():
    known = [obj for obj in cluster(*guests(1)) if obj.kind != "KubeVirt"]
    snapshot = Snapshot(known, ["nodes", "pods"])
    assert node_drain.remaining(drain_plan.plan(snapshot, "a").nodes[0], 0, snapshot) is None


def test_a_migration_that_stays_open_has_no_known_end():
    def opened(age):
        state = {
            "migrationUid": "uid-evacuation-1",
            "sourceNode": "c",
            "completed": True,
            "endTimestamp": ago(age),
        }
        return [
            vmi(conditions=[{"type": "HotVCPUChange", "status": "True"}], migrationState=state),
            launcher(),
            migration(phase="Running", age=age + 60),
        ]

    assert seconds(*opened(60)) is not None
    assert seconds(*opened(1200)) is None


def test_a_vm_that_arrives_has_to_leave_again():
    arriving = vmi("web", on="b")
    arriving.data["status"]["migrationState"] = {
        "migrationUid": "uid-evacuation-1",
        "sourceNode": "b",
        "targetNode": "a",
        "startTimestamp": ago(10),
    }
    objects = [
        arriving,
        launcher("web", "b"),
        launcher("web", "a", "2", job="uid-evacuation-1", age=15),
        migration(of="web", phase="Running", age=20, drain=False),
    ]
    found = seconds(*objects)
    assert found is not None
    assert found.high > 600
