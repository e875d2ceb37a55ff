"""Devices that QEMU or libvirt refuses: each with its field in the VM and the value."""

import pytest

from tests.builders import NAMESPACE, manifest
from virt_admit.forecasts.drain.guests import refused_devices
from virt_admit.model.kubernetes.cluster import Snapshot

LONG = "a1e40c5b-crm-db-data-volume-generation-0002"
SERIAL = "The serial number can't be longer than 36 characters"
NAMED = f"QEMU unexpectedly closed the monitor: qemu-kvm: device ua-data: {SERIAL}"
SLOTS = "internal error: No more available PCI slots"


def disk(name, bus="scsi", serial=None):
    return {"name": name, "disk": {"bus": bus}} | ({"serial": serial} if serial else {})


def spec(*disks, plugged=()):
    volumes = [
        {"name": each["name"], "dataVolume": {"name": each["name"], "hotpluggable": True}}
        for each in disks
        if each["name"] in plugged
    ]
    nics = [{"name": "default", "model": "virtio"}]
    return {"domain": {"devices": {"disks": list(disks), "interfaces": nics}}, "volumes": volumes}


def objects(*disks, plugged=(), has=()):
    """Return a VMI and its VM."""
    inner = spec(*disks, plugged=plugged)
    owner = {"kind": "VirtualMachine", "name": "db", "controller": True}
    status = {"volumeStatus": [{"name": each, "target": "vdx"} for each in has]}
    vmi = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        NAMESPACE,
        metadata={"ownerReferences": [owner]},
        spec=inner,
        status=status,
    )
    vm = manifest(
        "kubevirt.io/v1", "VirtualMachine", "db", NAMESPACE, spec={"template": {"spec": inner}}
    )
    return vmi, vm


def kubevirt(release):
    status = {"observedKubeVirtVersion": release}
    return manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", spec={}, status=status)


def of(vmi, vm, said, *more):
    return refused_devices.of(vmi, said, Snapshot([vm, *more], ["*"]))


@pytest.mark.parametrize("said", [NAMED, f"command 'device_add': {SERIAL}"])
def test_a_serial_that_is_too_long_is_cut(said):
    found = of(*objects(disk("root", serial="short"), disk("data", serial=LONG)), said)

    assert f"that of disk data (bus scsi) has 43 ({LONG})" in found.reason
    assert found.remedy.startswith(
        "set spec.template.spec.domain.devices.disks[1].serial to at most 36 characters"
    )
    assert f'"value":"{LONG[:36]}"' in found.remedy
    assert "then restart the VM: virtctl restart db" in found.remedy


def test_serials_that_differ_only_at_their_ends_are_edited():
    found = of(*objects(disk("data", serial=f"{LONG}1"), disk("more", serial=f"{LONG}2")), NAMED)

    assert "disk data (bus scsi) has 44, disk more (bus scsi) has 44" in found.reason
    assert "kubectl edit vm db" in found.remedy
    assert "patch" not in found.remedy


def test_another_bus_or_a_short_serial_is_not_blamed():
    assert of(*objects(disk("root", serial="short"), disk("data", serial="short")), NAMED) is None
    mixed = objects(disk("data", serial=LONG), disk("other", "virtio", LONG))
    assert "other" not in of(*mixed, NAMED).reason


@pytest.mark.parametrize(
    ("release", "newer"), [("v1.4.0", True), ("v1.6.0", False)], ids=["few slots", "more slots"]
)
def test_disks_on_bus_virtio_take_the_slots(release, newer):
    disks = [disk("root", "virtio"), *(disk(f"d{each}", "virtio") for each in range(5))]
    plugged = [each["name"] for each in disks[1:]]
    found = of(*objects(*disks, plugged=plugged, has=("root", "d0")), SLOTS, kubevirt(release))

    assert "(5 such disks, 1 in the guest)" in found.reason
    assert found.remedy.startswith("set disk.bus of its hotpluggable disks to scsi")
    assert ("KubeVirt 1.6.0 and later keep more slots free" in found.remedy) is newer


@pytest.mark.parametrize(
    ("bus", "said", "told"),
    [
        ("virtio", SLOTS, True),
        ("scsi", SLOTS, False),
        ("scsi", f"command 'device_add': {SERIAL}", False),
        ("virtio", "another error", False),
    ],
)
def test_a_volume_is_refused_for_its_own_disk(bus, said, told):
    vmi, vm = objects(disk("data", bus, "short"), disk("more", "virtio", LONG), plugged=("more",))
    found = refused_devices.of_volume(vmi, "data", said, Snapshot([vm], ["*"]))
    assert (found is not None) is told


