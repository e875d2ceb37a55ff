"""Objects and updates around the cases of a rule, with values that parsers of durations, quantities
and labels find hard.
"""

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.rule_cases import Case

UNITS = ("ns", "us", "\u00b5s", "\u03bcs", "ms", "s", "m", "h", "d", "S", "")
WORDS = (
    "", " ", "x", "Ready", "ready", "NotReady", "True", "False", "Unknown", "Always", "None",
    "Equal", "Exists", "In", "NotIn",
    "DoesNotExist", "Gt", "Lt", "Custom", "VersionTLS12", "VersionTLS13", "Terminating", "qemu64",
    "host-model", "reboot",
    "a/b", "A.b_c", "-x", "x-", "a/b/c", "/x", "x" * 63, "x" * 64, "a" * 253 + "/b",
    "a" * 254 + "/b", "\u00e9", "it's", "a\\b",
    "a\nb", "a\n", "\u0665m", "64Mi", "1e3", "1E", "-1Ki", "-0", "-.0", ".5", "0.0005", "500m",
    "1.0000000001", "1e-400",
    "1e999", "1e99999999999", "40%", "101%", "100%", "007%", "0000000%", "-5%", "3", "-3",
    "2147483647", "2147483648",
    "0" * 9 + "3",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "[1-3]", "[3-1]",
    "[0-4294967295]", "[0-4294967296]",
    "[" + "0" * 40 + "1-2]", "0", "+0", "-0s", "0s", "+5s", "-5m", ".5s", "5.s", "1.5h", "1h30m",
    "0.9ns", "9m59.9999999995s",
    "9999999h", "2562047h47m16s", "2562047h48m", "-2562048h", "0" * 40 + "1s", "1" * 98 + "s",
    "0." + "1" * 97 + "s", "5 m",
    " 5m", "5m\n", "0junk", "junk5s", "1s" * 49, "1s" * 501, "10m", "599s", "600s", "9ms", "10ms",
)  # fmt: skip
PLAIN = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    300,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    1.5,
    300.5,
    -0.5,
)
KEPT = ("apiVersion", "kind", "metadata", "namespace", "spec")
"""What says what the object is, and where all fields are."""
NESTED: tuple[Any, ...] = (
    [],
    {},
    [None],
    [[]],
    ["x", "x"],
    ["Ready"],
    [{"type": "Ready"}],
    [
        {
            "type": "Ready",
            "status": "False",
            "timeout": "5m",
            "duration": "5m",
            "timeoutSeconds": 300,
        }
    ],
    {"a": "b"},
    {"a": None},
    {"a/b/c": "x y"},
    {"a": {"b": 1}},
    [{"key": "a", "operator": "In", "values": ["b", 1, "x y"]}],
)


def updates(
    case: Case, chance: random.Random
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield objects near the one of a case without end,
    each with the object before the update or None.
    """
    new, old = case["object"], case.get("old")
    while True:
        variant = changed(new, chance)
        match chance.randrange(6):
            case 0 | 1:
                yield variant, old
            case 2:
                yield variant, new  # the fault may be old
            case 3:
                yield changed(variant, chance), variant
            case 4:
                yield new, variant
            case _:
                yield variant, changed(old, chance) if old is not None else None


def changed(obj: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy with one to three values removed or replaced,
    apart from those that say what the object is.
    """
    copied = copy.deepcopy(obj)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = [place for place in leaves(copied) if place[1] not in KEPT]
        if not places:
            break
        parent, key = chance.choice(places)
        if chance.random() < 0.2 and isinstance(parent, dict):
            del parent[key]
        elif chance.random() < 0.1 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            parent[key] = value(parent[key], chance)
    return copied


def value(before: Any, chance: random.Random) -> Any:
    """A value to write: of the same kind more often than not."""
    number = chance.random()
    if isinstance(before, str) and number < 0.4:
        return chance.choice(WORDS)
    if isinstance(before, str) and number < 0.7:
        return duration(chance)
    if isinstance(before, str) and number < 0.8:
        return chance.choice(
            (before.lower(), before.upper(), before + "x", before[1:], " " + before)
        )
    return copy.deepcopy(chance.choice((*PLAIN, *NESTED, chance.choice(WORDS), duration(chance))))


def duration(chance: random.Random) -> str:
    """A duration, or nearly one."""
    parts = (
        chance.choice(
            ("0", "1", "5", "59", "60", "1.5", ".25", "00", "300", "999999999", "9.", "x")
        )
        + chance.choice(UNITS)
        for _ in range(chance.choice((1, 1, 2, 3)))
    )
    return chance.choice(("", "", "", "-", "+")) + "".join(parts)


def leaves(held: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every value of an object as its container and its key."""
    for key, item in (
        held.items()
        if isinstance(held, dict)
        else enumerate(held)
        if isinstance(held, list)
        else ()
    ):
        yield held, key
        yield from leaves(item)
