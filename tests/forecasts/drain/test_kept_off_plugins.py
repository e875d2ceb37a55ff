"""A VM waits for a device that a node lacks, as its device plugin is kept off there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.forecasts.drain.test_start_obstacles import anywhere, stuck
from tests.healthy.parts import namespaces, obj, pod
from tests.incidents.machines import find, guest
from tests.incidents.starts import GPU, gpu, starting, with_gpu
from virt_admit.forecasts.drain.starts.devices import kept_off_plugins
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POD, Kind
from virt_admit.model.kubernetes.objects import Object

_LABEL = "nvidia.com/gpu.deploy.device-plugin"
_STATE = "nvidia.com/mig.config.state"
_PAUSED = "paused-for-mig-change"


def waiting(labels: dict[str, str], *more: dict[str, Any]) -> Any:
    """Return what keeps a VM off w1, while the one device of w2 is in use."""
    items = gpu("0", external=True) + starting("cad", "Scheduling", **with_gpu())
    items += guest("render", "w2", **with_gpu()) + namespaces("gpu")
    anywhere(items, "cad", "render")
    del find(items, "Node", "w1")["status"]["allocatable"][GPU]
    find(items, "Node", "w1")["metadata"]["labels"] |= labels
    find(items, "Node", "w2")["status"]["allocatable"] |= {GPU: "1"}
    template = {"spec": {"nodeSelector": {_LABEL: "true"}, "tolerations": [{"operator": "Exists"}]}}
    spec = {"template": template}
    daemon = obj("DaemonSet", "apps/v1", "nvidia-device-plugin", "gpu", spec=spec)
    items += [daemon, pod("nvidia-device-plugin-x", "gpu", "w2", {}, daemon), *more]
    return stuck(items, "cad")


def manager(ready: bool) -> dict[str, Any]:
    found = pod("mig-x", "gpu", "w1", {"app": "nvidia-mig-manager"}, None)
    found["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return found


@pytest.mark.parametrize(
    ("state", "ready", "left"),
    [
        ("success", True, True),
        ("pending", True, False),  # it goes on
        ("success", False, False),  # its pod starts again, and may take it back
    ],
)
def test_a_label_that_its_writer_has_left_is_set_back(state: str, ready: bool, left: bool) -> None:
    found = waiting({_LABEL: _PAUSED, _STATE: state}, manager(ready))

    assert found.reason.startswith(
        f"w1 offers 0 of {GPU}: DaemonSet gpu/nvidia-device-plugin demands label {_LABEL}=true (w1 "
        f"has {_PAUSED}), which the MIG manager sets while it changes the MIG profile"
    )
    assert f"; the only {GPU} of w2 is in use by VM vms/render" in found.reason
    assert (f"{_STATE}=success says that this is over" in found.reason) is left
    command = f"kubectl label node w1 --overwrite {_LABEL}=true"
    assert found.remedy.endswith(command) is left
    assert found.remedy.startswith("wait until it is done") is not left


@pytest.mark.parametrize("labels", [{}, {_LABEL: "false"}])
def test_a_node_without_the_device_is_not_blamed(labels: dict[str, str]) -> None:
    found = waiting(labels)

    assert found.reason.startswith(f"the only {GPU} of w2 is in use by VM vms/render; w1")


class _Counted(Snapshot):
    scans = 0

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        self.scans += kind is POD
        return super().known(kind, namespace)


def test_the_pods_are_gone_through_once_for_all_nodes() -> None:
    """No name of a pod says what offers the device, so that each node is asked."""
    nodes = [
        obj("Node", "v1", f"w{i}", None, status={"allocatable": {"x.com/y": str(i % 2)}})
        for i in range(60)
    ]
    cluster = _Counted(map(Object, nodes), ["*"])
    assert not any(kept_off_plugins.of_node(Object(each), cluster) for each in nodes)
    assert cluster.scans < 30
