"""Operators of devices: what lets a failed driver upgrade go on, and who waits behind a drain."""

from typing import Any

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import device_operators

FAILED: dict[str, Any] = {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}}
REBOOT: dict[str, Any] = {"annotations": {"sriovnetwork.openshift.io/state": "Reboot_Required"}}


def node(name: str = "a", cordoned: bool = True, **metadata: Any) -> dict[str, Any]:
    spec = {"unschedulable": cordoned}
    metadata["name"] = name
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def cluster(*objects: dict[str, Any]) -> Snapshot:
    return Snapshot(map(Object, objects), complete=["*"])


def test_a_failed_driver_upgrade_may_still_end() -> None:
    """The operator uncordons the node once its driver pod works, so only what keeps that pod from
    being made again is held.
    """
    found = device_operators.driver_upgrade(Object(node(**FAILED)), cluster(node(**FAILED)))
    assert found is not None
    assert found.ends is None
    assert "once the driver pod there is of the newest revision and ready" in found.waits


def owner(kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "name": "ml",
        "uid": kind,
        "controller": True,
    }


@pytest.mark.parametrize(
    ("owners", "remedy"),
    [
        (
            [owner("VirtualMachine")],
            (
                "shut VM vms/ml down for this time, and start it again afterwards: virtctl stop ml "
                "-n vms"
            ),
        ),
        ([], "shut VMI vms/ml down for this time: kubectl describe vmi ml -n vms"),
    ],
)
def test_a_vm_that_holds_a_gpu_is_shut_down(owners: list[dict[str, Any]], remedy: str) -> None:
    metadata = {"namespace": "vms", "ownerReferences": owners}
    vmi = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "ml", **metadata},
    }
    metadata = {"namespace": "vms", "ownerReferences": [owner("VirtualMachineInstance")]}
    container = {"name": "compute", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "virt-launcher-ml-x", **metadata},
    }
    pod |= {"spec": {"nodeName": "a", "containers": [container]}, "status": {"phase": "Running"}}
    of_gpu = node(**FAILED)
    found = device_operators.driver_upgrade(Object(of_gpu), cluster(of_gpu, pod, vmi))
    assert found is not None
    assert found.remedy.startswith(f"once its work is saved, {remedy}, then")


def test_a_node_that_is_cordoned_too_does_not_wait_behind() -> None:
    """Which of two nodes the operator drains first is not known."""
    nodes = [node(**REBOOT), node("b", **REBOOT), node("c", cordoned=False, **REBOOT)]
    found = device_operators.sriov(Object(nodes[0]), cluster(*nodes))
    assert found is not None
    assert found.waits.endswith(" c waits behind it.")
