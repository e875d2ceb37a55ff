"""Reports are frozen values. Their fields are the keys of the JSON, so a schema is printed from their types."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


def as_data(value: object) -> Any:
    """Return a report as JSON data.

    A field whose key is a keyword of Python ends with an underscore, ``from_``, which is left out of the key.
    """
    if dataclasses.is_dataclass(value):
        return {
            field.name.removesuffix("_"): as_data(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): as_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value
