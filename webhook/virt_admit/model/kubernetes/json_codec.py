"""JSON as the API server writes it.

The extra ``[speed]`` installs orjson, which is five times faster. Both libraries give the same
objects.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

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


def embedded(text: str | None) -> Any:
    """Return the JSON in a text of an object, such as an annotation; None: it is not JSON, has a
    number out of range, or is nested too deeply.
    """
    try:
        return json.loads(text or "null", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


MAX_DEPTH: Final = 100
"""Maps and lists within each other that are read of an object of the API server, which stores up to
10,000. KubeVirt has fields without a schema, such as ``spec.template.metadata``; no rule reads that
deep, orjson parses 1,024, and writes 254.
"""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def loads_bounded(text: bytes) -> Any:
    """Parse JSON of the API server.

    If it is nested too deeply to be parsed, read what is below ``MAX_DEPTH`` as null.

    One object with such a value must hide neither the rest of that object nor all other objects of
    a listing.

    Raises:
        ValueError: the text is not valid JSON.
    """
    try:
        return loads(text)
    except (ValueError, RecursionError):
        if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
            raise
        try:
            return loads(_without_deep_values(text))
        except RecursionError as error:
            raise ValueError(str(error)) from None


def _without_deep_values(text: bytes) -> bytes:
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts.append(text[start : token.start()])
        elif first in b"}]":
            if depth == MAX_DEPTH + 1:
                parts.append(b"null")
                start = token.end()
            depth -= 1
    return b"".join((*parts, text[start:]))


def dumps_bounded(value: Any) -> bytes:
    """Encode an object of the API server.

    If it is nested too deeply, write what is below ``MAX_DEPTH`` as null.
    """
    try:
        return dumps(value)
    except (TypeError, RecursionError):  # TypeError: orjson
        return dumps(_shallow(value, MAX_DEPTH))


def _shallow(value: Any, depth: int) -> Any:
    if not isinstance(value, (dict, list)):
        return value
    if not depth:
        return None
    if isinstance(value, list):
        return [_shallow(item, depth - 1) for item in value]
    return {key: _shallow(item, depth - 1) for key, item in value.items()}


def dumps(value: Any) -> bytes:
    """Encode a value as compact JSON in UTF-8; keys keep their order."""
    if orjson is None:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        # UTF-8 cannot encode half a surrogate pair, and orjson refuses to read it
        return text.encode(errors="replace")
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
    """Return whether two JSON values are equal.

    ``==`` alone takes ``true`` for ``1``, and ignores the order of keys.
    """
    return one is other or (
        bool(one == other) and (isinstance(one, bytes) or dumps(one) == dumps(other))
    )
