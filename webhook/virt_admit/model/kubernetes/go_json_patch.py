"""JSON Patch as KubeVirt applies it to a restored VM: with gopkg.in/evanphx/json-patch.v4.

It is more lenient than RFC 6902: ``replace`` may set a key that does not exist, and a negative
index counts from the end of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from virt_admit.model.kubernetes import json_codec

MAX_COPIED: Final = 3 * 1024 * 1024
"""Bytes. The API server accepts no larger request,
but ``copy`` operations can double a value again and again.
"""

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}\Z")


class NotApplied(ValueError):
    """An operation does not fit the object, so KubeVirt applies none of them."""


def apply(data: Any, operations: Iterable[Any]) -> Any:
    """Apply the operations to JSON data, and return the result, which may be another value.

    The given data change.

    Raises:
        NotApplied: an operation is not valid or does not fit.
    """
    root, copied = data, 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise NotApplied("an operation is not an object")
        op, value = operation.get("op"), operation.get("value")
        if op == "replace" and operation.get("path") == "":
            root = _whole(value)
            continue
        if op in ("move", "copy"):
            value = _get(*_find(root, operation.get("from")))
            if op == "move":
                _remove(*_find(root, operation.get("from")))
        value = copy(value)
        if op == "copy" and (copied := copied + _size(value)) > MAX_COPIED:
            raise NotApplied("the operations copy too much")
        _change(root, op, operation.get("path"), value)
    return root


def copy(data: Any) -> Any:
    """Return a copy of JSON data that shares nothing with it.

    Raises:
        NotApplied: the data are nested too deeply.
    """
    if not isinstance(data, (dict, list)):
        return data
    try:
        return json_codec.loads(json_codec.dumps(data))
    except (ValueError, TypeError, RecursionError):
        raise NotApplied("a value is nested too deeply") from None


def _whole(value: Any) -> Any:
    if not isinstance(value, (dict, list)):
        raise NotApplied("the whole object is replaced by what is not an object")
    return copy(value)


def _same(left: Any, right: Any) -> bool:
    """Return whether both are the same JSON.

    Python takes true for 1; the cheap comparison comes first.
    """
    return bool(left == right) and json.dumps(left, sort_keys=True) == json.dumps(
        right, sort_keys=True
    )


def _size(data: Any) -> int:
    return len(json_codec.dumps(data))


def _change(root: Any, op: Any, path: Any, value: Any) -> None:
    container, key = _find(root, path)
    if op in ("add", "move", "copy"):
        _add(container, key, value)
    elif op == "replace":
        _get(container, key)
        container[_position(container, key)] = value
    elif op == "remove":
        _remove(container, key)
    elif op == "test":
        if not _same(_get(container, key), value):
            raise NotApplied(f"the test of {path} fails")
    else:
        raise NotApplied(f"{op!r} is not an operation")


def _find(root: Any, path: Any) -> tuple[Any, str]:
    """Return the container of the value at a JSON Pointer, and the last step."""
    if not isinstance(path, str) or "/" not in path:
        raise NotApplied(f"{path!r} is not a path")
    *parents, key = (step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])
    for step in parents:
        root = _get(root, step)
    if not isinstance(root, (dict, list)):
        raise NotApplied(f"{path} does not exist")
    return root, key


def _get(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    if not isinstance(container, list) or not 0 <= (index := _position(container, key)) < len(
        container
    ):
        raise NotApplied(f"{key} does not exist")
    return container[index]


def _position(container: Any, key: str, length: int | None = None) -> Any:
    """Return a key of a map, or an index of a list, which may be out of range."""
    if isinstance(container, dict):
        return key
    if not _INDEX.match(key):
        raise NotApplied(f"{key!r} is not an index")
    index = int(key)
    return index + (len(container) if length is None else length) if index < 0 else index


def _add(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
        return
    index = len(container) if key == "-" else _position(container, key, len(container) + 1)
    if not 0 <= index <= len(container):
        raise NotApplied(f"index {key} does not exist")
    container.insert(index, value)


def _remove(container: Any, key: str) -> None:
    if isinstance(container, dict) and key not in container:
        raise NotApplied(f"{key} does not exist")
    _get(container, key)
    del container[_position(container, key)]
