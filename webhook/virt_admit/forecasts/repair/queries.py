"""Queries of ``kubectl get`` that show whether fields have the values of a step,
and what they print then.

Source: k8s.io/client-go/util/jsonpath: a map or list is printed as JSON, a missing field as
nothing, and an index that a list does not have is an error. So items with a name are found by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import (
    REMOVED,
    FieldEdit,
    ObjectRef,
    PlannedCheck,
    RepairStep,
)
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms

_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that Go escapes in JSON."""


def check(
    text: str, subject: ObjectRef, edits: Iterable[FieldEdit], like: Object | None = None
) -> PlannedCheck:
    """Return the check that an object has the values of edits.

    Args:
        text: what must be true.
        subject: the object.
        edits: fields of it, and their values.
        like: an object whose lists have names for the items of the edits.
    """
    fields = [
        field for path, value in edits for field in _fields("".join(_steps(path, like)), value)
    ]
    template = "|".join(f"{{{place}}}" for place, _ in fields)
    return PlannedCheck(
        text,
        (*get(subject), f"-o=jsonpath={template}"),
        "|".join(printed(value) for _, value in fields),
    )


def running(step: RepairStep, vm: Object) -> PlannedCheck | None:
    """Return the check that the VMI of a VM has what a step writes into the template; None: the
    step writes nothing there.
    """
    depth = len(TEMPLATE)
    own = (change for change in (*step.changes, *step.followed) if change.subject == step.subject)
    edits = [edit for change in own for edit in change.edits if edit.path[:depth] == TEMPLATE]
    if not edits:
        return None
    named = Object({"spec": vms.vmi_spec(vm).value}, vm.namespace)
    subject = ObjectRef(VMI, step.subject.namespace, step.subject.name)
    moved = [FieldEdit(("spec", *path[depth:]), value) for path, value in edits]
    return check("the running VMI has the new values", subject, moved, named)


def in_force(quota: ObjectRef, edits: Iterable[FieldEdit]) -> PlannedCheck:
    """Return the check that the quota controller counts with the new limits of a quota."""
    return check(
        "the new limits are in force",
        quota,
        [FieldEdit(("status", *path[1:]), value) for path, value in edits],
    )


def get(subject: ObjectRef) -> tuple[str, ...]:
    """Return the arguments of ``kubectl`` that read an object."""
    namespace = ("-n", subject.namespace) if subject.namespace else ()
    return ("get", subject.kind.resource, subject.name, *namespace)


def printed(value: Any) -> str:
    """Return a value as a template prints it; a removed one prints nothing."""
    if value is REMOVED:
        return ""
    if isinstance(value, str):
        return value
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "".join(_ESCAPED.get(character, character) for character in text)


def _fields(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of maps and of named items one by one: controllers add others to them."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _fields(f"{place}{_key(key)}", below)
    elif isinstance(value, list) and value and all(map(_name, value)):
        for item in value:
            yield from _fields(f"{place}{_named(_name(item))}", item)
    else:
        yield place, value


def _steps(path: Sequence[str | int], like: Object | None) -> Iterator[str]:
    for length, step in enumerate(path):
        if isinstance(step, str):
            yield _key(step)
        else:
            name = _name(like.at(*path[:length], step).value) if like is not None else ""
            yield _named(name) if name else f"[{step}]"


def _key(key: str) -> str:
    return "." + re.sub(r"([^A-Za-z0-9_-])", r"\\\1", key)


def _name(item: Any) -> str:
    """Return the name of an item of a list, if it can be part of a template."""
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) and selectors.is_dns_name(name) else ""


def _named(name: str) -> str:
    return f"[?(@.name=='{name}')]"
