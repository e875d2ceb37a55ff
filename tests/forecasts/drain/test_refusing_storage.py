"""The cause of an I/O error: only a check of Ceph that stops reads or writes, and only of the
cluster that has the volume.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain.guests import refusing_storage
from virt_admit.model.kubernetes.cluster import Snapshot
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
