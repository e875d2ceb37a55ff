"""Opinions: one ``<id>.py`` and one ``<id>.yaml`` (its cases) per rule, a folder per first word of the ids.

There is no list to edit: a module with a ``RULE`` is a rule. Its folder is the first word of its id.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from virt_admit.model import kinds, reads
from virt_admit.model.kinds import Kind
from virt_admit.model.messages import did_you_mean
from virt_admit.model.releases import NO_TARGET, Target
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

    def about(self, target: Target = NO_TARGET) -> Rules:
        """Return the rules that speak about these releases, and those that speak always."""
        return Rules(rule for rule in self if not rule.target or target.reaches(rule.target))

    @property
    def in_scan(self) -> Rules:
        """The rules that ``scan`` asks."""
        return Rules(rule for rule in self if rule.in_scan)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that some rule judges."""
        return tuple(sorted(self.by_kind))


class InvalidRule(ValueError):
    """A rule file that cannot be used. The message is one line: the file, the problem, what to write."""


@functools.cache
def load_rules() -> Rules:
    """Import every rule module of this package.

    Raises:
        InvalidRule: a file has no valid ``RULE``.
    """
    return Rules(map(_load, sorted(Path(__file__).parent.glob("*/[!_]*.py"))))


def _load(file: Path) -> Rule:
    name = f"{file.parent.name}/{file.name}"
    rule = getattr(importlib.import_module(f"{__name__}.{file.parent.name}.{file.stem}"), "RULE", None)
    if not isinstance(rule, Rule):
        raise InvalidRule(f"rules/{name}: RULE is missing. End the file with RULE = Rule(module=__name__, ...)")
    if rule.id.partition("-")[0] != file.parent.name:
        raise InvalidRule(
            f"rules/{name}: move the file to rules/{rule.id.partition('-')[0]}/, the first word of its id"
        )
    for problem in problems(rule):
        raise InvalidRule(f"rules/{name}: {problem}")
    return rule


_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_COMMON: Final = ("metadata", "spec", "status")
"""Kinds may have any other field next to these (``reclaimPolicy`` of a StorageClass): only misspellings are found."""


def problems(rule: Rule) -> Iterator[str]:
    """Return what is wrong with the fields of a rule, each with what to write instead."""
    if not isinstance(rule.metadata, tuple):
        yield f"metadata is not a tuple. Write metadata=({rule.metadata!r},)"
    if rule.target and rule.at_admission:
        yield "a rule about an upgrade does not run at admission. Write at_admission=False"
    if not isinstance(rule.reads, Mapping):
        yield 'reads is not a mapping. Write reads={PVC: ("status.phase",)}'
        return
    for kind, paths in rule.reads.items():
        if kind not in kinds.ALL:
            yield f"reads names the unknown kind {kind!r}. Use a kind of model/kinds.py, or add a record there"
        elif not isinstance(paths, tuple):
            yield f"the fields of {kind} in reads are not a tuple. Write {kind.kind}: ({str(paths)!r},)"
        else:
            yield from (
                f"reads names the unknown field {path!r} of {kind}. Write a path such as status.phase"
                for path in paths
                if not _is_path(path)
            )


def _is_path(path: object) -> bool:
    if not isinstance(path, str):
        return False
    first, *rest = reads.keys(path)
    if first == "metadata" and rest[:1] in (["annotations"], ["labels"]):
        return all(rest)
    return did_you_mean(first, _COMMON) in (None, first) and all(_KEY.fullmatch(key) for key in (first, *rest))
