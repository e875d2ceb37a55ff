"""Opinions: one ``<id>.py`` and one ``<id>.yaml`` (its cases) per rule,
a folder per first word of the ids.

There is no list to edit: a function with ``@rule`` is a rule. Its folder is the first word of its
id. Rules that differ only in what a row of a table says share one file in ``families/``, which ends
with the tuple ``RULES``. It writes out the ids, so that a search for an id finds the file.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple, TypeVar

from virt_admit.model.kubernetes import kinds, reads
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.messages import did_you_mean
from virt_admit.model.releases import NO_TARGET, UpgradeTarget
from virt_admit.rule import InvalidRule, Rule

FOLDER: Final = Path(__file__).parent
INDEX: Final = FOLDER / "index.json"
"""Generated: the rules with what is needed to select them."""
FAMILIES: Final = FOLDER / "families"


K = TypeVar("K")
V = TypeVar("V")


class _OnUse(Mapping[K, V]):
    """A map with known keys whose values are made on first use."""

    def __init__(self, keys: Iterable[K], make: Callable[[K], V]) -> None:
        self._keys = dict.fromkeys(keys)
        self._make = make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys


class Listed(NamedTuple):
    """What the index says about a rule: enough to select it without importing its module."""

    id: str
    kinds: tuple[Kind, ...]
    at_admission: bool = True
    in_scan: bool = True
    target: Mapping[str, str] = MappingProxyType({})


class Rules:
    """All rules, by id and by kind. A rule that is only ``Listed`` is imported on first use."""

    def __init__(self, rules: Iterable[Rule | Listed]) -> None:
        self._entries = {rule.id: rule for rule in sorted(rules, key=lambda r: r.id)}
        ids: dict[Kind, list[str]] = {}
        for rule in self._entries.values():
            for kind in rule.kinds:
                ids.setdefault(kind, []).append(rule.id)
        self.by_id: Mapping[str, Rule] = _OnUse(
            self._entries, lambda rule_id: _imported(self._entries[rule_id])
        )
        self.by_kind: Mapping[Kind, tuple[Rule, ...]] = _OnUse(
            ids, lambda kind: tuple(self.by_id[rule_id] for rule_id in ids[kind])
        )
        self.metadata: Mapping[Kind, frozenset[str]] = _OnUse(
            ids, lambda kind: frozenset(key for rule in self.by_kind[kind] for key in rule.metadata)
        )
        """The annotation and label keys that some rule for the kind names."""

        # some keys are text of users
        self.rules_for = functools.lru_cache(maxsize=256)(self._rules_for)

    def _rules_for(
        self, kind: Kind, operation: str, subresource: str = "", target: UpgradeTarget = NO_TARGET
    ) -> tuple[Rule, ...]:
        """Return the rules for a request about an object, or about this sub-resource of it."""
        return tuple(
            rule
            for rule in self.by_kind.get(kind, ())
            if operation in rule.operations
            and (not subresource or subresource in rule.subresources)
            and (not rule.target or target.reaches(rule.target))
        )

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self._entries)

    def where(self, wanted: Callable[[Rule | Listed], bool]) -> Rules:
        """Return the rules for which this holds. It imports no rule."""
        return Rules(filter(wanted, self._entries.values()))

    @property
    def at_admission(self) -> Rules:
        """The rules that the webhook asks."""
        return self.where(lambda rule: rule.at_admission)

    def about(self, target: UpgradeTarget = NO_TARGET) -> Rules:
        """Return the rules that speak about these releases, and those that speak always."""
        return self.where(lambda rule: not rule.target or target.reaches(rule.target))

    @property
    def in_scan(self) -> Rules:
        """The rules that ``scan`` asks."""
        return self.where(lambda rule: rule.in_scan)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that some rule judges."""
        return tuple(sorted(self.by_kind))


@functools.cache
def load_rules() -> Rules:
    """Import every rule module of this package.

    Raises:
        InvalidRule: a file declares no rule, or one that is not valid.
    """
    rules: dict[str, Rule] = {}
    for file in sorted(FOLDER.glob("*/[!_]*.py")):
        for rule in _load(file):
            if rule.id in rules:
                other = "/".join(rules[rule.id].module.split(".")[1:])
                raise InvalidRule(
                    f"{_place(file)}: {rule.id} is also the id of a rule in {other}.py. Change one "
                    "of them"
                )
            for problem in problems(rule):
                raise InvalidRule(f"{_place(file)}: {problem}")
            rules[rule.id] = rule
    return Rules(rules.values())


@functools.cache
def listed_rules() -> Rules:
    """Return the same rules from the index, so that a command imports only those that it uses.

    ``make docs`` checks all rules and writes the index, and ``make check`` fails if it is stale.
    """
    entries = json.loads(INDEX.read_text(encoding="utf-8"))
    by_resource = {kind.resource: kind for kind in kinds.ALL}
    return Rules(
        Listed(rule_id, tuple(by_resource[resource] for resource in judged), **facts)
        for rule_id, (judged, facts) in entries.items()
    )


