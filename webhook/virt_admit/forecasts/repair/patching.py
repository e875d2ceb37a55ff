"""JSON Patches that refuse to run on another object than the one that was judged,
and their inverses.

``kubectl patch`` has no check of its own: an operation ``test`` makes a second run fail. Items of
lists are tested as a whole, because their indices move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from virt_admit.forecasts.repair.repair_plan import REMOVED, FieldEdit
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path

_ABSENT = object()


def patches(obj: Object, edits: Iterable[FieldEdit]) -> tuple[tuple[Patch, ...], tuple[Patch, ...]]:
    """Return the operations that make these edits, with the tests before them,
    and those that undo them.

    Both are empty if nothing would change.
    """
    operations = list(_operations(obj, edits))
    if not operations:
        return (), ()
    changed = json_patch.apply(obj, operations)
    return _tested(obj, operations), _tested(changed, _inverses(obj, operations))


def edited(obj: Object, edits: Iterable[FieldEdit]) -> Object:
    """Return the object with these edits; the given one does not change."""
    return json_patch.apply(obj, list(_operations(obj, edits)))


def _operations(obj: Object, edits: Iterable[FieldEdit]) -> Iterable[Patch]:
    for path, value in edits:
        found = _value(obj.data, path)
        if value is REMOVED:
            if found is _ABSENT:
                continue
            operation = Patch("remove", Path(*path))
        elif found is not _ABSENT:
            if found == value:
                continue
            operation = Patch("replace", Path(*path), value)
        else:
            operation = _addition(obj.data, path, value)
        yield operation
        obj = json_patch.apply(obj, (operation,))


def _addition(data: Any, path: tuple[str | int, ...], value: Any) -> Patch:
    """Return the operation that adds a value with the containers around it that are missing."""
    known = next(
        length for length in range(len(path), -1, -1) if _is_container(_value(data, path[:length]))
    )
    for step in reversed(path[known + 1 :]):
        value = {step: value}
    return Patch("add", Path(*path[: known + 1]), value)


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _value(data: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        if not _has(data, step):
            return _ABSENT
        data = data[step]
    return data


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, dict):
        return step in data
    return isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)


def _inverses(obj: Object, operations: list[Patch]) -> list[Patch]:
    """Return what undoes operations, the last one first."""
    undo: list[Patch] = []
    for operation in operations:
        before = _value(obj.data, operation.path)
        is_item = operation.path and isinstance(operation.path[-1], int)
        if operation.op == "remove":
            undo.append(Patch("add", operation.path, before))
        elif operation.op == "add" and (before is _ABSENT or is_item):
            undo.append(Patch("remove", operation.path))
        else:
            undo.append(Patch("replace", operation.path, before))
        obj = json_patch.apply(obj, (operation,))
    return undo[::-1]


def _tested(obj: Object, operations: list[Patch]) -> tuple[Patch, ...]:
    """Return the operations with a test of everything that they replace or add before them.

    A value that does not exist yet is tested to be null, so that one which was added meanwhile is
    not overwritten.
    """
    tests: dict[Path, Patch] = {}
    for operation in operations:
        for path in _tested_paths(obj.data, operation.path):
            value = _value(obj.data, path)
            if value is not _ABSENT:
                tests.setdefault(path, Patch("test", path, value))
            elif isinstance(_value(obj.data, path[:-1]), dict):
                tests.setdefault(path, Patch("test", path, None))
    name = Path("metadata", "name")
    if not tests and _value(obj.data, name) is not _ABSENT:
        tests[name] = Patch("test", name, obj.name)
    return (*tests.values(), *operations)


def _tested_paths(data: Any, path: Path) -> Iterator[Path]:
    """Yield what must be as it was: the value, and the name of each list item around it."""
    for length, step in enumerate(path[:-1], start=1):
        if isinstance(step, int):
            item = _value(data, path[:length])
            if isinstance(item, dict):
                yield Path(*path[:length], *(("name",) if "name" in item else ("metadata", "name")))
    yield path
