"""Operators of devices: what lets a failed driver upgrade go on, and who waits behind a drain."""

from typing import Any

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import device_operators, paused_operands

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
    assert found.remedy.startswith(f"once its work is saved, {remedy}; then have the upgrade")


def test_a_node_that_is_cordoned_too_does_not_wait_behind() -> None:
    """Which of two nodes the operator drains first is not known."""
    nodes = [node(**REBOOT), node("b", **REBOOT), node("c", cordoned=False, **REBOOT)]
    found = device_operators.sriov(Object(nodes[0]), cluster(*nodes))
    assert found is not None
    assert found.waits.endswith(" c waits behind it.")


def driver_pod(ready: bool) -> dict[str, Any]:
    """Return the driver pod of node a, whose init container fails unless it is ready."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    init = {"name": "k8s-driver-manager", "restartCount": 17, "state": waiting}
    of = {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "driver", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "driver-x",
            "namespace": "gpu",
            "labels": {"app": "nvidia-driver-daemonset"},
            "ownerReferences": [of],
        },
        "spec": {"nodeName": "a"},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "initContainerStatuses": [] if ready else [init],
        },
    }


@pytest.mark.parametrize("ready", [False, True])
def test_the_driver_pod_that_fails_is_named(ready: bool) -> None:
    of_gpu = node(**FAILED)
    found = device_operators.driver_upgrade(Object(of_gpu), cluster(of_gpu, driver_pod(ready)))
    assert found is not None
    words = "Driver pod gpu/driver-x fails: container k8s-driver-manager: CrashLoopBackOff, 17 rest"
    assert (words in found.waits) is not ready
    assert "see in the log of its driver pod gpu/driver-x why" in found.remedy


@pytest.mark.parametrize(
    ("device", "value", "paused"),
    [
        ("nvidia.com/gpu", "paused-for-driver-upgrade", True),
        ("nvidia.com/gpu", "true", False),
        ("intel.com/gpu", "paused-for-driver-upgrade", False),
    ],
)
def test_a_device_plugin_is_taken_away_for_an_upgrade(
    device: str, value: str, paused: bool
) -> None:
    label = "nvidia.com/gpu.deploy.device-plugin"
    gpu = Object(node(labels={label: value}))
    found = paused_operands.of_plugin(gpu, device, cluster())
    assert (found is not None) is paused
    assert found is None or (found.key, found.value) == (label, value)
