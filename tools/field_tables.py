"""The tables of known fields: every release of a CustomResourceDefinition that was read so far
(``definitions.py``).

A table only grows. A definition whose fields it has all changes nothing, so the same tables come
from each source of definitions, and a field that a release removed stays known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import definitions
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.unknown_fields import ANY, FOLDER, FREE
from virt_admit.rules import load_rules

SUFFIX = "-field-unknown"

Type = dict[str, Any] | list[Any] | int
"""What a field holds: the type of each key, a list with the type of its items, or ``FREE``."""
Releases = Mapping[str, Sequence[Type]]
"""For each API version the type of an object, the newest release first."""


def judged() -> list[Kind]:
    """Return the kinds that a rule about unknown fields judges."""
    return sorted(
        {kind for rule in load_rules() if rule.id.endswith(SUFFIX) for kind in rule.kinds}
    )


def files() -> dict[Path, str]:
    """Return the table of each kind with the definitions that are at hand;
    nothing is built for them.
    """
    found = definitions.real(build=False)
    return {
        path: _updated(path, found.get(kind.resource)) for kind in judged() if (path := _path(kind))
    }


def not_compared() -> str:
    """Return the kinds whose tables cannot be compared as one line; empty if there are none."""
    missing = [
        kind.resource for kind in judged() if kind.resource not in definitions.real(build=False)
    ]
    return (
        f"field tables not compared, no definition at hand: {', '.join(missing)}" if missing else ""
    )


def _path(kind: Kind) -> Path:
    return FOLDER / f"{kind.resource}.json"


def _updated(path: Path, definition: Path | None) -> str:
    if not path.exists() and definition is None:
        raise FileNotFoundError(
            f"{path.name} has no definition: see 'A new release of a custom resource'"
        )
    known = releases(path.read_text()) if path.exists() else {}
    return table(known if definition is None else extended(known, definitions.load(definition)))


def releases(text: str) -> Releases:
    """Return what a table says."""
    data = json.loads(text)

    def expanded(node: int | list[int]) -> Type:
        if isinstance(node, list):
            return [expanded(node[0])]
        return (
            {name: expanded(below) for name, below in data["types"][node].items()}
            if node != FREE
            else FREE
        )

    return {
        version: [expanded(node) for node in nodes] for version, nodes in data["versions"].items()
    }


def extended(known: Releases, definition: Mapping[str, Any]) -> Releases:
    """Return the releases with those versions of a definition that have a field more,
    as the newest ones.
    """
    found = {version: list(types) for version, types in known.items()}
    for version in definition["spec"]["versions"]:
        types = found.setdefault(version["name"], [])
        if not _within(top := _top(version["schema"]["openAPIV3Schema"]), types):
            types.insert(0, top)
    return found


def _top(schema: Mapping[str, Any]) -> Type:
    found = _type(schema)
    assert isinstance(found, dict), "a definition without a schema"
    return dict(
        sorted(
            {**found, **dict.fromkeys(("apiVersion", "kind", "metadata", "status"), FREE)}.items()
        )
    )


def _type(schema: Mapping[str, Any]) -> Type:
    if schema.get("type") == "array":
        below = _type(schema.get("items", {}))
        return FREE if below == FREE else [below]
    fields = {name: _type(below) for name, below in sorted(schema.get("properties", {}).items())}
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        fields[ANY] = _type(extra)
    elif extra or any(
        schema.get(f"x-kubernetes-{mark}")
        for mark in ("preserve-unknown-fields", "embedded-resource")
    ):
        fields[ANY] = FREE
    return FREE if not fields or fields == {ANY: FREE} else fields


def _within(one: Type, others: Iterable[Type]) -> bool:
    """Return whether some of the other types have each field of this one."""
    maps = list(_maps(others))
    if FREE in maps:
        return True
    return all(
        isinstance(fields, dict)
        and all(
            _within(
                below,
                [each.get(name, each.get(ANY)) for each in maps if name in each or ANY in each],
            )
            for name, below in fields.items()
        )
        for fields in _maps([one])
    ) and bool(maps)


def _maps(types: Iterable[Type]) -> Iterator[Any]:
    """Yield the types with lists replaced by their items."""
    for each in types:
        if isinstance(each, list):
            yield from _maps(each)
        else:
            yield each


def table(found: Releases) -> str:
    """Return the table of a kind as JSON, with one type in each line so that changes are
    readable.
    """
    types = _Types()
    versions = {
        version: [types.add(each) for each in each_release]
        for version, each_release in found.items()
    }
    lines = ",\n".join(json.dumps(fields, separators=(",", ":")) for fields in types.all)
    return f'{{"versions":{json.dumps(versions)},\n"types":[\n{lines}\n]}}\n'


class _Types:
    """The distinct types of a kind.

    Equal types are stored once, which makes a table twenty times smaller.
    """

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = [{}]
        self._index: dict[str, int] = {}

    def add(self, one: Type) -> int | list[Any]:
        """Return the number of a type, of a list that of its items in a list."""
        if isinstance(one, list):
            return [self.add(one[0])]
        if isinstance(one, int):
            return FREE
        fields = {name: self.add(below) for name, below in one.items()}
        key = json.dumps(fields)
        if key not in self._index:
            self._index[key] = len(self.all)
            self.all.append(fields)
        return self._index[key]
