"""Random changes of objects and of texts. The same ``Random`` gives the same changes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**63, 10**400, "", " ", "x", "-1", "0", "100%", "-5%",
    "5m", "1e3", "1Ei", "null",
    "None", "LiveMigrate", "Always", "\ud800\x00\n%s{}", "<script>", "\x1b[2J\u202e", "9" * 5_000,
    [], [None], {},
    {"": None}, {"a": {"b": [{"c": 1}]}}, [[], {}, 1, "a", None],
)  # fmt: skip
"""Values of every JSON type, and words that mean something in some field."""

TOKENS = (
    b"---\n", b"...\n", b"{{", b"}}", b"&a ", b"*a", b"<<: ", b"!!binary ", b"? ", b"- ", b": ",
    b"#", b"|\n", b">-\n", b"[",
    b"]", b"{", b"}", b'"', b"'", b"\t", b"\r\n", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\u0000",
    b"%YAML 1.1\n", b"~",
    b"9" * 400, b"apiVersion: v1\n", b"kind: List\n", b"items:\n", b"spec:\n", b"metadata:\n",
    b"\xe2\x80\xae", b"1e999",
)  # fmt: skip
"""What YAML, JSON, templates and manifests are made of."""

Step = str | int


def places(data: Any, prefix: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield the path of every value in the data, the root left out."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for step, value in items:
        yield (*prefix, step)
        yield from places(value, (*prefix, step))


def changed(
    chance: random.Random, data: Any, others: Sequence[Any] = (), kept: Sequence[str] = ()
) -> Any:
    """Return a copy with one to four changes: junk, a part of another object,
    something removed or repeated.

    The fields of the first level that are named in ``kept`` stay, so that the object keeps its
    kind.
    """
    found = copy.deepcopy(data)
    for _ in range(chance.randint(1, 4)):
        paths = [path for path in places(found) if path[0] not in kept]
        if paths:
            _change(chance, found, chance.choice(paths), others)
    return found


def _change(
    chance: random.Random, root: Any, path: tuple[Step, ...], others: Sequence[Any]
) -> None:
    holder = _at(root, path[:-1])
    match chance.randrange(5):
        case 0:
            del holder[path[-1]]
        case 1 if others:
            holder[path[-1]] = _part(chance, chance.choice(others))
        case 2 if isinstance(holder, list):
            holder.extend(copy.deepcopy([holder[path[-1]]] * chance.choice([1, 2, 40])))
        case 3 if isinstance(holder, dict):
            holder[f"{path[-1]}{chance.choice(['s', 'X', ''])}"] = copy.deepcopy(
                chance.choice(JUNK)
            )
        case _:
            holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))


def grown(
    chance: random.Random, data: Any, size: int, kept: Sequence[tuple[Step, ...]] = ()
) -> tuple[tuple[Step, ...], Any]:
    """Return a copy in which one value has many more items, entries or characters,
    and the path of this value.

    The value gets about ``size`` characters of JSON. The values at the paths in ``kept`` stay.
    """
    found = copy.deepcopy(data)
    path = chance.choice([path for path in places(found) if path not in kept])
    holder = _at(found, path[:-1])
    holder[path[-1]] = _multiplied(chance, holder[path[-1]], size)
    return path, found


def _multiplied(chance: random.Random, value: Any, size: int) -> Any:
    """Return the value many times; half of the time the items of a list differ in their names."""
    if isinstance(value, str):
        return (value or "x") * (size // max(1, len(value)))
    if isinstance(value, dict) and value:
        key, item = next(iter(value.items()))
        return value | {
            f"{key}{number}": item for number in range(size // (len(json.dumps(item)) + 12))
        }
    if isinstance(value, list) and value:
        copies = range(size // (len(json.dumps(value)) + 2))
        differ = chance.random() < 0.5
        return [_renamed(item, number) if differ else item for number in copies for item in value]
    return value


def _renamed(item: Any, number: int) -> Any:
    if isinstance(item, str):
        return f"{item}{number}"
    return {**item, "name": f"n{number}", "key": f"k{number}"} if isinstance(item, dict) else item


def _part(chance: random.Random, data: Any) -> Any:
    """Return a copy of some value within the data."""
    return copy.deepcopy(_at(data, chance.choice([(), *places(data)])))


def _at(data: Any, path: tuple[Step, ...]) -> Any:
    """Return the value at a path."""
    for step in path:
        data = data[step]
    return data


def shuffled(chance: random.Random, data: Any) -> Any:
    """Return the same data with the keys of every map in another order."""
    if isinstance(data, dict):
        keys = chance.sample(list(data), len(data))
        return {key: shuffled(chance, data[key]) for key in keys}
    return [shuffled(chance, item) for item in data] if isinstance(data, list) else data


def changed_text(chance: random.Random, text: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return the text with one to five changes: bytes, tokens, lines removed, repeated,
    or of another text.
    """
    for _ in range(chance.randint(1, 5)):
        at, length = chance.randint(0, len(text)), chance.choice([1, 2, 8, 40])
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[at + length :]
            case 1:
                text = text[:at] + chance.choice(TOKENS) + text[at:]
            case 2:
                text = text[:at] + chance.choice(TOKENS) + text[at + length :]
            case 3:
                text = (
                    text[:at]
                    + bytes(chance.randrange(256) for _ in range(length))
                    + text[at + length :]
                )
            case 4:
                text = (
                    text[:at] + text[max(0, at - length) : at] * chance.choice([2, 30]) + text[at:]
                )
            case _ if others:
                other = chance.choice(others)
                text = text[:at] + other[chance.randint(0, len(other)) :]
    return text
