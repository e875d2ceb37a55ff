"""Claims whose provisioner gets no answer: which error tells why, and what its storage says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NAMESPACE, manifest, warning
from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.forecasts.placement.components.drivers import trident_backends
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
    return warning(claim(), "ProvisioningFailed", message, f"2027-03-01T{at}:00Z")


def ceph(health: str = "HEALTH_ERR", code: str = "OSD_FULL", space: str = "rook-ceph") -> Object:
    details = {code: {"severity": health, "message": "1 full osd(s)"}}
    status = {"ceph": {"health": health, "details": details}}
    return manifest("ceph.rook.io/v1", "CephCluster", "store", space, status=status)


def found(*objects: Object, storage: Object = CLASS, own: Object | None = None) -> Problem | None:
    volumes: list[dict[str, Any]] = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
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


TRIDENT = manifest(
    *("storage.k8s.io/v1", "StorageClass", "fast"),
    provisioner="csi.trident.netapp.io",
    parameters={"backendType": "ontap-san"},
)
NONE_LEFT = "rpc error: code = Unknown desc = no available backends for storage class fast"


def backend(state: str = "failed") -> Object:
    obj = manifest("trident.netapp.io/v1", "TridentBackend", "tbe-1", "trident")
    return Object(obj.data | {"backendName": "san", "backendUUID": "u1", "state": state})


def config(message: str, driver: str = "ontap-san", uuid: str = "u1") -> Object:
    spec = {"storageDriverName": driver, "credentials": {"name": "login"}}
    status = {"backendInfo": {"backendUUID": uuid}, "lastOperationStatus": "Failed"}
    name = {"u1": "san"}.get(uuid, uuid)
    kind = ("trident.netapp.io/v1", "TridentBackendConfig", name, "trident")
    return manifest(*kind, spec=spec, status=status | {"message": message})


def test_the_login_of_a_backend_of_trident_is_refused() -> None:
    refused = "response code 401 (Unauthorized): incorrect or missing credentials"
    problem = found(event(NONE_LEFT), backend(), config(refused), storage=TRIDENT)
    assert problem is not None
    assert problem.reason.endswith(
        "Trident has no backend for class fast: TridentBackend trident/tbe-1 (backend san) is "
        f"failed, not online (TridentBackendConfig trident/san: {refused})"
    )
    assert command_of(problem.remedy) == "kubectl edit secret login -n trident"


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([backend()], "is failed, not online"),
        ([backend(), config("no route to host")], "no route to host"),
        ([backend("online"), config("no route to host")], "no available backends"),
        ([backend(), config("no route to host", "ontap-nas")], "no available backends"),
    ],
    ids=["no config", "another error", "it is online", "of another type"],
)
def test_a_backend_without_a_refused_login(objects: list[Object], says: str) -> None:
    problem = found(event(NONE_LEFT), *objects, storage=TRIDENT)
    assert problem is not None
    assert says in problem.reason
    assert "Secret" not in problem.remedy


REFUSED = "response code 401 (Unauthorized): incorrect or missing credentials"


def other(state: str = "online") -> Object:
    obj = manifest("trident.netapp.io/v1", "TridentBackend", "tbe-2", "trident")
    return Object(obj.data | {"backendName": "nas", "backendUUID": "u2", "state": state})


def of(**parameters: str) -> Object:
    kind = ("storage.k8s.io/v1", "StorageClass", "fast")
    return manifest(*kind, provisioner="csi.trident.netapp.io", parameters=parameters)


@pytest.mark.parametrize(
    ("storage", "objects"),
    [
        (of(), []),
        (of(fsType="ext4"), []),
        (TRIDENT, [other(), config("", "ontap-nas", "u2")]),
        (of(storagePools="san:.*"), [other()]),
        (of(storagePools="^san$:fast,.*", backendType="ontap-san"), [other()]),
    ],
    ids=["the only one", "its file system", "of the type", "of the pools", "of both"],
)
def test_the_backend_that_a_class_asks_for(storage: Object, objects: list[Object]) -> None:
    problem = found(event(NONE_LEFT), backend(), config(REFUSED), *objects, storage=storage)
    assert problem is not None
    assert "Trident has no backend for class fast: TridentBackend trident/tbe-1" in problem.reason
    assert command_of(problem.remedy) == "kubectl edit secret login -n trident"


@pytest.mark.parametrize(
    ("storage", "objects"),
    [
        (of(), [other()]),
        (of(storagePools="san:gold"), []),
        (of(storagePools="s.*:.*"), []),
        (of(additionalStoragePools="nas:.*"), []),
        (TRIDENT, [other("failed")]),
        (TRIDENT, [other(), config("", uuid="u2")]),
        (TRIDENT, [other()]),
    ],
    ids=[
        *("one of two", "named pools", "a pattern", "further pools", "both failed"),
        *("another of the type is online", "another is online"),
    ],
)
def test_a_backend_that_a_class_may_ask_for(storage: Object, objects: list[Object]) -> None:
    problem = found(event(NONE_LEFT), backend(), config(REFUSED), *objects, storage=storage)
    assert problem is not None
    assert "for class fast: this may be because TridentBackend trident/tbe-1" in problem.reason
    assert command_of(problem.remedy) == "kubectl describe tridentbackend tbe-1 -n trident"


@pytest.mark.parametrize("asked", [{"media": "ssd"}, {"selector": "tier=gold"}])
def test_a_backend_that_may_not_have_what_its_class_asks_for(asked: dict[str, str]) -> None:
    storage = of(backendType="ontap-san", **asked)
    problem = found(event(NONE_LEFT), backend(), config(REFUSED), storage=storage)
    assert problem is not None
    assert "for class fast: this may be because TridentBackend trident/tbe-1" in problem.reason
    assert command_of(problem.remedy) == "kubectl edit secret login -n trident"


def test_a_selector_of_a_class_may_be_an_annotation() -> None:
    selected = of(backendType="ontap-san")
    selected.metadata.map["annotations"] = {"trident.netapp.io/selector": "tier=gold"}
    problem = found(event(NONE_LEFT), backend(), config(REFUSED), storage=selected)
    assert problem is not None
    assert "this may be because TridentBackend" in problem.reason


def test_backends_that_are_not_all_known() -> None:
    cluster = Snapshot([of(), backend(), config(REFUSED)], time=NOW)
    cause = trident_backends.of_class(of(), NONE_LEFT, cluster)
    assert cause is not None
    assert cause.reason.startswith("this may be because TridentBackend trident/tbe-1")
    assert "Secret" not in cause.remedy


def test_a_backend_whose_pools_a_class_does_not_take() -> None:
    storage = of(storagePools="nas:.*")
    problem = found(event(NONE_LEFT), backend(), config(REFUSED), storage=storage)
    assert problem is not None
    assert "TridentBackend" not in problem.reason


@pytest.mark.parametrize("about", ["disk", "prime-u1"])
def test_linstor_finds_too_few_nodes_for_the_replicas(about: str) -> None:
    said = (
        'failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted '
        "desc = CreateVolume failed for pvc-1: failed to autoplace resource: Message: 'Not enough "
        "available nodes'; Details: 'Not enough nodes fulfilling the following auto-place criteria:"
        "\n * has a deployed storage pool named [data]\n * the storage pools have to have at least "
        "'524288000' free space\n\nAuto-place configuration details:\n   Replica count: 3'"
    )
    own, target = claim(), claim()
    own.data["metadata"]["uid"] = "u1"
    target.data["metadata"]["name"] = about
    failed = warning(target, "ProvisioningFailed", said, "2027-03-01T11:58:00Z")
    objects = [own, CLASS, failed, *([target] if about != "disk" else [])]
    problem = provisioners.of_filled(own, Snapshot(objects, ["*"], time=NOW))

    assert problem is not None
    assert problem.reason.endswith(
        "StorageClass fast needs 3 nodes that are online and have storage pool data with 500Gi free"
    )
    assert problem.remedy.startswith("free or add space in storage pool data on the nodes")
    assert provisioners.of_filled(own, Snapshot([own, CLASS], ["*"], time=NOW)) is None
