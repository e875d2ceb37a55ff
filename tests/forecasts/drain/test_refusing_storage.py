"""The cause of an I/O error: only a check of Ceph that stops reads or writes, and only of the
cluster that has the volume.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.problems import Problem

BLOCK = "rook-ceph.rbd.csi.ceph.com"
FILES = "rook-ceph.cephfs.csi.ceph.com"


def problem(
    code: str, severity: str = "HEALTH_ERR", message: str = "", **volume: Any
) -> Problem | None:
    """Return what a Ceph cluster with one failing check has to do with a volume; volume: driver,
    clusterID and namespace.
    """
    space = volume.get("namespace", "rook-ceph")
    said = {"health": severity, "details": {code: {"severity": severity, "message": message}}}
    ceph = manifest("ceph.rook.io/v1", "CephCluster", "ceph", space, status={"ceph": said})
    attributes = {"clusterID": volume["where"]} if "where" in volume else {}
    csi = {
        "driver": volume.get("driver", BLOCK),
        "volumeHandle": "x",
        "volumeAttributes": attributes,
    }
    claim = manifest("v1", "PersistentVolumeClaim", "disk", "vms", spec={"volumeName": "pv"})
    pv = manifest("v1", "PersistentVolume", "pv", spec={"csi": csi})
    return refusing_storage.problem("vms", "disk", Snapshot([ceph, claim, pv], complete=["*"]))


@pytest.mark.parametrize(
    ("code", "severity", "message"),
    [
        ("OSD_FULL", "HEALTH_ERR", "1 full osd(s)"),
        ("POOL_FULL", "HEALTH_WARN", "1 pool(s) full"),
        ("PG_AVAILABILITY", "HEALTH_WARN", "Reduced data availability"),
        ("OBJECT_UNFOUND", "HEALTH_WARN", "1/9 objects unfound"),
        ("OSDMAP_FLAGS", "HEALTH_WARN", "pauserd,pausewr,noout flag(s) set"),
    ],
)
def test_a_check_that_stops_reads_or_writes_is_the_cause(
    code: str, severity: str, message: str
) -> None:
    found = problem(code, severity, message)
    assert found is not None
    assert code in found.reason


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("MGR_MODULE_ERROR", "Module 'x' has failed"),
        ("OSD_SCRUB_ERRORS", "1 scrub errors"),
        ("OSD_BACKFILLFULL", "1 backfillfull osd(s)"),
        ("MDS_ALL_DOWN", "1 filesystem is offline"),
        ("OSDMAP_FLAGS", "noout,nearfull flag(s) set"),
        ("PG_AVAILABILITY", "Reduced data availability: 1 pg peering"),
    ],
)
def test_other_errors_are_not_the_cause(code: str, message: str) -> None:
    assert problem(code, message=message) is None


def test_a_file_system_needs_an_mds() -> None:
    assert problem("MDS_ALL_DOWN", driver=FILES) is not None


def test_only_the_cluster_of_the_volume_counts() -> None:
    assert problem("OSD_FULL", where="storage", namespace="storage") is not None
    assert problem("OSD_FULL", where="storage") is None
    assert problem("OSD_FULL", driver="storage.rbd.csi.ceph.com") is None


def test_a_pool_that_is_full_has_a_quota() -> None:
    """A larger full ratio, or another OSD, does not help."""
    found = problem("POOL_FULL")
    assert found is not None
    assert "raise the quota of the pool" in found.remedy
    assert "set-full-ratio" not in found.remedy


@pytest.mark.parametrize(
    ("since", "code", "waits"),
    [
        ("2026-11-01T11:00:00Z", "PG_AVAILABILITY", True),
        ("2026-11-01T11:57:00Z", "PG_AVAILABILITY", False),  # an OSD may have been restarted
        ("2026-11-01T11:00:00Z", "OSD_NEARFULL", False),
        ("2026-11-01T11:00:00Z", "POOL_FULL", False),  # may be a pool of another class
    ],
)
def test_a_guest_in_a_ceph_that_takes_no_writes_may_not_migrate(
    since: str, code: str, waits: bool
) -> None:
    found = refusing_storage.doubt("vms", ["disk"], _cluster(since, code, complete=["*"]))
    assert (found is not None) is waits


@pytest.mark.parametrize(
    ("health", "other", "severity", "lasts"),
    [
        ("HEALTH_WARN", "OSDMAP_FLAGS", "HEALTH_WARN", False),
        ("HEALTH_WARN", "POOL_FULL", "HEALTH_WARN", False),
        ("HEALTH_WARN", "OSD_NEARFULL", "HEALTH_WARN", False),
        ("HEALTH_WARN", "MON_DOWN", "HEALTH_WARN", False),
        ("HEALTH_WARN", "PG_DEGRADED", "HEALTH_WARN", False),
        ("HEALTH_WARN", "PG_BACKFILL_FULL", "HEALTH_WARN", False),
        ("HEALTH_WARN", "OBJECT_MISPLACED", "HEALTH_WARN", False),
        ("HEALTH_ERR", "PG_DAMAGED", "HEALTH_ERR", False),
        ("HEALTH_ERR", "OSDMAP_FLAGS", "HEALTH_WARN", True),
        ("HEALTH_WARN", "OSD_HOST_DOWN", "HEALTH_WARN", True),
    ],
)
def test_the_time_of_the_health_is_that_of_all_its_checks(
    health: str, other: str, severity: str, lasts: bool
) -> None:
    checks = {"PG_AVAILABILITY": "HEALTH_WARN", other: severity}
    found = refusing_storage.doubt("vms", ["disk"], _ceph(health, checks))
    assert found is not None
    assert ("as long as this lasts" in found.reason) is not lasts
    assert found.remedy.startswith("repair" if lasts else "see whether that lasts 10 min, and")


@pytest.mark.parametrize(
    ("seconds", "daemons", "lasts"),
    [(75312, "[osd.0,osd.2]", True), (40, "[osd.0]", False), (75312, "[mon.a,osd.0]", False)],
)
def test_a_request_that_waits_for_long_says_since_when(
    seconds: int, daemons: str, lasts: bool
) -> None:
    slow = f"112 slow ops, oldest one blocked for {seconds} sec, daemons {daemons} have slow ops."
    checks = dict.fromkeys(("PG_AVAILABILITY", "SLOW_OPS", "OSD_NEARFULL"), "HEALTH_WARN")
    found = refusing_storage.doubt("vms", ["disk"], _ceph("HEALTH_WARN", checks, message=slow))
    assert found is not None
    assert ("as long as this lasts" in found.reason) is not lasts


def test_a_ceph_that_cannot_be_read_is_not_a_healthy_one() -> None:
    with pytest.raises(Unseen):
        refusing_storage.doubt("vms", ["disk"], _cluster("", "", complete=["persistentvolumes"]))


def _cluster(since: str, code: str, complete: list[str]) -> Snapshot:
    """Return a claim of Rook, and its Ceph cluster if a code is given."""
    return _ceph("HEALTH_WARN", {code: "HEALTH_WARN"} if code else {}, since, complete)


def _ceph(
    health: str,
    checks: dict[str, str],
    since: str = "2026-10-26T11:00:00Z",
    complete: Sequence[str] = ("*",),
    message: str = "x",
) -> Snapshot:
    details = {code: {"severity": each, "message": message} for code, each in checks.items()}
    said = {"health": health, "lastChanged": since, "details": details}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-01T12:00:00Z"}
    ceph = manifest("ceph.rook.io/v1", "CephCluster", "ceph", "rook-ceph", status={"ceph": said})
    csi = {"driver": BLOCK, "volumeHandle": "x"}
    objects = [
        manifest("v1", "Node", "a", status={"conditions": [ready]}),
        manifest("v1", "PersistentVolumeClaim", "disk", "vms", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
    ]
    return Snapshot([*objects, *([ceph] if checks else [])], complete=complete)


@pytest.mark.parametrize(("robustness", "doubts"), [("faulted", True), ("degraded", False)])
def test_a_volume_whose_copies_have_all_failed_is_not_attached_again(
    robustness: str, doubts: bool
) -> None:
    csi = {"driver": refusing_storage.LONGHORN, "volumeHandle": "v1"}
    found = refusing_storage.doubt(
        "vms",
        ["data"],
        Snapshot(
            [
                manifest("v1", "PersistentVolumeClaim", "data", "vms", spec={"volumeName": "pv"}),
                manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
                manifest(
                    *("longhorn.io/v1beta2", "Volume", "v1", "longhorn-system"),
                    status={"robustness": robustness},
                ),
            ],
            complete=["*"],
        ),
    )
    assert (found is not None) is doubts
    if found is not None:
        assert found.reason.startswith("no migration attaches its volume: Longhorn volume v1 of")
