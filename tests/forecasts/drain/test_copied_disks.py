"""A migration that copies disks and ends at its time-out: how long it may take is what KubeVirt
did before, and a calculation only where it has ended none.
"""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.test_vm_states import LAUNCHER, row
from tests.forecasts.drain.vm_motion import ago, cluster, migration, vmi
from virt_admit.model.kubevirt.instances import migration_history, migration_timeouts

CONFIGURATION = {"completionTimeoutPerGiB": 150, "allowWorkloadDisruption": False}
LABELS = {"labels": {"kubevirt.io/volume-update-migration": "db"}}
SIZE = {"capacity": {"storage": "80Gi"}, "requests": {"storage": "80Gi"}}
LARGER = {"capacity": {"storage": "200Gi"}, "requests": {"storage": "200Gi"}}
COPIED = {
    "volumeName": "root",
    "sourcePVCInfo": {"claimName": "old", **SIZE},
    "destinationPVCInfo": {"claimName": "new", **LARGER},
}


def attempt(number, seconds, *, text=None, completion=150):
    """Return a migration of volumes that KubeVirt ended after so many seconds."""
    end = 3000 - number * 1000
    return migration(
        f"kubevirt-workload-update-{number}",
        "Failed",
        age=end + seconds + 10,
        drain=False,
        metadata=LABELS | {"annotations": {"kubevirt.io/workloadUpdateMigration": ""}},
        sourceNode="a",
        targetNode="b",
        failed=True,
        completed=True,
        migrationConfiguration=CONFIGURATION | {"completionTimeoutPerGiB": completion},
        failureReason=text
        or f"Live migration is not completed after {seconds} seconds and has been aborted",
        startTimestamp=ago(end + seconds),
        endTimestamp=ago(end),
    )


def copying(**state):
    own = {"migrationUid": "uid-now", "sourceNode": "a", "targetNode": "b"} | state
    return vmi(
        migratedVolumes=[COPIED],
        conditions=[{"type": "VolumesChange", "status": "True"}],
        migrationState=own,
    )


def asked(*tries, release="v1.6.0", **state):
    settings = kubevirt(
        {"migrations": {"completionTimeoutPerGiB": 150}},
        status={"observedKubeVirtVersion": release},
    )
    return cluster(copying(**state), LAUNCHER, *tries, settings)


@pytest.mark.parametrize(
    ("release", "says", "remedy"),
    [
        ("v1.6.0", "KubeVirt 1.6.0 counts its memory alone", "to 2730 or more"),
        ("v1.7.1", "KubeVirt 1.7.1 counts its memory alone", "1.7.2 or later"),
        ("v1.7.2", "", "counts for each GB of its disks too"),
        ("v1.9.0", "", "counts for each GB of its disks too"),
    ],
)
def test_the_time_of_the_attempts_is_said(release, says, remedy):
    found = row(asked(attempt(0, 600), attempt(1, 600), release=release))

    assert "its last 2 migrations were cancelled after 10 min each: timed out" in found.reason
    assert says in found.reason
    assert ("memory alone" in found.reason) is bool(says)
    assert remedy in found.remedy
    assert ("name old in the VM again" in found.remedy) is bool(says)


def test_attempts_that_lasted_differently_have_a_range():
    found = row(asked(attempt(0, 600), attempt(1, 1800)))
    assert "were cancelled after 10 min to 30 min: timed out" in found.reason


def test_attempts_without_a_number_lasted_from_start_to_end():
    """Releases from 1.9 on say no number."""
    long = 150 * 91 + 20
    words = {"text": "Live migration has been aborted"}
    tries = attempt(0, long, **words), attempt(1, long, **words)
    found = row(asked(*tries, release="v1.9.0"))

    assert "were cancelled after 3 h 47 each" in found.reason


@pytest.mark.parametrize(
    ("tries", "release", "limit"),
    [
        ([attempt(0, 91 * 150)], "v1.6.0", 91 * 150),
        ([attempt(0, 5 * 150)], "v1.8.0", 5 * 150),
        ([attempt(0, 91 * 150, completion=800)], "v1.6.0", 5 * 150),  # another setting
        ([attempt(0, 600)], "v1.8.0", 91 * 150),  # the VM had less memory
        ([], "v1.6.0", 5 * 150),
        ([], "v1.7.2", 91 * 150),
    ],
)
def test_the_next_time_out_follows_the_last_one(tries, release, limit):
    running = migration("now", "Running", drain=False, age=70, metadata=LABELS)
    state = {"startTimestamp": ago(60), "migrationConfiguration": CONFIGURATION}
    found = row(asked(*tries, running, release=release, **state)).state

    assert found.until is not None
    assert found.since is not None
    assert (found.until - found.since).total_seconds() == limit


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ({}, 80 * 2**30),
        ({"requests": {"storage": "60Gi"}}, 60 * 2**30),
        ({"capacity": {"storage": "90Gi"}}, 80 * 2**30),
        ({"capacity": {}}, 0),
    ],
)
def test_the_claim_that_a_disk_leaves_counts(source, counted):
    found, memory = copying(), migration_timeouts.size(vmi())
    found.data["status"]["migratedVolumes"] = [
        COPIED | {"sourcePVCInfo": COPIED["sourcePVCInfo"] | source}
    ]
    assert migration_timeouts.size(found) - memory == counted


def test_an_ended_migration_was_asked_for_by_its_label():
    one, other = attempt(0, 600), attempt(1, 600)
    del other.data["metadata"]["labels"]
    found = {
        each.name: each.asked_by for each in migration_history.history(copying(), asked(one, other))
    }

    assert found == {one.name: "a change of its volumes", other.name: "update of KubeVirt"}
