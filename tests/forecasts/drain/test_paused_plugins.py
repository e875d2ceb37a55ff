"""A device plugin that the GPU operator took away for its driver upgrade: not to be restarted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import manifest
from tests.forecasts.drain.vm_motion import cluster, node
from virt_admit.forecasts.drain.starts.devices import unreported_devices
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Field, Object

_GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("labels", "told", "says"),
    [
        ({}, True, "the device plugin there no longer reports them"),
        (
            {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"},
            True,
            "the GPU operator has taken the device plugin away there (nvidia.com/gpu.deploy.",
        ),
        (
            {
                "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade",
                "nvidia.com/gpu-driver-upgrade-state": "upgrade-failed",
            },
            False,  # what cordons the node says it
            "the GPU operator has taken the device plugin away there (nvidia.com/gpu.deploy.",
        ),
    ],
)
def test_a_plugin_that_its_operator_took_away(labels: dict, told: bool, says: str) -> None:
    gpu = node("a")
    gpu.data["metadata"]["labels"] |= labels
    gpu.data["status"]["allocatable"] |= {_GPU: "0"}
    container = {"name": "c", "resources": {"requests": {_GPU: "1"}, "limits": {_GPU: "1"}}}
    user = manifest(
        "v1",
        "Pod",
        "train",
        "ml",
        spec={"nodeName": "a", "containers": [container]},
        status={"phase": "Running"},
    )
    seen = cluster(gpu, user)
    found = unreported_devices.of_node("a", seen)
    assert says in unreported_devices.words("a", found, seen)
    assert bool(unreported_devices.note("a", seen)) is told
    remedy = unreported_devices.remedy("a", found, seen)
    assert ("restart the device plugin" in remedy) is (not labels)


@pytest.mark.parametrize(
    ("message", "at", "told"),
    [
        ("Starting kubelet.", "2026-01-01T11:59:51Z", False),
        ("Starting kubelet.", "2026-01-01T11:50:00Z", True),
        ("", "2026-01-01T11:59:51Z", True),
    ],
    ids=["a moment ago", "minutes ago", "kube-proxy"],
)
def test_devices_register_again_after_a_start_of_the_kubelet(message, at, told) -> None:
    gpu = node("a")
    gpu.data["status"]["allocatable"] |= {_GPU: "0"}
    container = {"name": "c", "resources": {"requests": {_GPU: "1"}, "limits": {_GPU: "1"}}}
    spec = {"nodeName": "a", "containers": [container]}
    user = manifest("v1", "Pod", "train", "ml", spec=spec, status={"phase": "Running"})
    started = manifest("v1", "Event", "e", "default")
    started.data.update(reason="Starting", message=message, lastTimestamp=at)
    started.data["involvedObject"] = {"kind": "Node", "name": "a"}
    seen = Snapshot([gpu, user, started], ["*"], time="2026-01-01T12:00:00Z")
    assert bool(unreported_devices.of_node("a", seen)) is told


def test_events_are_read_once_for_the_kubelets_of_all_nodes() -> None:
    read = []

    class Counted(Object):
        def at(self, *keys: str) -> Field:
            read.append(keys)
            return super().at(*keys)

    events = []
    for i in range(20):
        started = manifest("v1", "Event", f"e{i}", "default")
        started.data.update(reason="Starting", message="Starting kubelet.")
        started.data["lastTimestamp"] = f"2026-01-01T11:59:{i + 10}Z"
        started.data["involvedObject"] = {"kind": "Node", "name": f"n{i % 10}"}
        events.append(Counted(started.data))
    seen = Snapshot(events, ["*"], time="2026-01-01T12:00:00Z")
    ages = [node_health.kubelet_started(f"n{i}", seen) for i in range(11)]
    assert ages == [*(timedelta(seconds=40 - i) for i in range(10)), None]
    assert read.count(("involvedObject", "name")) == 20
