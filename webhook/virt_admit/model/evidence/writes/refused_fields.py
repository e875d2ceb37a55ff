"""The field of a VM that virt-api names when it refuses the VMI, its value, and what ends that.

virt-api names fields of the VMI; in the VM they are those of its template. Sources:
kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go
#validateEmulatedMachine, :pkg/virt-config/virt-config.go#GetEmulatedMachines.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.model import releases, unknown_fields
from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.messages import names

_PATH: Final = re.compile(r"\bspec((?:\.[A-Za-z]\w{0,63}(?:\[\d{1,4}\])?){1,12})")
_PART: Final = re.compile(r"\.(\w+)(?:\[(\d+)\])?")
_ALLOWED: Final = re.compile(r"\(allowed values: \[([^\]]{1,300})\]\)")
_MACHINE: Final = ".domain.machine.type"
_TEMPLATE: Final = "spec.template.spec"


class RefusedField(NamedTuple):
    """A field that virt-api refuses."""

    path: str
    """In the spec of the VMI: ``.domain.machine.type``."""
    allowed: tuple[str, ...]
    """The values that are allowed, which may be patterns; empty: it names none."""


def named(said: str) -> RefusedField | None:
    """Return the field of a VMI that a refusal names first; None: it names none."""
    allowed = _ALLOWED.search(said)
    every = (found[1].removeprefix(".template.spec") for found in _PATH.finditer(said))
    path = next((each for each in every if _is_of_vmi(each)), "")
    values = tuple(allowed[1].split()) if allowed is not None else ()
    return RefusedField(path, values) if path else None


def _is_of_vmi(path: str) -> bool:
    """Return whether a path begins with a field of a VMI: ``spec.running`` is one of a VM."""
    first = _PART.match(path)
    return first is not None and unknown_fields.defines(VMI, "spec", first[1])


def remedy(vm: Object, template: Field, said: str, kubevirt: str) -> str:
    """Return what ends that virt-api refuses a field of a VM; empty: it names none, or the object
    is a VMI.

    Args:
        vm: the VM.
        template: the spec of the VMI in it.
        said: the refusal.
        kubevirt: the name of the KubeVirt resource with its kind.
    """
    found = named(said) if vm.kind == VM.kind else None
    if found is None:
        return ""
    value, path = _at(template, found.path), f"{_TEMPLATE}{found.path}"
    edit = kubectl("edit", VM, vm.name, vm.namespace)
    allowed = f" (allowed: {names(found.allowed)})" if found.allowed else ""
    if not value.present:
        words = (
            f"set {path} of the VM to a value that KubeVirt accepts{allowed}, or correct it where "
            f"the VM gets it: in its instance type, its preference or the configuration of "
            f"{kubevirt}"
        )
        return typed(words, edit)
    now = f" (now {show(value.text)})" if value.text else ""
    machine = releases.machine_of(found.allowed) if found.path == _MACHINE else ""
    if machine:
        words = (
            f"set {path} of the VM{now} to {machine}, after which its guest may name its "
            "disks and network interfaces otherwise"
        )
        change = {"template": {"spec": {"domain": {"machine": {"type": machine}}}}}
        allow = (
            "or, if the QEMU of its launcher still has that type, add it to the emulatedMachines "
            f"of {kubevirt}, beside {names(found.allowed)}"
        )
        return typed(words, merge_patch(VM, vm.name, vm.namespace, {"spec": change}), allow)
    to = f"to a value that KubeVirt accepts{allowed}" if allowed else "as KubeVirt says"
    return typed(f"correct {path} of the VM{now} {to}", edit)


def _at(field: Field, path: str) -> Field:
    """Return the field at a path such as ``.domain.devices.disks[0].name``."""
    for name, index in _PART.findall(path):
        field = field[name]
        if index:
            items = list(field.items())
            field = items[int(index)] if int(index) < len(items) else Field(None)
    return field