def index(rules: Rules) -> str:
    """Return the content of the index: for each rule its kinds,
    and the facts that differ from the usual ones.
    """
    lines = []
    for rule in rules:
        usual = Listed(rule.id, rule.kinds)
        facts = {key: getattr(rule, key) for key in ("at_admission", "in_scan", "target")}
        unusual = {key: value for key, value in facts.items() if value != getattr(usual, key)}
        lines.append(
            f"{json.dumps(rule.id)}: "
            f"{json.dumps([[kind.resource for kind in rule.kinds], unusual])}"
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _imported(rule: Rule | Listed) -> Rule:
    if isinstance(rule, Rule):
        return rule
    (found,) = (each for each in _load(_file(rule.id)) if each.id == rule.id)
    return found


def _file(rule_id: str) -> Path:
    """Return the file that declares a rule: that of its family, else its own."""
    own = FOLDER / rule_id.partition("-")[0] / f"{rule_id.replace('-', '_')}.py"
    return next((file for file, text in _families().items() if f'"{rule_id}"' in text), own)


@functools.cache
def _families() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in sorted(FAMILIES.glob("[!_]*.py"))}


def _place(file: Path) -> str:
    return f"rules/{file.parent.name}/{file.name}"


def _load(file: Path) -> tuple[Rule, ...]:
    try:
        rules = declared(importlib.import_module(f"{__name__}.{file.parent.name}.{file.stem}"))
    except InvalidRule as error:
        raise InvalidRule(f"{_place(file)}: {error}") from None
    if not rules:
        raise InvalidRule(
            f"{_place(file)}: no rule. Write @rule(kinds=(VM,), action=Action.WARN, ...) above its "
            "check"
        )
    for rule in rules:
        own = f"rules/{rule.id.partition('-')[0]}/{rule.id.replace('-', '_')}.py"
        if file.parent != FAMILIES and own != _place(file):
            raise InvalidRule(f"{_place(file)}: move the rule {rule.id} to {own}")
        if file.parent == FAMILIES and f'"{rule.id}"' not in _families()[file]:
            raise InvalidRule(
                f'{_place(file)}: write out the id "{rule.id}", so that a search for it finds the '
                "file"
            )
    return rules


def declared(module: ModuleType) -> tuple[Rule, ...]:
    """Return the rules that a module declares: its check, and those in ``RULES``."""
    values = (*vars(module).values(), *getattr(module, "RULES", ()))
    return tuple(value for value in values if isinstance(value, Rule))


_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_COMMON: Final = ("metadata", "spec", "status")
"""Kinds may have any other field next to these (``reclaimPolicy`` of a StorageClass): only
misspellings are found.
"""
_ALIKE: Final = ("state",)
"""Fields that look like misspellings, and exist: ``state`` of a TridentBackend."""


def problems(rule: Rule) -> Iterator[str]:
    """Return what is wrong with the fields of a rule, each with what to write instead."""
    if not isinstance(rule.kinds, tuple) or not all(isinstance(kind, Kind) for kind in rule.kinds):
        yield "kinds is not a tuple of kinds. Write kinds=(VM,)"
    for option in ("metadata", "sources"):
        if not isinstance(value := getattr(rule, option), tuple):
            yield f"{option} is not a tuple. Write {option}=({value!r},)"
    if rule.target and rule.at_admission:
        yield "a rule about an upgrade does not run at admission. Write at_admission=False"
    if not isinstance(rule.reads, Mapping):
        yield 'reads is not a mapping. Write reads={PVC: ("status.phase",)}'
        return
    for kind, paths in rule.reads.items():
        if kind not in kinds.ALL:
            yield (
                f"reads names the unknown kind {kind!r}. Use a kind of model/kubernetes/kinds.py, "
                "or add a record there"
            )
        elif not isinstance(paths, tuple):
            yield (
                f"the fields of {kind} in reads are not a tuple. Write {kind.kind}: "
                f"({str(paths)!r},)"
            )
        else:
            yield from (
                (
                    f"reads names the unknown field {path!r} of {kind}. Write a path such as "
                    "status.phase"
                )
                for path in paths
                if not _is_path(path)
            )


def _is_path(path: object) -> bool:
    if not isinstance(path, str):
        return False
    first, *rest = reads.keys(path)
    if first == "metadata" and rest[:1] in (["annotations"], ["labels"]):
        return all(rest)
    is_misspelt = first not in (*_COMMON, *_ALIKE) and did_you_mean(first, _COMMON) is not None
    return not is_misspelt and all(_KEY.fullmatch(key) for key in (first, *rest))
