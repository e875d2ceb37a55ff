"""JSON as the API server writes it.

The extra ``[speed]`` installs orjson, which is five times faster. Both libraries give the same objects.
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
    """Parse JSON. Reject NaN and numbers out of range, which only Python accepts.

    Raises:
        ValueError: the text is not valid JSON.
        RecursionError: the text is nested too deeply for the standard library.
    """
    if orjson is not None:
        return orjson.loads(text)
    return json.loads(text.decode(), parse_constant=_refuse, parse_float=_finite)


def dumps(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8; keys keep their order."""
    if orjson is None:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode(errors="replace")  # UTF-8 cannot encode half a surrogate pair, and orjson refuses to read it
    encoded: bytes = orjson.dumps(value)
    return encoded


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def identical(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. ``==`` alone takes ``true`` for ``1``, and ignores the order of keys."""
    return one is other or (bool(one == other) and (isinstance(one, bytes) or dumps(one) == dumps(other)))