@pytest.mark.parametrize(
    ("data", "said", "release", "outdated", "told"),
    [
        (disk("data", serial=LONG), "", "v1.5.0", False, True),
        (disk("data", serial=LONG), f"command 'device_add': {SERIAL}", "v1.4.0", True, True),
        (disk("data", serial=LONG[:36]), "", "v1.8.0", False, False),
        (disk("data"), "", "v1.8.0", False, False),
        (disk("data", "virtio", LONG), "", "v1.8.0", False, False),
        ({"name": "data", "lun": {"bus": "scsi"}, "serial": LONG}, "", "v1.8.0", False, False),
        (disk("data", serial=LONG), "another error", "v1.8.0", False, False),
        (disk("data", serial=LONG), "", "v1.4.0", False, False),
        (disk("data", serial=LONG), "", "", False, False),
        (disk("data", serial=LONG), "", "v1.8.0", True, False),
    ],
)
def test_a_long_serial_is_known_by_the_error_or_by_the_release(data, said, release, outdated, told):
    vmi, vm = objects(disk("root", serial=LONG), data, plugged=("data",))
    vmi.data["status"]["phase"] = "Running"
    if outdated:
        vmi.data["metadata"]["labels"] = {"kubevirt.io/outdatedLauncherImage": ""}
    cluster = Snapshot([vm, kubevirt(release)], ["*"])
    assert (refused_devices.long_serial(vmi, "data", said, cluster) is not None) is told
    vmi.data["status"]["phase"] = "Scheduled"
    assert refused_devices.long_serial(vmi, "data", said, cluster) is None


@pytest.mark.parametrize(
    ("other", "shorter"),
    [(f"a{LONG}", ""), (LONG[:36], LONG[-36:].lstrip("-")), (None, LONG[-36:].lstrip("-"))],
    ids=["same end", "same begin", "none"],
)
def test_no_serial_of_another_disk_is_proposed(other, shorter):
    vmi, vm = objects(disk("root", serial=other), disk("data", serial=LONG), plugged=("data",))
    vmi.data["status"]["phase"] = "Running"
    found = refused_devices.long_serial(vmi, "data", SERIAL, Snapshot([vm], ["*"]))
    assert found.shorter == shorter


def test_no_serial_of_no_length_is_proposed():
    vmi, vm = objects(disk("data", serial=LONG), plugged=("data",))
    vmi.data["status"]["phase"] = "Running"
    said = SERIAL.replace("36", "0")
    found = refused_devices.long_serial(vmi, "data", said, Snapshot([vm], ["*"]))
    assert found.shorter == ""


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        ("ua-data", "disk data (bus scsi) in spec.template.spec.domain.devices.disks[0]"),
        (
            "hostua-default",
            "interface default (virtio) in spec.template.spec.domain.devices.interfaces[0]",
        ),
        ("ua-unknown", ""),
        ("scsi0", ""),
    ],
)
def test_a_device_that_an_error_names_is_told_with_its_field(alias, words):
    vmi, vm = objects(disk("data"))
    said = f"qemu-kvm: device {alias}: something is wrong"
    assert refused_devices.named(vmi, said, Snapshot([vm], ["*"])) == words


def test_the_field_of_the_vmi_is_told_where_its_vm_is_not_known():
    vmi, _ = objects(disk("data", serial=LONG))
    found = refused_devices.of(vmi, NAMED, Snapshot([], ["*"]))

    assert found.remedy.startswith("set spec.domain.devices.disks[0].serial to at most 36")
    assert "patch" not in found.remedy


@pytest.mark.parametrize(
    ("disks", "said"),
    [((disk("data", serial=LONG),), NAMED), ((disk("data", "virtio"),), SLOTS)],
    ids=["serial", "slots"],
)
def test_a_vm_whose_next_start_boots_another_disk_is_not_restarted_first(disks, said):
    vmi, vm = objects(*disks, plugged=("data",))
    vmi.data["status"]["phase"] = "Running"
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "new"}}
    inner = {**vm.data["spec"]["template"]["spec"], "volumes": [volume]}
    vm.data["spec"] = {"template": {"spec": inner}}
    found = of(vmi, vm, said)

    assert found.remedy.startswith("do not restart it, or let a drain shut it down")
    assert "virtctl restart" not in found.remedy


@pytest.mark.parametrize("serial", [LONG[:30], None], ids=["shorter", "removed"])
def test_a_vm_that_is_corrected_already_is_only_restarted(serial):
    vmi, _ = objects(disk("root", serial="short"), disk("data", serial=LONG))
    _, vm = objects(disk("root", serial="short"), disk("data", serial=serial))
    found = of(vmi, vm, NAMED)

    assert "that of disk data (bus scsi) has 43" in found.reason
    assert found.remedy == f"restart the VM: virtctl restart db -n {NAMESPACE}"
