"""Claims whose source is refused: what is wrong with the source, and how the disk is made again."""

import pytest

from tests.builders import NAMESPACE, manifest
from virt_admit.forecasts.drain.starts.storage import lost_sources, provisioners
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

NOW = "2027-03-01T10:00:00Z"
DELETED = (
    "error getting handle for DataSource Type VolumeSnapshot by Name snap: snapshot snap is "
    "currently being deleted"
)
CLONE = {
    "annotations": {"restore.kubevirt.io/name": "clone-copy-restore-db-x"},
    "labels": {"restore.kubevirt.io/source-vm-name": "db"},
}


def claim(kind="VolumeSnapshot", **metadata):
    spec = {"dataSourceRef": {"kind": kind, "name": "snap"}, "storageClassName": "fast"}
    return manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, metadata=metadata, spec=spec)


def snapshot(deleted="2027-03-01T09:30:00Z", **status):
    metadata = {"deletionTimestamp": deleted} if deleted else {}
    return manifest(
        "snapshot.storage.k8s.io/v1",
        "VolumeSnapshot",
        "snap",
        NAMESPACE,
        metadata=metadata,
        status=status,
    )


def kubevirt(release):
    return manifest(
        "kubevirt.io/v1", "KubeVirt", "kv", "kubevirt", status={"observedKubeVirtVersion": release}
    )


VM = manifest("kubevirt.io/v1", "VirtualMachine", "db", NAMESPACE)


def lost(*objects, said=DELETED, of=None):
    return lost_sources.of(of or claim(), said, Snapshot(objects, ["*"], time=NOW))


@pytest.mark.parametrize(("objects", "since"), [((snapshot(),), " (for 30 min)"), ((), "")])
def test_a_source_that_is_being_deleted_is_not_copied(objects, since):
    found = lost(*objects)

    assert found.reason == (
        f"its data source VolumeSnapshot snap is being deleted{since}. The provisioner refuses "
        "it, so this does not end by itself"
    )
    assert found.remedy.startswith(
        "create the disk again from a source that exists and stays: kubectl describe"
    )


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (
            (VM, kubevirt("v1.1.0")),
            "clone VM db again, with KubeVirt 1.2.0 or later or in a class that binds Immediate: ",
        ),
        ((VM, kubevirt("v1.2.0")), "delete the cloned VM and clone VM db again: kubectl"),
        ((kubevirt("v1.1.0"),), "because VM db, which was cloned, does not exist any more"),
    ],
)
def test_a_clone_is_made_again(objects, says):
    assert says in lost(snapshot(), *objects, of=claim(**CLONE)).remedy


def test_a_source_that_does_not_exist():
    said = (
        "error getting snapshot snap from api server: volumesnapshots.snapshot.storage.k8s.io "
        '"snap" not found'
    )

    assert (
        lost(said=said).reason
        == "its data source VolumeSnapshot snap does not exist, so this does not end by itself"
    )


MISSING = (
    "error getting snapshot snap from api server: volumesnapshots.snapshot.storage.k8s.io "
    '"snap" not found'
)


