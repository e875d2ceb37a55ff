"""What looks like a part that stands still and is not one: a phase of the last minute, a copy that
goes on, a fitting limit.
"""

import copy
import json

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, api_service

from . import leftovers
from .machines import find, guest, launcher_of, migration
from .stuck_parts import copying, ending, evicted, first_start, hotplugged, limits


@pytest.mark.parametrize(
    "items",
    [
        hotplugged("Detaching", age=1),
        hotplugged("AttachedToNode", age=2),
        hotplugged("Ready", target="sda"),
    ],
)
def test_a_volume_on_its_way_or_in_the_guest(ask, items):
    assert "lacks it" not in ask(items, "explain", "vm/db")
    assert "vmi-hotplug-stuck" not in ask(items, "scan")


def test_a_disk_in_the_guest_may_still_be_detached_by_a_drain(ask):
    items = hotplugged("Ready", target="sda")
    assert "may detach disks" not in ask(items, "drain", "w2")  # the kernel keeps a used rbd device
    volume = find(items, "PersistentVolume", "pvc-vms-data")
    volume["spec"]["csi"]["driver"] = "driver.longhorn.io"
    assert "may detach disks of the running guest" in ask(items, "drain", "w2")


@pytest.mark.parametrize("default", [{"ephemeral-storage": "30Gi"}, {"memory": "1Gi"}, {}])
def test_a_limit_that_fits(ask, default):
    items = [*plain((1, 6)), *guest("web", "w1"), limits(**default)]
    volumes = [{"name": "scratch", "emptyDisk": {"capacity": "20Gi"}}]
    find(items, "VirtualMachine", "web")["spec"]["template"]["spec"]["volumes"] += volumes
    assert "vm-empty-disk-above-limit" not in ask(items, "scan")


def test_a_guest_that_failed_by_itself(ask):
    items = evicted(times=1)
    pod = next(
        each
        for each in items
        if each["kind"] == "Pod" and each["status"].get("reason") == "Evicted"
    )
    del pod["status"]["reason"], pod["status"]["message"]
    said = ask(items, "explain", "vm/worker")
    assert "evicted its pod" not in said
    assert "it is not running: its VMI is Failed" in said


def test_a_vm_that_runs_again_says_what_ended_it(ask):
    items = evicted(times=2)
    vmi = find(items, "VirtualMachineInstance", "worker")
    vmi["status"]["phase"] = "Running"
    pod = next(
        each
        for each in items
        if each["kind"] == "Pod" and each["status"].get("reason") == "Evicted"
    )
    pod["status"] = {"phase": "Running"}
    said = ask(items, "explain", "vm/worker")
    assert "evicted its pod 12 min ago" in said
    assert "It runs again and may end in the same way" in said
    assert "vm-start-stuck" not in said


def test_an_api_that_keeps_no_namespace(ask):
    items = [*plain((1, 6)), ending("ci-1", "metrics.example.com/v1")]
    assert "stay" not in ask(
        [*items, api_service("v1", "other.example.com", ("gone", "api"))], "scan"
    )


@pytest.mark.parametrize("status", [{"progress": "31.5%"}, {"phase": "Succeeded"}])
def test_a_copy_that_goes_on(ask, status):
    said = ask(copying(**status), "explain", "vm/app")
    assert "CDI does not copy" not in said


def test_progress_that_is_no_number_is_none(ask):
    assert USED in ask(copying("CloneScheduled", progress="\u00b2%"), "explain", "vm/app")


USED = "CDI does not copy claim vms/golden while VM vms/golden uses it"


@pytest.mark.parametrize(
    ("phase", "told", "waits"),
    [
        ("CloneScheduled", False, True),
        ("CSICloneInProgress", True, True),
        ("CSICloneInProgress", False, False),
        ("SnapshotForSmartCloneInProgress", False, False),
    ],
)
def test_a_copy_that_the_storage_makes_is_late_only_if_cdi_says_so(ask, phase, told, waits):
    said = ask(copying(phase, told=told), "explain", "vm/app")
    assert (USED in said) is waits
    note, *reported = json.loads(ask(copying(phase, told=told), "explain", "vm/app", "-o", "json"))[
        "notes"
    ]
    assert len(reported) == told, "CDI's own event stands beside it"
    assert ("else it never begins" in note) is waits
    assert note not in said or not waits  # in the text the reason tells it


@pytest.mark.parametrize(
    ("claim", "labels"),
    [
        ({"readOnly": True}, {"kubevirt.io": "virt-launcher"}),
        ({}, {"app": "containerized-data-importer", "cdi.kubevirt.io": "cdi-clone-source"}),
    ],
)
def test_a_pod_that_only_reads_a_claim_hinders_no_copy(ask, claim, labels):
    items = copying("CloneScheduled")
    launcher_of(items, "golden")["metadata"]["labels"] = labels
    for each in launcher_of(items, "golden")["spec"]["volumes"]:
        each.get("persistentVolumeClaim", {}).update(claim)
    assert "CDI does not copy" not in ask(items, "explain", "vm/app")


