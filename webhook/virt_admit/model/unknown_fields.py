"""Fields that no known release of a custom resource defines, each with the nearest real field.

The tables in ``field_tables/`` are generated from CustomResourceDefinitions by ``make docs``. Each
kind has its own file, which is read when the first object of the kind is judged.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple

from virt_admit.model import messages
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Key, Object, Path

FOLDER: Final = FilePath(__file__).parent / "field_tables"

FREE: Final = 0
"""The type of values that are not judged: scalars, maps whose keys the user chooses,
preserved unknown fields.
"""

ANY: Final = "*"
"""The key of a type that stands for every key of a map."""

_GENERIC: Final = frozenset(
    (
        "name",
        "namespace",
        "type",
        "kind",
        "key",
        "value",
        "labels",
        "annotations",
        "metadata",
        "spec",
        "enabled",
        "size",
    )
)
"""Names that too many types have, so that the same name elsewhere says nothing."""

_ALIASES: Final = {
    "timeout": ("duration", "timeoutSeconds"),
    "timeoutSeconds": ("timeout", "duration"),
    "duration": ("timeout", "timeoutSeconds"),
}
"""The names that the three kinds of health checks have for the same field."""

_SHORT: Final = 5

_FARTHEST: Final = 5
"""How many steps up and down a suggestion may be away from the unknown field."""

_SAME_PREFIX: Final = 4
_ENOUGH: Final = 0.5


@dataclass(frozen=True)
class FieldTable:
    """The fields of one kind in all known versions and releases."""

    types: Sequence[Mapping[str, int]]
    """For each type the type of each field; ``FREE`` is the first one. Lists are transparent."""
    versions: Mapping[str, Sequence[int]]
    """For each API version the type of an object, newest release first."""

    def below(self, nodes: frozenset[int], key: str) -> frozenset[int]:
        """Return the types that a key has in some of these types; empty if no type defines it."""
        types = [self.types[node] for node in nodes]
        return frozenset(fields.get(key, fields.get(ANY, -1)) for fields in types) - {-1}

    @functools.cached_property
    def fields(self) -> Callable[[frozenset[int]], Mapping[str, frozenset[int]]]:
        """Return for some types the fields that any of them defines, each with its types."""
        return functools.cache(
            lambda nodes: {
                key: self.below(nodes, key)
                for key in {key for node in nodes for key in self.types[node]}
            }
        )

    @functools.cached_property
    def roots(self) -> frozenset[int]:
        return frozenset(node for nodes in self.versions.values() for node in nodes)

    def root(self, version: str) -> int:
        """Return the type of an object of this version in the newest known release."""
        return self.versions.get(version, next(iter(self.versions.values())))[0]


class UnknownField(NamedTuple):
    """A field that the API server drops, because no known release defines it."""

    path: Path
    nearest: Path | None

    @property
    def messages(self) -> tuple[str, ...]:
        """Problem, consequence, remedy; the longest text first."""
        problem = "no known release defines this field, so the API server drops it"
        remove = f"{problem}. Remove it or correct its name."
        if self.nearest is None:
            return (
                f"{problem} and the setting has no effect. Remove it or correct its name.",
                remove,
            )
        return (
            (
                f"{problem} and the setting has no effect. The nearest real field is "
                f"{self.nearest}. Use it or remove this one."
            ),
            f"{problem}. Use {self.nearest}, or remove it.",
            f"{problem}. Use {self.nearest[-1]}, or remove it.",
            remove,
        )


def find(obj: Object) -> Iterator[UnknownField]:
    """Yield the fields of an object that no known release defines, in the order of the file."""
    kind = kinds.of(obj)
    table = load(kind) if kind is not None else None
    if table is None or FREE in table.roots:
        return
    if _all_known(obj.data, table.roots, table):
        return
    for path in _unknown(obj.data, table.roots, table, Path()):
        yield UnknownField(path, nearest(table, table.root(obj.version), path))


def defines(kind: Kind, *path: str, of: str = "") -> bool:
    """Return whether some known release defines this path, in any version or in one of them.

    True for kinds without a table, and for versions that it does not have.
    """
    table = load(kind)
    nodes = table.roots if table is not None else frozenset()
    if table is not None and of:
        nodes = frozenset(table.versions.get(of, ()))
    if table is None or not nodes:
        return True
    for key in path:
        if FREE in nodes:
            return True
        nodes = table.below(nodes, key)
    return bool(nodes)


@functools.cache
def load(kind: Kind) -> FieldTable | None:
    """Read the table of a kind; return None for kinds that have none."""
    file = FOLDER / f"{kind.resource}.json"
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    types = [{key: _item(below) for key, below in fields.items()} for fields in data["types"]]
    return FieldTable(types, data["versions"])


def _item(below: int | list[Any]) -> int:
    """Return the type of the items of a list, which the file writes as ``[7]``;
    other types as they are.
    """
    return _item(below[0]) if isinstance(below, list) else below


def _all_known(value: Mapping[str, Any], nodes: frozenset[int], table: FieldTable) -> bool:
    """Return whether a map has no unknown field, as nearly all have none.

    It makes no paths, which takes most time.
    """
    known = table.fields(nodes)
    if not (value.keys() <= known.keys() or ANY in known):
        return False
    for key, child in value.items():
        if not isinstance(child, (dict, list)):
            continue
        below = known.get(key) or known[ANY]
        if FREE not in below:
            for item in child if isinstance(child, list) else (child,):
                if isinstance(item, dict) and not _all_known(item, below, table):
                    return False
    return True


def _unknown(value: Any, nodes: frozenset[int], table: FieldTable, path: Path) -> Iterator[Path]:
    """Yield the paths of unknown fields in a value."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):  # no list of lists, so the depth is that of the schema
                yield from _unknown(item, nodes, table, path / index)
        return
    if not isinstance(value, dict):
        return
    known = table.fields(nodes)
    for key, child in value.items():
        if child is None or not isinstance(key, str):
            continue
        below = known.get(key) or known.get(ANY)
        if below is None:
            yield path / key
        elif isinstance(child, (dict, list)) and FREE not in below:
            yield from _unknown(child, below, table, path / (key if key in known else Key(key)))


