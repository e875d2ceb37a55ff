"""Copies of memory that made no progress: what is off, where it is set, and what helps."""

import pytest

from tests.builders import kubevirt, manifest
from tests.forecasts.drain.test_vm_states import LAUNCHER, UNKNOWN, row
from tests.forecasts.drain.vm_motion import ago, cluster, failed, launcher, migration, vmi

STUCK = "Live migration stuck for 151 seconds and has been aborted"
TWICE = [failed(number, STUCK, age=4000 - 900 * number, lasted=300) for number in (1, 2)]
SETTINGS = {"completionTimeoutPerGiB": 150}


def other(source="a", age=3000, of="web"):
    """Return a migration of a VM that succeeded."""
    times = {"startTimestamp": ago(age + 60), "endTimestamp": ago(age)}
    moved = {"sourceNode": source, "targetNode": "c", "completed": True, **times}
    return migration("other", "Succeeded", of=of, age=age + 90, drain=False, **moved)


def stuck(*more, **settings):
    return row(cluster(vmi(), LAUNCHER, *TWICE, *more, **{**SETTINGS, **settings}))


def test_what_is_off_is_told_with_its_place_and_the_deadline_before_which_post_copy_begins():
    """4Gi are 5 GB, so the deadline is 750 s, and the copies ended after 300 s."""
    found = stuck()

    assert found.outcome == UNKNOWN
    assert "its last 2 migrations were aborted after 5 min" in found.reason
    assert "as fast as it is copied, or the network to the targets stalls" in found.reason
    assert "neither allowAutoConverge nor allowPostCopy is on (KubeVirt " in found.reason
    assert "spec.configuration.migrations)" in found.reason
    assert "completionTimeoutPerGiB 60 or less" in found.remedy
    assert "kubectl edit kubevirt" in found.remedy
    assert "MigrationPolicy that selects this VM alone" in found.remedy


@pytest.mark.parametrize(
    ("more", "proves"),
    [
        (other(), True),
        (other(source="b"), False),
        (other(age=90_000), False),
        (other(of="db", age=5000), False),
    ],
)
def test_another_vm_that_left_the_node_that_day_shows_that_the_network_works(more, proves):
    reason = stuck(more).reason

    assert ("and not the network: shop/web went from a to c in 60 s" in reason) is proves
    assert ("or the network to the targets stalls" in reason) is not proves


def test_a_policy_that_selects_the_vm_is_the_place():
    spec = {"allowAutoConverge": False, "selectors": {"virtualMachineInstanceSelector": {}}}
    policy = manifest("migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "slow", "", spec=spec)
    found = stuck(policy)

    assert "(MigrationPolicy slow, spec)" in found.reason
    assert "selects this VM alone" not in found.remedy


def test_post_copy_on_a_stall_needs_no_shorter_deadline():
    gates = {"developerConfiguration": {"featureGates": ["MigrationStallDetection"]}}
    gated = kubevirt(
        {"migrations": SETTINGS, **gates}, status={"observedKubeVirtVersion": "v1.9.0"}
    )

    assert "completionTimeoutPerGiB" not in stuck(gated).remedy


def test_the_one_that_runs_is_told_with_the_last_ones():
    running = migration("now", "Running", age=500, drain=False, since={"Running": 500})
    state = {
        "migrationUid": "uid-now",
        "startTimestamp": ago(490),
        "sourceNode": "a",
        "targetNode": "b",
    }
    target = launcher(suffix="2", on="b", job="uid-now", age=500)
    found = row(cluster(vmi(migrationState=state), LAUNCHER, target, *TWICE, running, **SETTINGS))

    assert "has been migrating to b for 8 min" in found.reason
    assert " at the latest; " in found.reason
    assert "its last 2 migrations were aborted" in found.reason