@pytest.mark.parametrize("told", [True, False])
def test_whether_another_pod_writes_to_a_claim_only_cdi_says(ask, told):
    items = copying("CloneScheduled", told=told)
    launcher_of(items, "golden")["metadata"]["labels"] = {"app": "backup"}
    said = ask(items, "explain", "vm/app")
    assert ("while pod vms/virt-launcher-golden-k2x7q uses it" in said) is told


def test_a_copy_of_a_claim_that_nothing_uses(ask):
    items = [each for each in copying() if each["metadata"]["name"] != "virt-launcher-golden-k2x7q"]
    said = ask(items, "explain", "vm/app")
    assert "CDI does not copy" not in said
    assert "because its disk app is not filled yet (CSICloneInProgress" in said
    assert "vm-start-stuck" not in ask(items, "scan")


def test_a_vm_that_was_never_started_is_no_fault(ask):
    assert "lab" not in ask(first_start(), "scan")


def test_a_migration_that_a_person_asked_for_is_not_repeated(ask):
    items = plain((1, 6)) + guest("web", "w1")
    state = {
        "targetNode": "w2",
        "targetPod": "virt-launcher-web-new",
        "startTimestamp": ago(seconds=70),
    }
    phases = {
        "Pending": 90,
        "Scheduling": 85,
        "Scheduled": 80,
        "PreparingTarget": 76,
        "TargetReady": 73,
        "Running": 70,
    }
    moved = migration("web", phases, name="kubevirt-migrate-vm-8x2kp", state=state, notes={})
    find(items, "VirtualMachineInstance", "web")["status"]["migrationState"] = moved["status"][
        "migrationState"
    ]
    said = ask([*items, moved], "explain", "vm/web")
    assert (
        "KubeVirt cancels it; a person or another program asked for migration "
        "kubevirt-migrate-vm-8x2kp"
    ) in said
    assert "until that ends it has two launcher pods" in said
    assert not {"foreign", "another reason", "cancels and repeats", "\nAvoid\n"} & {
        word
        for word in ("foreign", "another reason", "cancels and repeats", "\nAvoid\n")
        if word in said
    }
    drained = ask([*items, migration("web", phases, state=state)], "drain", "w1")
    assert "cancels and repeats it" in drained


def test_nodes_that_are_silent_for_now_are_not_absent(ask):
    items = plain((1, 6)) + guest("web", "w1")
    for name in ("w2", "w3"):
        node = find(items, "Node", name)
        node["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
        for each in node["status"]["conditions"]:
            if each["type"] == "Ready":
                each |= {"status": "Unknown", "lastTransitionTime": ago(minutes=41)}
    said = ask(items, "scan")
    assert "cluster-eviction-strategy-single-node" not in said
    assert "Add a node" not in said


def test_a_vm_in_a_namespace_that_a_stale_api_keeps(ask):
    items = leftovers.ending_namespace().items
    (space,) = (
        each
        for each in items
        if each["kind"] == "Namespace" and each["metadata"].get("deletionTimestamp")
    )
    space["status"] = ending("any")["status"]
    items.append(api_service("v1beta1", "upload.cdi.kubevirt.io", ("gone", "cdi-api")))
    said = ask(items, "drain", "w1")
    assert "its product was removed: delete APIService v1beta1.upload.cdi.kubevirt.io" in said


def test_a_volume_whose_pod_does_not_exist(ask):
    items = [
        each for each in hotplugged("AttachedToNode") if each["metadata"]["name"] != "hp-volume-db"
    ]
    said = ask(items, "explain", "vm/db")
    assert (
        "its phase is AttachedToNode, but pod hp-volume-db, which attaches it, does not exist"
        in said
    )
    assert "see why virt-controller makes no other one" in said


@pytest.mark.parametrize("phase", ["Ready", "MountedToPod", "UnMountedFromPod"])
def test_a_volume_that_is_unplugged_and_not_detached_yet(ask, phase):
    items = hotplugged(phase)
    volumes = find(items, "VirtualMachineInstance", "db")["spec"]["volumes"]
    volumes[:] = [each for each in volumes if each["name"] != "data"]
    said = ask(items, "explain", "vm/db")
    assert f"volume data is unplugged and not detached yet (phase {phase})" in said
    assert "vmi-hotplug-stuck" not in said


def test_an_earlier_eviction_does_not_explain_a_later_end(ask):
    items = evicted(times=1)
    pod = next(
        each
        for each in items
        if each["kind"] == "Pod" and each["status"].get("reason") == "Evicted"
    )
    later = copy.deepcopy(pod)
    later["metadata"] |= {
        "name": "virt-launcher-worker-later",
        "uid": "later",
        "creationTimestamp": ago(seconds=20),
    }
    later["status"] = {"phase": "Failed"}
    pod["metadata"]["creationTimestamp"] = ago(minutes=11)
    assert "evicted its pod" in ask(items, "explain", "vm/worker")
    assert "evicted its pod" not in ask([*items, later], "explain", "vm/worker")


@pytest.mark.parametrize("young", ["Pod", "PersistentVolumeClaim"])
def test_a_pod_that_may_be_made_anew_in_this_moment(ask, young):
    items = [
        each for each in hotplugged("AttachedToNode") if each["metadata"]["name"] != "hp-volume-db"
    ]
    part = launcher_of(items, "db") if young == "Pod" else find(items, young, "data")
    part["metadata"]["creationTimestamp"] = ago(minutes=2)
    assert "does not exist" not in ask(items, "explain", "vm/db")


def test_a_pod_of_another_owner_exists(ask):
    items = hotplugged("AttachedToNode")
    find(items, "Pod", "hp-volume-db")["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert "does not exist" not in ask(items, "explain", "vm/db")


def test_the_pod_of_an_earlier_start_attaches_nothing(ask):
    items = hotplugged("AttachedToNode")
    former = copy.deepcopy(launcher_of(items, "db"))
    former["metadata"] |= {
        "name": "virt-launcher-db-aaaaa",
        "uid": "former",
        "creationTimestamp": ago(days=90),
    }
    former["status"]["phase"] = "Failed"
    said = ask([*items, former], "explain", "vm/db")
    assert "but virt-handler on w2 does not mount it" in said


@pytest.mark.parametrize(("phase", "accused"), [("MountedToPod", False), ("AttachedToNode", True)])
def test_a_utility_volume_never_reaches_the_guest(ask, phase, accused):
    items = hotplugged(phase)
    spec = find(items, "VirtualMachineInstance", "db")["spec"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "data"]
    spec["utilityVolumes"] = [{"name": "data", "claimName": "data", "type": "Backup"}]
    assert ("vmi-hotplug-stuck" in ask(items, "scan")) is accused


@pytest.mark.parametrize("utility", [False, True])
def test_a_pod_that_waits_is_told_once(ask, utility):
    items = hotplugged("Bound")
    spec = find(items, "VirtualMachineInstance", "db")["spec"]
    if utility:
        spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "data"]
        spec["utilityVolumes"] = [{"name": "data", "claimName": "data", "type": "Backup"}]
    helper = find(items, "Pod", "hp-volume-db")
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no node fits",
    }
    del helper["spec"]["nodeName"]
    helper["status"] = {"phase": "Pending", "conditions": [said]}
    told = ask(items, "scan")
    assert ("vmi-hotplug-stuck" in told) is utility
    assert ("vmi-volume-not-attached" in told) is not utility


