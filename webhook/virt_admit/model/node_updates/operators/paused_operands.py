"""Pods that software of NVIDIA keeps off a node for the time of a change, by the value of a label
that their DaemonSets select, and whether anything lets them back.

The GPU operator sets the label only where it is absent, so a value that its writer could not take
back stays. The vGPU device manager itself waits in an init container for a file that the validator
writes, which it has sent away; its own pods run the validation since
NVIDIA/gpu-operator#2857. Sources: NVIDIA/gpu-operator#2845, :controllers/state_manager.go
#addGPUStateLabels; NVIDIA/vgpu-device-manager:cmd/nvidia-k8s-vgpu-dm/main.go#shutdownGPUOperands
#rescheduleGPUOperands; NVIDIA/mig-parted:pkg/mig/reconfigure/reconfigure.go;
NVIDIA/k8s-driver-manager:cmd/driver-manager/main.go#maybeSetPaused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, logs_of, pods_on, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates.operators import device_operators

READS: Final[Reads] = union(
    clock.READS,
    device_operators.READS,
    {
        DAEMON_SET: ("spec.template.spec.nodeSelector",),
        NODE: ("metadata.labels",),
        POD: (
            "metadata.labels.app",
            "spec.nodeName",
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
            "status.conditions.status",
            "status.conditions.type",
            "status.phase",
        ),
    },
)

_PAUSED: Final = "paused-for-"
_DEPLOY: Final = "nvidia.com/gpu.deploy."
_PLUGINS: Final = ("device-plugin", "sandbox-device-plugin")
_OVER: Final = frozenset(("success", "failed"))
_STARTS_WITHIN: Final = timedelta(minutes=10)


class _Change(NamedTuple):
    by: str
    """What sets the value and takes it back."""
    does: str
    app: str
    """The label ``app`` of its pods."""
    state: str
    """The label of a node that says how far the change is."""


_CHANGES: Final = {
    "paused-for-vgpu-change": _Change(
        "the vGPU device manager",
        "changes the vGPU profile",
        "nvidia-vgpu-device-manager",
        "nvidia.com/vgpu.config.state",
    ),
    "paused-for-mig-change": _Change(
        "the MIG manager",
        "changes the MIG profile",
        "nvidia-mig-manager",
        "nvidia.com/mig.config.state",
    ),
}
_VALIDATION: Final = "vgpu-manager-validation"
"""The init container of the vGPU device manager that waits for the validator."""
_VALIDATOR: Final = f"{_DEPLOY}sandbox-validator"


class PausedOperand(NamedTuple):
    """A label of a node that keeps the pods of a DaemonSet off it."""

    key: str
    value: str
    by: str
    """What sets that value, as a relative clause; empty: not known."""
    remedy: str
    left: str = ""
    """Why nothing takes it back, as a clause; empty: something may."""


def any_of(node: Object) -> bool:
    """Return whether a label pauses anything on a node."""
    return any(value.startswith(_PAUSED) for value in node.labels.values())


def of_plugin(node: Object, device: str, cluster: Cluster) -> PausedOperand | None:
    """Return what keeps the device plugin of a device off a node; None: no label does."""
    keys = (f"{_DEPLOY}{each}" for each in _PLUGINS) if device.startswith("nvidia.com/") else ()
    found = (of_label(node, key, cluster) for key in keys)
    return next((each for each in found if each is not None), None)


def of_label(node: Object, key: str, cluster: Cluster) -> PausedOperand | None:
    """Return what the value of a label pauses on a node; None: nothing."""
    value = node.labels.get(key, "")
    if not value.startswith(_PAUSED):
        return None
    change = _CHANGES.get(value)
    if change is None:
        return PausedOperand(key, value, "", _after_upgrade(node, cluster))
    here = entry(cluster, _writers, node.name) or ()
    pods = [pod for pod in here if pod.labels.get("app") == change.app]
    by = f"which {change.by} sets while it {change.does}"
    left = _left(node, change, value, pods, cluster)
    if left:
        fixed = "" if node.labels.get(change.state) in _OVER else _FIXED
        return PausedOperand(key, value, by, _set_back(node, value, fixed, cluster), left)
    see = logs_of(pods[0]) if pods else pods_on(node.name)
    wait = f"wait until it is done; whether it goes on, its log on {node.name} says"
    return PausedOperand(key, value, by, typed(wait, see))


def _writers(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return by node the pods that change profiles."""
    apps = {change.app for change in _CHANGES.values()}
    every = (
        pod
        for pod in cluster.known(POD)
        if pod.labels.get("app") in apps and not (pod.ended or pod.deleted)
    )
    return grouped(every, lambda pod: pod.at("spec", "nodeName").text or "")


def _left(
    node: Object, change: _Change, value: str, pods: Sequence[Object], cluster: Cluster
) -> str:
    """Return why the value is not taken back, as a clause; empty: it may be."""
    pod = pods[0] if pods else None
    if pod is None:
        return ""  # its DaemonSet may make one
    state = node.labels.get(change.state)
    if pod.is_true("Ready"):
        return f"{change.state}={state} says that this is over" if state in _OVER else ""
    begun = pod.condition("Initialized")
    waits = begun["status"].text == "False" and _VALIDATION in (begun["message"].text or "")
    age = clock.since(begun["lastTransitionTime"].text, cluster)
    if not waits or age is None or age < _STARTS_WITHIN or node.labels.get(_VALIDATOR) != value:
        return ""
    return (
        f"its pod {pod.full_name} has waited for {clock.duration(age)} in {_VALIDATION} for the "
        f"validator, which label {_VALIDATOR.removeprefix(_DEPLOY)} keeps off too"
    )


_FIXED: Final = (
    "and update the GPU operator to a release with its pull request 2857, which ends this"
)


def _set_back(node: Object, value: str, further: str, cluster: Cluster) -> str:
    """Return what lets all pods back that a value keeps off."""
    keys = sorted(key for key, has in node.labels.items() if has == value)
    selected = {
        key: wanted
        for daemon in cluster.known(DAEMON_SET)
        for key, wanted in daemon.at("spec", "template", "spec", "nodeSelector").texts.items()
    }
    back = [f"{key}={selected.get(key, 'true')}" for key in keys]
    said = names((back[0], *(each.removeprefix(_DEPLOY) for each in back[1:])), 300)
    way = f"set label{'s' * (len(back) > 1)} {said} of {node.name}"
    label = shell("kubectl", "label", "node", argument(node.name), "--overwrite", *back)
    return typed(way, label, further)


def _after_upgrade(node: Object, cluster: Cluster) -> str:
    """Return what brings the pods back after a driver upgrade."""
    work = device_operators.driver_upgrade(node, cluster)
    if work is not None and work.remedy:
        return work.remedy
    if work is not None:
        return f"wait until the driver upgrade of {node.name} is done, which brings it back"
    see = f"see in the log of the driver pod on {node.name} why it is not back"
    return typed(see, pods_on(node.name))
