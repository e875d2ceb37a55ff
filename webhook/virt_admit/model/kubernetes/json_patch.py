"""JSON Patch: apply operations to an object without copying all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.objects import Object, Path

PatchVerb = Literal["add", "remove", "replace", "test"]


class Patch(NamedTuple):
    """One operation of a JSON Patch (RFC 6902)."""

    op: PatchVerb
    path: Path
    value: Any = None

    def as_json(self) -> dict[str, Any]:
        """Return the operation as JSON data."""
        if self.op == "remove":
            return {"op": self.op, "path": self.path.pointer}
        return {"op": self.op, "path": self.path.pointer, "value": self.value}

    def __str__(self) -> str:
        """Return the operation as an order: ``set spec.x to 1``."""
        if self.op == "remove":
            return f"remove {self.path}"
        return f"set {self.path} to {self._value_text}"

    def passive(self, verb: str) -> str:
        """Return the operation as a report: ``spec.x was set to 1``.

        Args:
            verb: ``was`` for a change that is made, ``would be`` for one that is only predicted.
        """
        if self.op == "remove":
            return f"{self.path} {verb} removed"
        return f"{self.path} {verb} set to {self._value_text}"

    @property
    def _value_text(self) -> str:
        return self.value if isinstance(self.value, str) else json_codec.dumps(self.value).decode()


def in_order(operations: Iterable[Patch]) -> tuple[Patch, ...]:
    """Return operations that were found on one object so that none moves what another one names.

    Items of lists are removed after all other changes, the last item first.
    """

    def moves(operation: Patch) -> tuple[int, int]:
        last = operation.path[-1]
        return (1, -last) if operation.op == "remove" and isinstance(last, int) else (0, 0)

    return tuple(sorted(operations, key=moves))


class PatchError(ValueError):
    """An operation does not fit the object."""


def apply(obj: Object, operations: Iterable[Patch]) -> Object:
    """Return a new object with the operations applied; the given object does not change.

    Only the containers on the path to a change are copied.

    Raises:
        PatchError: a path does not exist, or a test fails.
    """
    data: Any = obj.data
    for operation in operations:
        data = _apply(data, operation.path, operation)
    return Object(data, obj.namespace)


def _apply(container: Any, path: tuple[str | int, ...], operation: Patch) -> Any:
    step, rest = path[0], path[1:]
    if isinstance(container, dict) and isinstance(step, str):
        return _in_map(dict(container), step, rest, operation)
    if isinstance(container, list) and (isinstance(step, int) or step == "-"):
        return _in_list(list(container), step, rest, operation)
    raise PatchError(f"{operation.path.pointer}: there is no {step!r}")


def _in_map(
    copy: dict[str, Any], step: str, rest: tuple[str | int, ...], operation: Patch
) -> dict[str, Any]:
    if step not in copy and operation.op == "test" and operation.value is None and not rest:
        # evanphx/json-patch:patch.go#test, which the API server uses: null means that there is
        # nothing
        return copy
    if step not in copy and (rest or operation.op != "add"):
        raise PatchError(f"{operation.path.pointer}: there is no {step!r}")
    if rest:
        copy[step] = _apply(copy[step], rest, operation)
    elif operation.op == "remove":
        del copy[step]
    elif operation.op == "test":
        _test(copy[step], operation)
    else:
        copy[step] = operation.value
    return copy


def _in_list(
    copy: list[Any], step: str | int, rest: tuple[str | int, ...], operation: Patch
) -> list[Any]:
    index = len(copy) if step == "-" else int(step)
    last = len(copy) if operation.op == "add" and not rest else len(copy) - 1
    if not 0 <= index <= last:
        raise PatchError(f"{operation.path.pointer}: there is no item {step}")
    if rest:
        copy[index] = _apply(copy[index], rest, operation)
    elif operation.op == "add":
        copy.insert(index, operation.value)
    elif operation.op == "remove":
        del copy[index]
    elif operation.op == "test":
        _test(copy[index], operation)
    else:
        copy[index] = operation.value
    return copy


def _test(value: Any, operation: Patch) -> None:
    if value != operation.value:
        raise PatchError(f"{operation.path.pointer}: is {value!r}, not {operation.value!r}")