def test_disks_without_a_slot_are_counted_in_the_first_lines(ask):
    """kubevirt/kubevirt#14180."""
    items = hotplugged("MountedToPod")
    vmi = find(items, "VirtualMachineInstance", "db")
    devices = vmi["spec"]["domain"].setdefault("devices", {})
    devices["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
    for volume in vmi["spec"]["volumes"]:
        for kind in ("dataVolume", "persistentVolumeClaim"):
            if volume["name"] == "data" and kind in volume:
                volume[kind]["hotpluggable"] = True
    vmi["status"]["conditions"].append(
        {
            "type": "Synchronized",
            "status": "False",
            "reason": "Synchronizing with the Domain failed.",
            "message": "server error. command SyncVMI failed: No more available PCI slots",
        }
    )
    said = ask(items, "explain", "vm/db")
    assert "its guest lacks 1 disk, see Volumes" in said
    assert 'the guest lacks it: libvirt says "No more available PCI slots"' in said
    assert "describe persistentvolumeclaim data" not in said


@pytest.mark.parametrize(
    ("more", "plugs"),
    [({}, True), ({"shareable": True}, False)],
    ids=["plain", "more than virtctl tells"],
)
def test_a_disk_whose_serial_is_too_long_is_plugged_again_with_a_shorter_one(ask, more, plugs):
    """kubevirt/kubevirt#18734."""
    items = hotplugged("MountedToPod")
    vmi, serial = (
        find(items, "VirtualMachineInstance", "db"),
        "archive-log-of-the-third-quarter-disk-001",
    )
    data = {"name": "data", "disk": {"bus": "scsi"}, "serial": serial, "cache": "none", **more}
    vmi["spec"]["domain"].setdefault("devices", {})["disks"] = [data]
    said = ask(items, "explain", "vm/db")
    assert (
        "the guest lacks it: its pod hp-volume-db has run for 33 min (phase MountedToPod), but "
        "QEMU refuses a serial longer than 36 characters on bus scsi, and "
        f"spec.domain.devices.disks[0].serial of the VMI has 41: {serial}"
    ) in said
    assert "wait until its pod hp-volume-db is gone, and plug it again with a serial of at" in said
    assert "virtctl removevolume db --volume-name=data" in said
    again = "addvolume db --volume-name=data --serial=ve-log-of-the-third-quarter-disk-001"
    assert (f"{again} --cache=none" in said) is plugs
    assert ("addvolume" in said) is plugs
    data["serial"] = serial[:36]
    short = ask(items, "explain", "vm/db")
    assert "but the launcher does not add it to the guest (phase MountedToPod)" in short
    assert "addvolume" not in short
