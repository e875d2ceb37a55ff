"""Claims of vTPM and EFI state without a volume: KubeVirt's own setting decides on their class."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NAMESPACE, hyperconverged, kubevirt, manifest, warning
from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of
from virt_admit.model.problems import Problem

NAME = "persistent-state-for-db"
SAID = (
    'failed to provision volume with StorageClass "fast": rpc error: code = InvalidArgument desc = '
    "multi node access modes are only supported on rbd `block` type volumes"
)


def claim(**changes: Any) -> Object:
    spec = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Filesystem",
    }
    status = {"phase": changes.pop("phase", "Pending")}
    metadata = {"creationTimestamp": changes.pop("made", "2027-03-01T11:00:00Z")}
    kind = ("v1", "PersistentVolumeClaim", NAME, NAMESPACE)
    return manifest(*kind, metadata=metadata, spec=spec | changes, status=status)


def storage_class(**fields: str) -> Object:
    return manifest("storage.k8s.io/v1", "StorageClass", "fast", provisioner="d.example", **fields)


def profile(name: str, *modes: str) -> Object:
    sets = [{"volumeMode": "Filesystem", "accessModes": list(modes)}]
    kind = ("cdi.kubevirt.io/v1beta1", "StorageProfile", name)
    return manifest(*kind, status={"claimPropertySets": sets})


def error() -> Object:
    return warning(claim(), "ProvisioningFailed", SAID, "2027-03-01T11:58:00Z")


def found(*objects: Object, release: str = "v1.1.0") -> Problem | None:
    volumes = [{"name": "state", "persistentVolumeClaim": {"claimName": NAME}}]
    pod = manifest("v1", "Pod", "virt-launcher-db", NAMESPACE, spec={"volumes": volumes})
    settings = kubevirt(
        {"vmStateStorageClass": "fast"}, status={"observedKubeVirtVersion": release}
    )
    cluster = Snapshot([pod, settings, *objects], ["*"], time="2027-03-01T12:00:00Z")
    return provisioners.of_state(pod, cluster)


def test_the_class_cannot_give_the_access_mode() -> None:
    problem = found(claim(), storage_class(), error())

    assert problem is not None
    assert problem.reason.startswith(
        f"claim {NAME} of its vTPM or EFI state is Pending for 60 min: it asks for ReadWriteMany "
        "with volumeMode Filesystem, which provisioner d.example of class fast refuses: multi node"
    )
    assert problem.remedy.startswith(
        "set spec.configuration.vmStateStorageClass of KubeVirt to a class whose file systems"
    )
    assert f"; then stop the VM, delete claim {NAME}, which has no volume" in problem.remedy
    assert command_of(problem.remedy) == "kubectl edit kubevirt kubevirt -n kubevirt"


def test_a_class_that_can_is_named_in_the_object_that_writes_the_setting() -> None:
    shared = profile("files", "ReadWriteMany")
    own = found(claim(), storage_class(), error(), shared)
    written = found(claim(), storage_class(), error(), shared, hyperconverged())

    assert own is not None
    assert written is not None
    assert '{"vmStateStorageClass":"files"}' in command_of(own.remedy)
    assert written.remedy.startswith(
        "set spec.storage.vmStateStorageClass of HyperConverged to files"
    )
    assert '{"storage":{"vmStateStorageClass":"files"}}' in command_of(written.remedy)


@pytest.mark.parametrize(
    ("release", "modes", "said"),
    [
        ("v1.1.0", ["ReadWriteOnce"], ", or update KubeVirt to 1.3.0 or later, which asks this"),
        ("v1.1.0", ["ReadOnlyMany"], ""),
        ("v1.4.0", ["ReadOnlyMany"], ", or let spec.claimPropertySets of StorageProfile fast name"),
    ],
)
def test_from_1_3_on_the_profile_of_the_class_decides(
    release: str, modes: list[str], said: str
) -> None:
    problem = found(claim(), storage_class(), error(), profile("fast", *modes), release=release)

    assert problem is not None
    assert said in problem.remedy
    assert (", or " in problem.remedy) is bool(said)


def test_without_an_error_only_a_long_time_counts() -> None:
    missing, silent = found(claim()), found(claim(), storage_class())

    assert missing is not None
    assert missing.reason.endswith("StorageClass fast does not exist")
    assert silent is not None
    assert silent.reason.endswith("has made no volume with ReadWriteMany and volumeMode Filesystem")
    assert silent.remedy.startswith("correct what provisioner d.example refuses")


@pytest.mark.parametrize(
    "objects",
    [
        (claim(phase="Bound", volumeName="pv"), storage_class()),
        (claim(made="2027-03-01T11:57:00Z"), storage_class()),
        (claim(), storage_class(volumeBindingMode="WaitForFirstConsumer")),
        (claim(dataSource={"kind": "VolumeSnapshot", "name": "s"}), storage_class(), error()),
    ],
    ids=["bound", "young", "waits for a node", "restored"],
)
def test_a_claim_that_is_not_stuck_or_gets_data(objects: tuple[Object, ...]) -> None:
    assert found(*objects) is None