def nearest(table: FieldTable, root: int, path: Path) -> Path | None:
    """Return the real field that was probably meant: a similar name next to it,
    or the same name elsewhere.
    """
    *parents, name = path.without_indices
    around = [root]
    for key in parents:
        found = table.below(frozenset((around[-1],)), key) if around[-1] != FREE else frozenset()
        if not found:
            break
        around.append(next(iter(found)))
    reached = len(around) == len(parents) + 1
    siblings = [key for key in table.types[around[-1]] if key != ANY] if reached else []
    typo = _typo(name, siblings)
    if typo:
        return Path(*path[:-1], typo)
    for depth in range(len(around) - 1, -1, -1):
        below = _search(table, around[depth], name, _FARTHEST - (len(parents) - depth))
        if below is not None:
            return Path(*parents[:depth], *below)
    similar = max(siblings, key=lambda key: _similarity(name, key), default="")
    if _similarity(name, similar) >= _ENOUGH:
        return Path(*path[:-1], similar)
    return None


def _typo(name: str, siblings: list[str]) -> str | None:
    """Return the sibling that was probably meant.

    Two edits turn a short word into any other, so its first letter counts.
    """
    if not siblings:
        return None
    alias = next((other for other in _ALIASES.get(name, ()) if other in siblings), None)
    word = messages.did_you_mean(name, siblings)
    same_start = word is not None and word[:1].lower() == name[:1].lower()
    return alias or (word if same_start or len(name) > _SHORT else None)


def _search(table: FieldTable, start: int, name: str, deepest: int) -> tuple[str, ...] | None:
    """Return the shortest path from a type to a field of this name, or with the same words,
    breadth first.
    """
    if name in _GENERIC:
        return None
    level: list[tuple[tuple[str, ...], int]] = [((), start)]
    seen = {FREE, start}
    for _ in range(deepest):
        deeper: list[tuple[tuple[str, ...], int]] = []
        for path, node in level:
            for key, below in table.types[node].items():
                if key == name or _similarity(name, key) >= 1:
                    return (*path, key)
                if below not in seen:
                    seen.add(below)
                    deeper.append(((*path, key), below))
        level = deeper
    return None


def _similarity(left: str, right: str) -> float:
    """Return the share of words that both names have in common, if the first word is one of them.

    ``batchEvictSize`` and ``batchEvictionSize`` have all words in common.
    """
    ours, theirs = _words(left), _words(right)
    if not ours or not theirs or not _same_word(ours[0], theirs[0]):
        return 0.0
    common = sum(any(_same_word(word, other) for other in theirs) for word in ours)
    return common / max(len(ours), len(theirs))


@functools.lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name[:80]))


def _same_word(left: str, right: str) -> bool:
    if left == right:
        return True
    return (
        left[:_SAME_PREFIX] == right[:_SAME_PREFIX] and min(len(left), len(right)) >= _SAME_PREFIX
    )
