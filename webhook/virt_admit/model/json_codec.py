"""JSON as the API server writes it: orjson where it is installed (the extra ``[speed]``), else the standard library.

Both give the same objects; only the speed differs, by a factor of five.
"""

from __future__ import annotations

import json
import math
from typing import Any

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment,unused-ignore]


def loads(text: bytes) -> Any:
    """The value of a JSON text; not of what only Python takes for JSON (NaN, numbers out of range).

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deeply for the standard library.
    """
    if orjson is not None:
        return orjson.loads(text)
    return json.loads(text.decode(), parse_constant=_refuse, parse_float=_finite)


def dumps(value: Any) -> bytes:
    """A value as compact JSON in UTF-8, keys in their order."""
    if orjson is None:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode(errors="replace")  # half of a surrogate pair has no UTF-8; orjson does not read it at all
    encoded: bytes = orjson.dumps(value)
    return encoded


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value