@pytest.mark.parametrize(
    ("metadata", "way"),
    [
        (
            {},
            "stop its VM, delete the claim, which has no volume, and make it again from a source "
            "that exists, or without spec.dataSource and dataSourceRef and then restore its data: ",
        ),
        (
            {"labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}},
            "and restore it from Velero's Backup b again with a resource modifier that removes "
            "spec.dataSource and dataSourceRef, which Restore r has written as they once were: ",
        ),
        (
            {"ownerReferences": [{"kind": "DataVolume", "name": "dv", "controller": True}]},
            "create the disk again from a source that exists and stays: ",
        ),
        (CLONE, "create the disk again from another copy, because VM db, which was cloned, "),
    ],
)
def test_a_claim_without_its_source_is_made_again_by_who_makes_it(metadata, way):
    assert way in lost(said=MISSING, of=claim(**metadata)).remedy


def test_the_login_in_an_address_of_the_storage_is_not_quoted():
    error = {"message": "GET https://admin:s3cret@san.example.com/api: timeout"}
    found = lost(snapshot("", error=error), said="snapshot snap is not Ready")
    assert "https://san.example.com/api" in found.reason
    assert "s3cret" not in found.reason


def test_a_snapshot_that_is_not_ready_tells_why():
    found = lost(snapshot("", error={"message": "no room"}), said="snapshot snap is not Ready")

    assert found.reason == "its data source VolumeSnapshot snap is not ready (no room)"


@pytest.mark.parametrize("of", [claim(), claim("VolumeImportSource")])
def test_a_source_that_is_whole_is_not_accused(of):
    assert lost(snapshot(""), said="rpc error: out of space", of=of) is None


def failed(message="out of space", mark=""):
    about = {"kind": "PersistentVolumeClaim", "name": "disk", "namespace": NAMESPACE}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": NAMESPACE},
        "involvedObject": about,
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": f'{mark}failed to provision volume with StorageClass "fast": {message}',
        "source": {"component": "csi.example_ctl-0_8f3d"},
        "lastTimestamp": "2027-03-01T09:58:00Z",
    }
    return Object(event)


FAST = manifest("storage.k8s.io/v1", "StorageClass", "fast", provisioner="csi.example")
POD = manifest("v1", "Pod", "ctl-0", "csi")


def of_vm(*objects, phase="Pending", now=NOW):
    disk = claim()
    disk.data["status"] = {"phase": phase}
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    vmi = manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", "db", NAMESPACE, spec={"volumes": volumes}
    )
    return provisioners.of_vm(vmi, Snapshot([disk, FAST, POD, *objects], ["*"], time=now))


def test_the_pod_that_reports_an_error_is_named():
    found = of_vm(failed())

    assert found.reason == "its claim disk is Pending: out of space"
    assert found.remedy == (
        "correct what provisioner csi.example refuses, in the claim, in class fast or in its "
        "storage; its logs may say more: kubectl logs ctl-0 -n csi --all-containers"
    )


FORBIDDEN = (
    'failed to create volume pvc-1: pods "helper-pod-create-pvc-1" is forbidden: violates '
    'PodSecurity "baseline:latest": hostPath volumes (volume "data")'
)


def labelled(level):
    labels = {"labels": {"pod-security.kubernetes.io/enforce": level} if level else {}}
    return manifest("v1", "Namespace", "csi", metadata=labels)


@pytest.mark.parametrize("level", ["", "baseline", "restricted"])
def test_the_pod_of_a_provisioner_that_pod_security_forbids(level):
    found = of_vm(failed(FORBIDDEN), labelled(level))

    assert found.reason == (
        "its claim disk is Pending: provisioner csi.example cannot create its pod "
        'helper-pod-create-pvc-1 in namespace csi, which violates PodSecurity "baseline:latest": '
        'hostPath volumes (volume "data")'
    )
    allow = "kubectl label namespace csi pod-security.kubernetes.io/enforce=privileged --overwrite"
    assert command_of(found.remedy) == allow


def test_a_namespace_that_was_labelled_since_is_not_accused():
    found = of_vm(failed(FORBIDDEN), labelled("privileged"))

    assert "That namespace allows it by now" in found.reason
    assert command_of(found.remedy) == f"kubectl describe pvc disk -n {NAMESPACE}"


def test_an_event_that_stands_for_several_is_quoted_without_its_mark():
    found = of_vm(failed("no matter", mark="(combined from similar events): "))

    assert found.reason == "its claim disk is Pending: no matter"


def test_a_claim_of_a_vm_without_a_data_volume_has_a_source_too():
    found = of_vm(failed(DELETED), snapshot())

    assert found.reason.startswith(
        "its claim disk is Pending: its data source VolumeSnapshot snap is being deleted (for 30 "
        "min)"
    )


@pytest.mark.parametrize(
    "found", [of_vm(), of_vm(failed(), phase="Bound"), of_vm(failed(), now="2027-03-01T11:00:00Z")]
)
def test_a_claim_that_is_bound_or_whose_error_is_old_is_no_obstacle(found):
    assert found is None
