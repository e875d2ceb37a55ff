"""A long name of a VM, whose claim of vTPM state KubeVirt does not find again."""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.test_vm_states import BLOCKS, MIGRATES, row
from tests.forecasts.drain.vm_motion import cluster, launcher, migration, vmi

LONG = "a-name-of-thirty-eight-characters-long"


def drained(*more, name=LONG, release="v1.7.0", volume="", persistent=True, state=None):
    claim = volume or f"persistent-state-for-{name}-"[:58] + "x7k2p"
    status = [{"name": claim, "persistentVolumeClaimInfo": {"claimName": claim}}]
    domain = {"devices": {"tpm": {"persistent": persistent}}, "memory": {"guest": "4Gi"}}
    guest = vmi(name, spec={"domain": domain}, volumeStatus=status, migrationState=state)
    known = kubevirt({}, status={"observedKubeVirtVersion": release})
    return row(cluster(guest, launcher(name), known, *more), name)


@pytest.mark.parametrize(
    ("release", "fixed"),
    [
        ("v1.4.0", "1.6.5"),
        ("v1.6.4", "1.6.5"),
        ("v1.7.2-150700.3", "1.7.3"),
        ("v1.8.1", "1.8.2"),
        ("v1.6.5", ""),
        ("v1.7.3", ""),
        ("v1.8.2", ""),
        ("v1.9.0", ""),
    ],
)
def test_the_releases_that_do_not_find_it(release, fixed):
    found = drained(release=release)

    assert found.outcome == (BLOCKS if fixed else MIGRATES)
    assert ("each of its migrations stays Pending" in found.reason) is bool(fixed)
    assert (f"update KubeVirt to {fixed} or later" in found.remedy) is bool(fixed)


@pytest.mark.parametrize(
    "case",
    [
        {"name": LONG[1:]},
        {"volume": f"restore-1-persistent-state-for-{LONG}"},
        {"persistent": False},
        {"state": {"completed": True, "endTimestamp": "2027-03-01T09:00:00Z"}},
    ],
    ids=["37 characters are kept", "a restored claim has the whole", "no state", "it migrated"],
)
def test_a_claim_that_is_found(case):
    assert drained(**case).outcome == MIGRATES


def test_a_migration_that_waits_is_told_with_it():
    found = drained(migration("next", of=LONG, age=1000, drain=False))

    assert found.outcome == BLOCKS
    assert f"virtctl stop {LONG} -n shop" in found.remedy
    assert "loses the keys of its vTPM" in found.remedy
