"""Reports are frozen values.

Their fields are the keys of the JSON, so a schema is printed from their types.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from virt_admit.model.sanitize import escape_json

OMIT: Final = "omit"
"""The key in the ``metadata`` of a field that is not always printed: whether to omit it, given the
report and the value.
"""
UNLESS_GIVEN: Final[Mapping[str, Callable[[object, object], bool]]] = {
    OMIT: lambda _report, value: value is None
}


def as_data(value: object) -> Any:
    """Return a report as JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            key: as_data(item)
            for name, key, omit in _fields(type(value))
            for item in (getattr(value, name),)
            if omit is None or not omit(value, item)
        }
    if isinstance(value, Mapping):
        return {str(key): as_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value


@cache
def _fields(report: type) -> tuple[tuple[str, str, Callable[[object, object], bool] | None], ...]:
    """Return the name of each field, its key, and whether to omit it (None:
    it is always printed).
    """
    return tuple(
        (field.name, key_of(field.name), field.metadata.get(OMIT))
        for field in dataclasses.fields(report)
    )


def json_text(data: object) -> str:
    """Return indented JSON that is safe on a terminal, and shows the letters of all languages."""
    return escape_json(json.dumps(data, indent=2, ensure_ascii=False))


def key_of(name: str) -> str:
    """Return the key of a field.

    A key that is a keyword of Python ends with an underscore as a field: ``from_``.
    """
    return name.removesuffix("_")
