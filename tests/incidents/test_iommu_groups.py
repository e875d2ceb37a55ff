"""A guest gets a PCI device only with each other device of its IOMMU group."""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago

from .machines import find, guest
from .test_failed_starts import failing, told

GPU = "nvidia.com/GA104"
ERROR = (
    "server error. command SyncVMI failed: vfio 0000:07:00.0: group 16 is not viable Please ensure "
    "all devices within the iommu_group are bound to their vfio bus driver."
)
KEPT = (
    "he host uses PCIDevice w2-071 (driver snd_hda_intel, Audio device) of IOMMU group 16 on w2, "
    "which is also that of w2-070, and no PCIDeviceClaim takes that from it"
)
WAY = "enable the passthrough of w2-071 too on Harvester's page PCI Devices, if the host works "


def device(name, driver, group="16", node="w2", resource=GPU, class_id="0300"):
    status = {"nodeName": node, "iommuGroup": group, "kernelDriverInUse": driver}
    status |= {"resourceName": resource, "classId": class_id}
    status["description"] = "Audio device: GA104" if driver == "snd_hda_intel" else "GPU"
    api = "devices.harvesterhci.io/v1beta1"
    return {"apiVersion": api, "kind": "PCIDevice", "metadata": {"name": name}, "status": status}


def claim(name, minutes=None):
    status = {"passthroughEnabled": True}
    api = "devices.harvesterhci.io/v1beta1"
    named = {"name": name}
    if minutes is not None:
        named["creationTimestamp"] = ago(minutes=minutes)
    return {"apiVersion": api, "kind": "PCIDeviceClaim", "metadata": named, "status": status}


CARD = [device("w2-070", "vfio-pci"), claim("w2-070")]
SOUND = device("w2-071", "snd_hda_intel", resource="nvidia.com/AUDIO", class_id="0403")
FREE = [
    pytest.param([], id="nothing is known"),
    pytest.param([device("w2-071", "vfio-pci", resource="x")], id="passed through"),
    pytest.param([device("w2-071", "", resource="x")], id="no driver"),
    pytest.param([device("w2-071", "snd_hda_intel", "17", resource="x")], id="another group"),
    pytest.param([device("w1-071", "snd_hda_intel", node="w1", resource="x")], id="other node"),
    pytest.param([device("w2-071", "shpchp", resource="x", class_id="0604")], id="a bridge"),
]


def refused(*objects):
    items = plain((1, 5)) + failing("one", "w2", phase="Scheduled")
    find(items, "VirtualMachineInstance", "one")["status"]["conditions"] = [
        {
            "type": "Synchronized",
            "status": "False",
            "reason": "Synchronizing with the Domain failed.",
            "message": ERROR,
        }
    ]
    return [*items, *CARD, *objects]


def test_the_device_that_the_host_keeps_is_named(ask):
    said = told(ask, refused(SOUND))

    assert "group 16 is not viable Please ensure all devices" in said
    assert f"bus driver. T{KEPT}" in said
    assert WAY in said
    assert "kubectl describe pcidevice w2-071" in said
    assert KEPT in " ".join(ask(refused(SOUND), "scan").split())


def test_a_claim_that_has_not_taken_its_device(ask):
    said = told(ask, refused(SOUND, claim("w2-071", minutes=50)))

    assert "no PCIDeviceClaim takes" not in said
    assert "and its PCIDeviceClaim has not taken it yet" in said
    assert "see the log of Harvester's pcidevices agent on w2" in said
    assert "kubectl describe pcideviceclaim w2-071" in said
    assert "enable the passthrough" not in said


@pytest.mark.parametrize(("minutes", "kept"), [(50, True), (2, False)])
def test_a_new_claim_gets_its_time(ask, minutes, kept):
    said = told(ask, off(SOUND, claim("w2-071", minutes=minutes)))
    assert ("its guest would not start: the host uses PCIDevice w2-071" in said) is kept


@pytest.mark.parametrize("objects", FREE)
def test_a_device_that_the_host_does_not_keep_is_not_blamed(ask, objects):
    assert "The host uses PCIDevice" not in told(ask, refused(*objects))


def off(*objects):
    items = plain((1, 5)) + guest("one", "w2", run="Halted")
    wanted = {"hostDevices": [{"name": "w2-070", "deviceName": GPU}]}
    vm = find(items, "VirtualMachine", "one")
    vm["spec"]["template"]["spec"]["domain"].setdefault("devices", {}).update(wanted)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(minutes=90)}
    vm["status"] = {"printableStatus": "Stopped", "conditions": [ready]}
    for kind in ("capacity", "allocatable"):
        find(items, "Node", "w2")["status"].setdefault(kind, {})[GPU] = "1"
    kubevirt = find(items, "KubeVirt", "kubevirt")
    permitted = {"resourceName": GPU, "pciVendorSelector": "10de:2484"}
    permitted["externalResourceProvider"] = True
    kubevirt["spec"].setdefault("configuration", {})["permittedHostDevices"] = {
        "pciHostDevices": [permitted]
    }
    items = [
        each
        for each in items
        if each["kind"] not in ("VirtualMachineInstance", "Pod")
        or "one" not in each["metadata"]["name"]
    ]
    return [*items, *CARD, *objects]


def test_a_vm_that_is_off_would_not_get_its_device(ask):
    said = told(ask, off(SOUND))

    assert f"could not start: its guest would not start: t{KEPT}" in said
    assert WAY in said


OTHER = [device("w1-070", "vfio-pci", "3", "w1"), claim("w1-070")]


@pytest.mark.parametrize("objects", [*FREE, pytest.param([SOUND, *OTHER], id="another device")])
def test_a_vm_that_may_get_a_device_could_start(ask, objects):
    assert "its guest would not start" not in told(ask, off(*objects))
