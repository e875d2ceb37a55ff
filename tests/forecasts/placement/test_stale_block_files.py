"""Containers that are not created, as their node has a plain file for a block volume."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

SAID = (
    f'failed to generate container "{"0a" * 32}" spec: failed to generate spec: not a device node'
)
NOW = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T10:30:00Z"}
VM = manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop")
REBOOTED = manifest(
    "v1",
    "Event",
    "a.1",
    "default",
    type="Warning",
    reason="Rebooted",
    message="Node a has been rebooted",
    lastTimestamp="2026-03-01T10:03:00Z",
    involvedObject={"kind": "Node", "name": "a"},
)
DISK = manifest(
    "v1",
    "PersistentVolume",
    "pvc-1",
    spec={"csi": {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1"}},
)


def pod(name="virt-launcher-db-1", said=SAID):
    owner = {"kind": "VirtualMachineInstance", "name": "db", "controller": True}
    waiting = {"reason": "CreateContainerError", "message": said}
    return manifest(
        "v1",
        "Pod",
        name,
        "shop",
        metadata={"ownerReferences": [owner]},
        spec={
            "nodeName": "a",
            "containers": [{"name": "compute"}],
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}],
        },
        status={"containerStatuses": [{"name": "compute", "state": {"waiting": waiting}}]},
    )


def found(*objects, mode="Block", said=SAID, labels=(), volume="pvc-1", complete=("*",)):
    spec = {"volumeMode": mode, "volumeName": volume}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", "shop", spec=spec)
    here = node("a")
    here.data["status"] = {"conditions": [NOW]}
    own = pod(said=said)
    own.data["metadata"]["labels"] = dict(labels)
    cluster = Snapshot([here, claim, own, *objects], complete=complete)
    return pod_starts.fault(own, cluster)


def test_the_claim_the_reboot_and_the_steps_are_named():
    fault = found(VM, DISK, REBOOTED)

    assert fault.words == (
        "CreateContainerError: failed to generate container spec: failed to generate spec: not a "
        "device node. Most likely a has a plain file for the block volume of claim disk, left from "
        "before a reboot (a was rebooted 27 min ago; Longhorn before 1.6.1 leaves it there)"
    )
    assert fault.of_node
    assert command_of(fault.remedy) == "virtctl stop db -n shop"
    assert "umount /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/*" in (
        fault.remedy
    )
    assert "virtctl start db -n shop" in fault.remedy


def test_without_an_event_no_reboot_is_claimed():
    fault = found(VM)

    assert fault.words.endswith("claim disk, left from before a reboot")
    assert not fault.of_node


def test_a_pod_without_vm_gets_no_command_of_a_vm():
    assert "virtctl" not in found(DISK).remedy


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "Filesystem"},
        {"said": "failed to generate spec: lstat /dev/vfio/1: no such file or directory"},
    ],
)
def test_another_error_or_a_file_system_is_no_such_file(other):
    assert "plain file" not in found(VM, DISK, REBOOTED, **other).words


def test_a_device_that_another_pod_there_uses_is_not_taken_away():
    assert "umount" not in found(VM, DISK, pod("virt-launcher-twin")).remedy


@pytest.mark.parametrize("labels", [{"kubevirt.io/migrationJobUID": "1"}, {}])
def test_a_guest_that_runs_elsewhere_goes_on_without_the_target_of_its_migration(labels):
    status = {"phase": "Running", "nodeName": "b"}
    guest = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", status=status)
    remedy = found(VM, DISK, guest, labels=labels).remedy

    assert command_of(remedy) == "kubectl cordon a"
    assert "only once pod virt-launcher-db-1 is gone, run on a: umount" in remedy
    assert "virtctl migrate-cancel db -n shop" in remedy
    assert "virtctl stop" not in remedy
    assert "--force" not in remedy


def test_a_guest_that_has_not_run_is_stopped():
    status = {"phase": "Scheduled", "nodeName": "a"}
    guest = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", status=status)

    remedy = found(VM, DISK, guest).remedy

    assert command_of(remedy) == "virtctl stop db -n shop"
    assert "start the VM once pod virt-launcher-db-1 is gone" in remedy
    assert "--force" not in remedy


def test_a_volume_that_a_running_guest_may_have_is_unplugged_first():
    own = pod("hp-volume-1")
    own.data["metadata"] |= {
        "labels": {"kubevirt.io": "hotplug-disk"},
        "ownerReferences": [{"kind": "Pod", "name": "virt-launcher-db-1", "controller": True}],
    }
    spec = {"volumeMode": "Block", "volumeName": "pvc-1"}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", "shop", spec=spec)
    remedy = pod_starts.fault(own, Snapshot([node("a"), claim, own, VM], ["*"])).remedy

    assert remedy.startswith("unplug that volume, first in the guest, and unmount the file on a")
    assert "only once no pod on a uses that claim, run on a: umount" in remedy
    assert "delete the pod" not in remedy


def test_other_pods_that_were_not_read_may_use_the_device():
    assert "if no other pod on a uses that claim" in found(VM, complete=["nodes"]).remedy
    assert "if no other pod" not in found(VM).remedy


def test_the_name_of_a_volume_is_quoted_for_a_shell():
    assert "/pvc-1; reboot/dev'/*" in found(VM, volume="pvc-1; reboot").remedy
