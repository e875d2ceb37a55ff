"""Claims whose provisioner gets no answer: which error tells why, and what its storage says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NAMESPACE, manifest
from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.problems import Problem

NOW = "2027-03-01T12:00:00Z"
DRIVER = "rook-ceph.rbd.csi.ceph.com"
RUNS = "rpc error: code = Aborted desc = an operation with the given Volume ID pvc-1 already exists"
SLOW = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
CLASS = manifest("storage.k8s.io/v1", "StorageClass", "fast", provisioner=DRIVER)
LATER = manifest(
    "storage.k8s.io/v1",
    "StorageClass",
    "fast",
    provisioner=DRIVER,
    volumeBindingMode="WaitForFirstConsumer",
)


def claim(made: str = "2027-03-01T11:00:00Z", **annotations: str) -> Object:
    metadata = {"creationTimestamp": made, "annotations": annotations}
    spec, status = {"storageClassName": "fast"}, {"phase": "Pending"}
    kind = ("v1", "PersistentVolumeClaim", "disk", NAMESPACE)
    return manifest(*kind, metadata=metadata, spec=spec, status=status)


def event(message: str, at: str = "11:58") -> Object:
    obj = manifest("v1", "Event", f"e-{at}".replace(":", ""), NAMESPACE)
    about = {"kind": "PersistentVolumeClaim", "name": "disk", "namespace": NAMESPACE}
    obj.data |= {"involvedObject": about, "type": "Warning", "reason": "ProvisioningFailed"}
    return Object(obj.data | {"message": message, "lastTimestamp": f"2027-03-01T{at}:00Z"})


def ceph(health: str = "HEALTH_ERR", code: str = "OSD_FULL", space: str = "rook-ceph") -> Object:
    details = {code: {"severity": health, "message": "1 full osd(s)"}}
    status = {"ceph": {"health": health, "details": details}}
    return manifest("ceph.rook.io/v1", "CephCluster", "store", space, status=status)


def found(*objects: Object, storage: Object = CLASS, own: Object | None = None) -> Problem | None:
    volumes: list[dict[str, Any]] = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}},
    ]
    kind = ("kubevirt.io/v1", "VirtualMachineInstance", "db", NAMESPACE)
    vmi = manifest(*kind, spec={"volumes": volumes})
    return provisioners.of_vm(vmi, Snapshot([own or claim(), storage, *objects], ["*"], time=NOW))


def test_the_storage_of_the_class_is_full() -> None:
    problem = found(event(RUNS), event(SLOW, "11:05"), ceph())

    assert problem is not None
    assert problem.reason.startswith(
        "its claim disk is Pending: CephCluster rook-ceph/store is full (HEALTH_ERR: OSD_FULL"
    )
    assert problem.reason.endswith(f"gets no answer from its storage: {SLOW}")
    assert command_of(problem.remedy) == "kubectl describe cephcluster store -n rook-ceph"


@pytest.mark.parametrize(
    "others",
    [(), (ceph("HEALTH_WARN", "OSD_NEARFULL"),), (ceph(space="other"),)],
    ids=["not known", "nearly full", "another cluster"],
)
def test_storage_that_says_nothing_is_not_accused(others: tuple[Object, ...]) -> None:
    problem = found(event(RUNS), event(SLOW, "11:05"), *others)

    assert problem is not None
    assert "Ceph" not in problem.reason
    assert f"provisioner {DRIVER} gets no answer from its storage: {SLOW}" in problem.reason
    assert problem.remedy.startswith("see whether the storage of class fast works")


def test_another_error_is_its_own_cause() -> None:
    problem = found(event("rpc error: code = NotFound desc = pool x not found"), ceph())

    assert problem is not None
    assert problem.reason.endswith("pool x not found")


def test_without_events_a_full_storage_tells_why_a_claim_waits() -> None:
    problem = found(ceph())

    assert problem is not None
    assert "CephCluster rook-ceph/store is full" in problem.reason
    chosen = claim(**{"volume.kubernetes.io/selected-node": "a"})
    assert found(ceph(), storage=LATER, own=chosen) is not None


def test_a_claim_that_waits_as_usual_is_not_accused() -> None:
    assert found(ceph(), storage=LATER) is None
    assert found(ceph(), own=claim("2027-03-01T11:57:00Z")) is None
    assert found() is None
