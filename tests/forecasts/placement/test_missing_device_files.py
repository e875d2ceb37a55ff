"""Containers that are not created, as a device file does not exist on the node."""

import pytest

from tests import builders
from tests.builders import manifest, node
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

GPU = "example.com/T4"
CDEV = "failed to generate spec: lstat /dev/vfio/devices/vfio0: no such file or directory"
GROUP = 'error gathering device: custom device "/dev/vfio/12": no such file or directory'


def kubevirt(version="v1.9.0", **more):
    device = {"pciVendorSelector": "10DE:1EB8", "resourceName": GPU, **more}
    status = {"observedKubeVirtVersion": version, "phase": "Deployed"}
    devices = {"pciHostDevices": [device]}
    return builders.kubevirt(permittedHostDevices=devices, status=status)


HANDLER = manifest(
    "v1",
    "Pod",
    "virt-handler-x",
    "kubevirt",
    metadata={
        "ownerReferences": [{"kind": "DaemonSet", "name": "virt-handler", "controller": True}]
    },
    spec={"nodeName": "a"},
)


def found(said, *objects, resource=GPU, reason="CreateContainerError"):
    limits = {resource: "1", "devices.kubevirt.io/kvm": "1", "cpu": "1"}
    waiting = {"reason": reason, "message": said}
    pod = manifest(
        "v1",
        "Pod",
        "virt-launcher-x",
        "ml",
        spec={"nodeName": "a", "containers": [{"name": "c", "resources": {"limits": limits}}]},
        status={"containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]},
    )
    cluster = Snapshot([node("a"), pod, *objects], complete=["*"])
    fault = pod_starts.fault(pod, cluster)
    return (fault.words, fault.remedy) if fault is not None else ("", "")


def test_the_release_that_gives_out_files_which_the_kernel_does_not_make():
    why, remedy = found(CDEV, kubevirt(), HANDLER)
    assert why == (
        f"CreateContainerError: {CDEV}. KubeVirt 1.9.0 gives it that file for {GPU} also where "
        "the kernel makes none (CONFIG_VFIO_DEVICE_CDEV), as that of a"
    )
    assert "18905" in remedy


@pytest.mark.parametrize(
    ("said", "release"), [(CDEV, "v1.9.1"), (GROUP, "v1.9.0")], ids=["later", "another file"]
)
def test_another_cause_is_looked_for_on_the_node(said, release):
    why, remedy = found(said, kubevirt(release), HANDLER)
    assert why.endswith(
        f"KubeVirt's device plugin gives it that file for {GPU}, and a has no such file"
    )
    assert remedy.startswith("see on a why /dev/vfio/")
    assert command_of(remedy).startswith("kubectl logs virt-handler-x -n kubevirt")


def test_another_device_plugin():
    why, remedy = found(CDEV, kubevirt(externalResourceProvider=True), HANDLER)
    assert ". A device plugin gives it that file" in why
    assert "restart that device plugin" in remedy


def test_a_device_of_kubevirt_itself():
    why, _ = found("stat /dev/kvm: no such file or directory", kubevirt(), HANDLER)
    assert "gives it that file for devices.kubevirt.io/kvm, and a has no such file" in why


@pytest.mark.parametrize(
    "said", ["lstat /var/lib/x: no such file or directory", "context deadline exceeded"]
)
def test_other_errors(said):
    why, remedy = found(said, kubevirt(), HANDLER)
    assert why == f"CreateContainerError: {said}"
    assert "device" not in remedy


EVENT = (
    'Error: failed to generate container "79bc" spec: failed to generate spec: lstat '
    "/dev/vfio/12: no such file or directory"
)


@pytest.mark.parametrize(
    ("reason", "said", "is_told"),
    [
        ("Failed", EVENT, True),
        (
            "FailedMount",
            'MountVolume.MountDevice failed for volume "pvc-1" : open /dev/sdb: no such file or '
            "directory",
            False,
        ),
        (
            "FailedMapVolume",
            'MapVolume.SetUpDevice failed for volume "pvc-1" : rpc error: code = Internal desc = '
            "stat /dev/disk/by-id/dm-1: no such file or directory",
            False,
        ),
    ],
)
def test_only_the_runtime_looks_for_files_of_device_plugins(reason, said, is_told):
    event = manifest(
        "v1",
        "Event",
        "e",
        "ml",
        type="Warning",
        reason=reason,
        message=said,
        involvedObject={"kind": "Pod", "name": "virt-launcher-x", "namespace": "ml"},
    )
    why, remedy = found("", kubevirt(), event, reason="ContainerCreating")
    assert "no such file or directory" in why
    assert ("device plugin" in why + remedy) is is_told


@pytest.mark.parametrize(
    ("path", "resource"),
    [("/dev/dri/card0", "memory"), ("/dev/sdb", GPU), ("/dev/mapper/mpath-1", GPU)],
    ids=["no device plugin", "a disk", "a disk of multipath"],
)
def test_a_file_that_no_device_plugin_gives_out(path, resource):
    said = f"stat {path}: no such file or directory"
    why, remedy = found(said, kubevirt(), HANDLER, resource=resource)
    assert why == f"CreateContainerError: {said}"
    assert "device plugin" not in remedy


PLUGIN = manifest(
    "v1",
    "Pod",
    "pcidevices-x",
    "harvester-system",
    metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "pcidevices", "controller": True}]},
    spec={"nodeName": "a"},
)


def pci_device(name, group, resource=GPU, on="a"):
    status = {"iommuGroup": group, "nodeName": on, "resourceName": resource}
    return manifest("devices.harvesterhci.io/v1beta1", "PCIDevice", name, status=status)


def test_a_group_that_another_boot_has_changed():
    why, remedy = found(GROUP, pci_device("a-1", "13"), PLUGIN)
    assert why.endswith(
        f"Harvester's device plugin gives it that file for {GPU}, but PCIDevice a-1 is in IOMMU "
        "group 13 now (status.iommuGroup), and no device of a in 12, the group of before"
    )
    assert remedy.startswith("restart pod pcidevices-x on a")
    assert command_of(remedy) == "kubectl delete pod pcidevices-x -n harvester-system"
    assert "then restart the VM" in remedy


@pytest.mark.parametrize(
    "device",
    [
        pci_device("a-1", "12"),  # it is in that group, so its driver is another
        pci_device("a-1", "12", "example.com/other"),
        pci_device("b-1", "13", on="b"),
        pci_device("a-1", "13", "example.com/other"),
        pci_device("a-1", ""),
    ],
)
def test_a_file_that_is_missing_for_another_cause(device):
    why, remedy = found(GROUP, device, PLUGIN)
    assert "the group of before" not in why
    assert remedy.startswith("see on a why /dev/vfio/12 is missing")


def test_a_group_of_kubevirts_own_plugin():
    assert "Harvester" not in found(GROUP, pci_device("a-1", "13"), kubevirt(), HANDLER)[0]
