"""YAML scalars, resolved like go.yaml.in/yaml/v2 does."""

from __future__ import annotations

import base64
import functools
import math
import re
from typing import Any, Final

from virt_admit.documents.tree import SURROGATE, MarkupError, integral
from virt_admit.model.kubernetes.units import show

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INTEGER: Final = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|(0[0-7]+)|0|[1-9][0-9]*)"
)
_FLOAT: Final = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
_NOT_JSON: Final = re.compile(r"[+-]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_INTEGER: Final = 100  # characters; 64 bits have at most 64 digits

_TAG: Final = "tag:yaml.org,2002:"
COLLECTION_TAGS: Final = (None, "!", f"{_TAG}map", f"{_TAG}seq")
MERGE_TAG: Final = f"{_TAG}merge"
_TEXT_TAGS: Final = ("!", f"{_TAG}str", f"{_TAG}timestamp")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}


def scalar(event: Any) -> Any:
    """Return the value of a scalar.

    Raises:
        MarkupError: JSON has no equal value, or the value does not match its tag.
    """
    text: str = event.value
    if event.tag is not None:
        return _tagged(event, text)
    if event.implicit[0]:
        return _plain_at(text, event)
    # libyaml rejects such escapes, but the parser in Python does not
    if event.style == '"' and SURROGATE.search(text):
        raise MarkupError("an escape that is not a valid character", event.start_mark.index)
    return text


_SHORT: Final = 64
"""Characters of the texts that are remembered. Manifests repeat few keys and words;
long texts differ.
"""


def plain(text: str) -> Any:
    """Return the value of a scalar without quotes and tag.

    Raises:
        MarkupError: JSON has no equal value. Its offset is 0.
    """
    return _remembered(text) if len(text) <= _SHORT else _plain(text)


def _plain(text: str) -> Any:
    word = _WORDS.get(text, text)
    if word is text and text[0] in "+-.0123456789":
        return _number(text)
    return word


_remembered = functools.lru_cache(maxsize=10_000)(_plain)


def _plain_at(text: str, event: Any) -> Any:
    try:
        return plain(text)
    except MarkupError as error:
        raise MarkupError(error.message, event.start_mark.index) from None


def _number(text: str) -> int | float | str:
    """Return the number of a plain scalar, or the text itself."""
    digits = text if text[0] == "." else text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match and len(digits) <= _LONGEST_INTEGER:
        number = int(digits, 8 if match[1] else 0)
        if -(2**63) <= number < 2**63:
            return number
        if number < 2**64 and digits[0] not in "+-":
            return float(number)
    try:
        value = float(digits) if _FLOAT.fullmatch(digits.replace("_", "")) else math.inf
    except ValueError:  # an underscore that is not between digits
        return text
    if math.isfinite(value):
        return integral(value)
    if _NOT_JSON.fullmatch(text):
        raise MarkupError(f"{text} is not a number that JSON has", 0)
    return text


def _tagged(event: Any, text: str) -> Any:
    tag = event.tag
    if tag in _TEXT_TAGS:
        return text
    if tag == f"{_TAG}binary":
        try:
            content = base64.b64decode(text.replace("\n", ""), validate=True)
            return content.decode("utf-8", "replace")
        except ValueError:
            raise MarkupError(f"{show(text)} is not base64", event.start_mark.index) from None
    types = _TYPES.get(tag)
    if types is None:
        raise MarkupError(f"unknown tag {show(tag)}", event.start_mark.index)
    value = _plain_at(text, event)
    if type(value) not in types:
        raise MarkupError(
            f"{show(text)} is not a value of !!{tag.removeprefix(_TAG)}", event.start_mark.index
        )
    return value
