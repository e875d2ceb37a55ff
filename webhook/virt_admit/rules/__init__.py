"""Opinions: one ``<id>.py`` and one ``<id>.yaml`` (its cases) per rule, a folder per family.

There is no list to edit: a module with a ``RULE`` is a rule.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from virt_admit.model.kinds import Kind
from virt_admit.rule import Rule


class Rules:
    """All rules, by id and by kind."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_id: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in sorted(rules, key=lambda r: r.id)})
        by_kind: dict[Kind, list[Rule]] = {}
        for rule in self.by_id.values():
            for kind in rule.kinds:
                by_kind.setdefault(kind, []).append(rule)
        self.by_kind: Mapping[Kind, tuple[Rule, ...]] = {kind: tuple(some) for kind, some in by_kind.items()}
        self.metadata: Mapping[Kind, frozenset[str]] = {
            kind: frozenset(key for rule in some for key in rule.metadata) for kind, some in by_kind.items()
        }
        """The annotation and label keys that some rule for the kind names."""

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def at_admission(self) -> Rules:
        """The rules that the webhook asks."""
        return Rules(rule for rule in self if rule.at_admission)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that some rule judges."""
        return tuple(sorted(self.by_kind))


@functools.cache
def load_rules() -> Rules:
    """Import every rule module of this package."""
    files = Path(__file__).parent.glob("*/[!_]*.py")
    return Rules(importlib.import_module(f"{__name__}.{file.parent.name}.{file.stem}").RULE for file in files)
