"""A start that hangs at a volume of Ceph: the health of its cluster is the cause, if that stops
reads or writes, and no error of another kind.
"""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POD

_NOON = "2026-11-01T12:00:00Z"
_RUNS = "rpc error: code = Aborted desc = an operation with the given Volume ID x already exists"
_INACTIVE = {"PG_AVAILABILITY": {"message": "8 pgs inactive", "severity": "HEALTH_WARN"}}
_NEARLY_FULL = {"OSD_NEARFULL": {"message": "1 nearfull osd(s)", "severity": "HEALTH_WARN"}}


def _start(error: str, details: dict[str, object], *others: dict) -> tuple[str, str]:
    """Return why a pod does not start, and what repairs it."""
    claim = {"claimName": "disk"}
    pod = manifest(
        "v1",
        "Pod",
        "p",
        "vms",
        metadata={"creationTimestamp": "2026-11-01T11:50:00Z"},
        spec={"nodeName": "a", "volumes": [{"name": "v", "persistentVolumeClaim": claim}]},
        status={"phase": "Pending"},
    )
    event = manifest(
        "v1",
        "Event",
        "e",
        "vms",
        type="Warning",
        reason="FailedMapVolume",
        lastTimestamp="2026-11-01T11:59:00Z",
        involvedObject={"kind": "Pod", "name": "p", "namespace": "vms"},
        message=f'MapVolume.SetUpDevice failed for volume "pv" : {error}',
    )
    csi = {"driver": "rook-ceph.rbd.csi.ceph.com", "volumeHandle": "x"}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _NOON}
    ceph = {"health": "HEALTH_WARN", "details": details}
    objects = [
        pod,
        event,
        manifest("v1", "Node", "a", status={"conditions": [ready]}),
        manifest("v1", "PersistentVolumeClaim", "disk", "vms", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
        manifest("ceph.rook.io/v1", "CephCluster", "c", "rook-ceph", status={"ceph": ceph}),
        *others,
    ]
    cluster = Snapshot(objects, complete=["*"])
    (found,) = (each for each in cluster.known(POD) if each.name == "p")
    fault = pod_starts.fault(found, cluster)
    return (fault.words, fault.remedy) if fault is not None else ("", "")


@pytest.mark.parametrize("error", [_RUNS, "rpc error: code = DeadlineExceeded desc = late"])
def test_a_call_that_hangs_has_the_health_of_ceph_as_its_cause(error: str) -> None:
    said, remedy = _start(error, _INACTIVE)
    assert "MapVolume of claim disk hangs" in said
    assert "CephCluster rook-ceph/c is not healthy (HEALTH_WARN: PG_AVAILABILITY" in said
    assert remedy.startswith("repair the Ceph cluster")


def test_the_osd_that_is_down_comes_first() -> None:
    osd = manifest(
        "v1",
        "Pod",
        "osd",
        "rook-ceph",
        metadata={"labels": {"ceph-osd-id": "1"}},
        spec={"nodeName": "b", "containers": [{"name": "osd"}]},
        status={"conditions": [{"type": "Ready", "status": "False"}]},
    )
    down = {"OSD_DOWN": {"message": "1 osds down", "severity": "HEALTH_WARN"}}
    said, remedy = _start(_RUNS, _INACTIVE | down, osd)
    assert "OSD 1 on b is down" in said
    assert "bring OSD 1 on b back, and do not remove it" in remedy


@pytest.mark.parametrize(
    ("error", "details"),
    [
        (_RUNS, _NEARLY_FULL),
        ("rpc error: code = Internal desc = rbd: map failed: permission denied", _INACTIVE),
    ],
)
def test_another_error_or_a_ceph_that_takes_writes_is_not_the_cause(
    error: str, details: dict[str, object]
) -> None:
    said, remedy = _start(error, details)
    assert "CephCluster" not in said
    assert "driver rook-ceph.rbd.csi.ceph.com" in remedy
