"""How long Cluster API drains the node of a Machine that is being deleted, and what it does afterwards.

Source: kubernetes-sigs/cluster-api: core/reconcilers/machine/machine_controller.go#nodeDrainTimeoutExceeded
#shouldWaitForNodeVolumes; api/core/v1beta2/machine_types.go#MachineDeletionStatus.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import SECOND, parse_duration

READS: Final[Reads] = union(
    machine_nodes.READS,
    {
        CAPI_MACHINE: (
            "spec.deletion",
            "spec.nodeDrainTimeout",
            "spec.nodeVolumeDetachTimeout",
            "status.deletion.nodeDrainStartTime",
            "status.deletion.waitForNodeVolumeDetachStartTime",
            "status.conditions",
            "metadata.annotations",
        ),
        MACHINE: ("spec.lifecycleHooks",),
    },
)

_PRE_DRAIN: Final = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
"""The annotation of a Machine whose drain waits, alone or with ``/NAME`` (common_types.go#PreDrainDeleteHookAnnotationPrefix).
Its value names the owner."""


def holding_hooks(machine: Object) -> tuple[str, ...]:
    """Return the pre-drain hooks that a Machine waits for now; empty: none, or it is not being deleted."""
    return tuple(pre_drain_hooks(machine)) if machine.deleted else ()


def pre_drain_hooks(machine: Object) -> Iterator[str]:
    """Yield what a Machine waits for once it is deleted, before its node is drained, as ``NAME of OWNER``.

    No time-out ends that wait: of Cluster API (machine_controller.go#reconcileDelete) and of OpenShift
    (machine-api-operator: pkg/controller/machine/drain_controller.go).
    """
    if kinds.of(machine) is CAPI_MACHINE:
        hooks = [(key, value) for key, value in machine.annotations.items() if key.startswith(_PRE_DRAIN)]
        found = [(key.removeprefix(_PRE_DRAIN).lstrip("/"), value) for key, value in sorted(hooks)]
    else:
        listed = machine.at("spec", "lifecycleHooks", "preDrain").items()
        found = [(hook["name"].text or "", hook["owner"].text or "") for hook in listed]
    for name, owner in found:
        yield f"{name or 'without a name'} of {owner}" if owner else name or "without a name"


def timeout(machine: Object) -> int | None:
    """Return after how many seconds Cluster API ends the drain; None: never, as on OpenShift."""
    return _seconds(machine, "nodeDrainTimeout")


def detach_timeout(machine: Object) -> int | None:
    """Return for how many seconds it waits then until volumes are detached; None: without limit."""
    return _seconds(machine, "nodeVolumeDetachTimeout")


def volume_wait(machine: Object) -> str | None:
    """Return since when the deletion of a Machine waits for volumes to be detached; None: it does not."""
    if machine.condition("Deleting")["reason"].text == "WaitingForVolumeDetach":
        return machine.at("status", "deletion", "waitForNodeVolumeDetachStartTime").text
    older = machine.condition("VolumeDetachSucceeded")
    return older["lastTransitionTime"].text if older["status"].text == "False" else None


def ends(machine: Object) -> datetime | None:
    """Return when the drain of the node of a Machine ends although VMs are left; None: never, or not known.

    It has not begun while a hook holds it.
    """
    limit = None if holding_hooks(machine) else timeout(machine)
    started = clock.instant(machine.at("status", "deletion", "nodeDrainStartTime").text)
    began = started or clock.instant(machine.metadata["deletionTimestamp"].text)
    try:
        return began + timedelta(seconds=limit) if began is not None and limit is not None else None
    except OverflowError:
        return None


def _seconds(machine: Object, field: str) -> int | None:
    if kinds.of(machine) is not CAPI_MACHINE:
        return None
    newer = machine.at("spec", "deletion", f"{field}Seconds").integer
    if newer is not None:
        return newer if newer > 0 else None
    try:
        older = parse_duration(machine.at("spec", field).value) // SECOND
    except ValueError:
        return None
    return older if older > 0 else None
