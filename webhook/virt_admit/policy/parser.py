"""The policy file: parse the text of an administrator, or a shipped one, into a ``Policy``."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from typing import Any, Final

from virt_admit.documents import reader as documents
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.units import parse_duration
from virt_admit.model.kubevirt.settings.trusted_accounts import PLACEHOLDERS
from virt_admit.policy.policy import SHIPPED, Exemption, Layer, Policy, PolicyError, RuleSettings
from virt_admit.rule import Action, Rule
from virt_admit.rules import Rules
from virt_admit.settings import API_VERSION

MAX_BYTES: Final = 1024 * 1024
"""A ConfigMap holds at most 1 MiB
(kubernetes/kubernetes:pkg/apis/core/validation/validation.go#MaxSecretSize).
"""
MAX_SUGGESTIONS: Final = 20
"""The largest number of problems with a suggestion of a rule name."""
MAX_PROBLEMS: Final = 100
"""The largest number of problems that are searched for.
A mistake in a list of 1 MiB would make a million.
"""


def shipped(name: str) -> bytes:
    """Return the text of a shipped policy."""
    return (FilePath(__file__).parent / "shipped" / f"{name}.yaml").read_bytes()


def parse(text: bytes, rules: Rules, name: str = "policy") -> Policy:
    """Parse a policy.

    Settings that it omits come from the shipped policy that it extends (``default``).

    Raises:
        PolicyError: with the problems found, each as ``file:line: path: problem``. The search ends
            at ``MAX_PROBLEMS``.
    """
    policy, base = _read(text, rules, name)
    return _stack(policy, load(base, rules))


def load(name: str, rules: Rules) -> Policy:
    """Load a shipped policy by name: audit, default or strict."""
    policy, base = _read(shipped(name), rules, name)
    return policy if name == "default" else _stack(policy, load(base, rules))


def _stack(policy: Policy, below: Policy) -> Policy:
    return Policy(
        layers=(*below.layers, *policy.layers),
        users=(*below.users, *policy.users),
        namespaces=(*below.namespaces, *policy.namespaces),
        annotations=below.annotations if policy.annotations is None else policy.annotations,
        texts=(*below.texts, *policy.texts),
        name=policy.name,
    )


def _read(text: bytes, rules: Rules, name: str) -> tuple[Policy, str]:
    """Return the policy in the text alone, and the name of the one that it extends."""
    if len(text) > MAX_BYTES:
        raise PolicyError(
            [f"{name}: the policy is larger than {MAX_BYTES:,} bytes, the limit of a ConfigMap"]
        )
    found, errors = documents.read(text, name)
    problems = [str(error) for error in errors]
    if not problems and len(found) != 1:
        problems = [f"{name}: expected one document with a policy, found {len(found)}"]
    if problems:
        raise PolicyError(problems)
    document = found[0]
    problems = [
        (
            f"{name}:{duplicate.line}: {duplicate.path}: duplicate key, first in line "
            f"{duplicate.first_line}"
        )
        for duplicate in document.duplicates
    ]
    reader = _Reader(rules, name)
    policy = Policy()
    with contextlib.suppress(_TooManyProblems):
        policy = reader.read(Object(document.data).root)
    for path, problem in reader.problems:
        problems.append(f"{name}:{document.location(path).line}: {path or 'policy'}: {problem}")
    if len(problems) >= MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"{name}: further problems are not listed. Fix these first"]
    if problems:
        raise PolicyError(problems)
    return dataclasses.replace(policy, texts=(text,), name=name), reader.extends


class _TooManyProblems(Exception):
    """Ends the search for problems."""


class _Reader:
    """Converts the document to values and collects all its problems."""

    def __init__(self, rules: Rules, name: str) -> None:
        self.rules, self.name = rules, name
        self.problems: list[tuple[Path, str]] = []
        self.extends = "default"

    def read(self, root: Field) -> Policy:
        self._keys(root, ("apiVersion", "kind", "extends", "rules", "namespaces", "exempt"))
        self._constant(root["apiVersion"], API_VERSION)
        self._constant(root["kind"], "Policy")
        self._extends(root["extends"])
        exempt = root["exempt"]
        self._keys(exempt, ("users", "namespaces", "annotations"))
        layers = [self._layer(root["rules"])] if root["rules"].present else []
        layers += [self._namespace_layer(item) for item in self._list(root["namespaces"])]
        return Policy(
            layers=tuple(layers),
            users=tuple(self._exemption(item) for item in self._list(exempt["users"])),
            namespaces=tuple(self._exemption(item) for item in self._list(exempt["namespaces"])),
            annotations=(
                frozenset(self._rule_names(exempt["annotations"]))
                if exempt["annotations"].present
                else None
            ),
        )

    def _problem(self, where: Field, text: str) -> None:
        self.problems.append((where.path, text))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _TooManyProblems

    def _keys(self, where: Field, known: tuple[str, ...]) -> None:
        if where.present and not where.is_map:
            self._problem(where, "must be a map")
        for key in where.map:
            if key not in known:
                self._problem(where[key], f"unknown key{_near(key, known)}")

    def _constant(self, where: Field, expected: str) -> None:
        if where.present and where.value != expected:
            self._problem(where, f"must be {expected}")

    def _extends(self, where: Field) -> None:
        if where.value in SHIPPED:
            self.extends = where.value
        elif where.present:
            self._problem(
                where, f"must be one of {', '.join(SHIPPED)}{_near(where.value, SHIPPED)}"
            )

    def _list(self, where: Field) -> list[Field]:
        if where.present and not where.is_list:
            self._problem(where, "must be a list")
        return list(where.items())

    def _namespace_layer(self, where: Field) -> Layer:
        self._keys(where, ("match", "rules"))
        patterns = tuple(self._strings(where["match"]))
        if not patterns:
            self._problem(where["match"], "must name at least one namespace or pattern")
        return self._layer(where["rules"], patterns)

    def _layer(self, where: Field, patterns: tuple[str, ...] | None = None) -> Layer:
        return Layer(self._rulings(where), patterns, f"{self.name}: {where.path}")

    def _strings(self, where: Field) -> Iterator[str]:
        """Yield a string, or each item of a list of strings."""
        if where.text is not None:
            yield where.text
            return
        for item in self._list(where):
            if item.text is None:
                self._problem(item, "must be a string")
            else:
                yield item.text

    def _rule_names(self, where: Field) -> Iterator[str]:
        for name in self._strings(where):
            self._known_rule(where, name)
            if "*" in name:
                yield from (rule_id for rule_id in self.rules.by_id if fnmatchcase(rule_id, name))
            else:
                yield name

    def _known_rule(self, where: Field, name: str) -> None:
        if "*" in name:
            if not any(fnmatchcase(rule_id, name) for rule_id in self.rules.by_id):
                self._problem(where, f"no rule matches {name}")
        elif name not in self.rules.by_id:
            # a comparison with all rules takes a millisecond
            near = _near(name, self.rules.by_id) if len(self.problems) < MAX_SUGGESTIONS else ""
            self._problem(where, f"there is no rule {name}{near}")

    def _rulings(self, where: Field) -> dict[str, RuleSettings]:
        if where.present and not where.is_map:
            self._problem(where, "must be a map from rule id to settings")
        rulings = {}
        for name in where.map:
            entry = where[name]
            self._known_rule(entry, name)
            self._keys(entry, ("action", "fix", "params"))
            rulings[name] = RuleSettings(
                self._action(entry["action"]),
                self._boolean(entry["fix"]),
                self._params(entry["params"], self.rules.by_id.get(name)),
            )
        return rulings

    def _action(self, where: Field) -> Action | None:
        if not where.present:
            return None
        # YAML 1.1 reads a plain `off` as false
        name = "off" if where.value is False else where.value
        names = [str(action) for action in Action]
        if name not in names:
            self._problem(where, f"must be one of {', '.join(names)}{_near(name, names)}")
            return None
        return Action[name.upper()]

    def _boolean(self, where: Field) -> bool | None:
        if where.present and where.boolean is None:
            self._problem(where, "must be true or false")
        return where.boolean

    def _params(self, where: Field, rule: Rule | None) -> dict[str, Any]:
        if not where.present:
            return {}
        if rule is None:
            self._problem(where, "parameters belong to one rule, not to a pattern")
            return {}
        known = {each.name: each for each in dataclasses.fields(rule.params)}
        self._keys(where, tuple(known))
        values = {}
        for key in where.map:
            if key in known:
                try:
                    values[key] = _param(known[key], where[key].value)
                except ValueError as error:
                    self._problem(where[key], str(error))
        return values

    def _exemption(self, where: Field) -> Exemption:
        self._keys(where, ("match", "rules", "kinds", "reason", "until", "at_most"))
        for key in ("match", "reason"):
            if not (where[key].text or "").strip():
                self._problem(where[key], "is required")
        for name in re.findall(r"\{[^}]*\}?", where["match"].text or ""):
            if name not in PLACEHOLDERS:
                self._problem(
                    where["match"], f"unknown placeholder {name}{_near(name, PLACEHOLDERS)}"
                )
        if not where["rules"].present:
            self._problem(where["rules"], 'is required; ["*"] means all')
        return Exemption(
            match=where["match"].text or "",
            rules=tuple(self._patterns(where["rules"])),
            kinds=tuple(self._strings(where["kinds"])),
            reason=where["reason"].text or "",
            until=self._date(where["until"]),
            max_action=self._action(where["at_most"]) or Action.OFF,
        )

    def _patterns(self, where: Field) -> Iterator[str]:
        for name in self._strings(where):
            if "*" not in name:
                self._known_rule(where, name)
            yield name

    def _date(self, where: Field) -> datetime.date | None:
        if not where.present:
            return None
        text = where.text or ""
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            try:
                return datetime.date.fromisoformat(text)
            except ValueError:
                pass
        self._problem(where, "must be a date as 2027-01-31")
        return None


def _param(param: dataclasses.Field[Any], value: Any) -> Any:
    if param.metadata.get("unit") == "duration":
        return parse_duration(value)
    if param.metadata.get("unit") == "percent":
        return _percent(value)
    choices = param.metadata.get("choices")
    if choices and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}{_near(value, choices)}")
    default = param.default
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        return _group(default, value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
    elif isinstance(default, int):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("must be an integer")
    elif isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("must be a list of strings")
        return tuple(value)
    elif not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _percent(value: Any) -> int:
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"[0-9]{1,3}%", value)
        or int(value[:-1]) > 100
    ):
        raise ValueError("must be a percentage from 0% to 100%")
    return int(value[:-1])


def _group(default: Any, value: Any) -> Any:
    """Return a parameter of several parts. Parts that are not given keep their default."""
    parts = {part.name: part for part in dataclasses.fields(default)}
    if not isinstance(value, dict) or not value.keys() <= parts.keys():
        raise ValueError(f"must be a map with some of {', '.join(parts)}")
    return dataclasses.replace(
        default, **{name: _param(parts[name], each) for name, each in value.items()}
    )


def _near(word: Any, known: Any) -> str:
    import difflib  # noqa: PLC0415 - only policies with mistakes need it

    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
