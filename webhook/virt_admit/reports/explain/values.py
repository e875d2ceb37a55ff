"""A report that is a value as JSON data: the fields of its dataclasses are the keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def as_data(value: Any) -> Any:
    """Return a value as JSON data. An underscore at the end of a field is left out: it keeps it from being a keyword."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name.removesuffix("_"): as_data(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): as_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(item) for item in value]
    return value
