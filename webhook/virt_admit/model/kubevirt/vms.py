"""Where KubeVirt's kinds keep things."""

from __future__ import annotations

from typing import Final

from virt_admit.model import kinds
from virt_admit.model.objects import Field, Object

RUN_STRATEGIES: Final = ("Always", "Halted", "Manual", "RerunOnFailure", "Once", "WaitAsReceiver")
"""kubevirt.io/api/core/v1 types.go#VirtualMachineRunStrategy; compared exactly."""

EVICTION_STRATEGIES: Final = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
"""kubevirt.io/api/core/v1 types.go#EvictionStrategy; compared exactly."""


def namespace_of(obj: Object) -> str:
    """The namespace in which the objects that this one names are found; files need not say it."""
    return obj.namespace or "default"


_NOWHERE: Final = ("-",)


def vm_spec(obj: Object) -> Field:
    """``S``, the VM spec: of a VM its own, of a pool that of its template, of other kinds absent."""
    kind = kinds.of(obj)
    if kind is kinds.VM:
        return obj["spec"]
    if kind is kinds.POOL:
        return obj.at("spec", "virtualMachineTemplate", "spec")
    return obj.at(*_NOWHERE)


def vmi_template(obj: Object) -> Field:
    """What becomes the VMI: its ``metadata`` and ``spec``. For a VMI the object itself."""
    return obj.at(*_vmi_template(obj))


def vmi_spec(obj: Object) -> Field:
    """``T``, the VMI spec inside the object. Not a map: the schema will refuse the object, nothing is judged."""
    return obj.at(*_vmi_template(obj), "spec")


def _vmi_template(obj: Object) -> tuple[str, ...]:
    kind = kinds.of(obj)
    if kind is kinds.VM or kind is kinds.VMIRS:
        return ("spec", "template")
    if kind is kinds.POOL:
        return ("spec", "virtualMachineTemplate", "spec", "template")
    return () if kind is kinds.VMI else _NOWHERE


def run_strategy(spec: Field) -> str | None:
    """The run strategy that a VM spec means, ``running`` included; None where neither is set, or both."""
    running, strategy = spec["running"], spec["runStrategy"]
    if strategy.present:
        return None if running.present else strategy.text
    return {True: "Always", False: "Halted"}.get(running.boolean) if running.boolean is not None else None
