"""The administrator's policy: actions and parameters of rules, by namespace, and exemptions.

A policy is a stack of layers. For each rule the last layer that sets it wins. Within a layer, a
named rule wins over a pattern.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias

from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Rule
from virt_admit.settings import DOMAIN

SHIPPED: Final = ("audit", "default", "strict")
EXEMPT_ALL: Final = f"{DOMAIN}/exempt-all"
EXEMPT_RULE: Final = f"{DOMAIN}/exempt."


class PolicyError(ValueError):
    """A policy is not valid.

    Each problem has its path and, if a known word is near, a suggestion.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


NO_PARAMS_SET: Final[Mapping[str, Any]] = {}


class RuleSettings(NamedTuple):
    """The settings of a rule in one layer; None: not set."""

    action: Action | None = None
    fix: bool | None = None
    params: Mapping[str, Any] = NO_PARAMS_SET


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Settings by rule id or pattern, for some namespaces (patterns) or for all of them (None)."""

    rules: Mapping[str, RuleSettings]
    namespaces: tuple[str, ...] | None = None
    name: str = ""
    """Where the layer is written: the policy, and the key in it."""

    def covers(self, namespace: str) -> bool:
        """Whether the layer applies to this namespace.

        Only layers without patterns apply to cluster-scoped objects.
        """
        return self.namespaces is None or any(
            fnmatchcase(namespace, pattern) for pattern in self.namespaces
        )

    def rulings(self, rule_id: str) -> Iterator[RuleSettings]:
        """Yield the settings of the rule, weakest first: patterns in order,
        then the rule's own entry.
        """
        for pattern, ruling in self.rules.items():
            if "*" in pattern and fnmatchcase(rule_id, pattern):
                yield ruling
        if rule_id in self.rules:
            yield self.rules[rule_id]


class Exemption(NamedTuple):
    """The users or namespaces that are exempt, from which rules, why,
    and until when (inclusive).
    """

    match: str
    rules: tuple[str, ...]
    reason: str
    kinds: tuple[str, ...] = ()
    until: datetime.date | None = None
    max_action: Action = Action.OFF
    """The strongest action that remains for a finding."""

    def names(self, subjects: tuple[str, ...], today: datetime.date) -> bool:
        """Whether the exemption applies that day to one of these names of a user,
        or to this namespace.
        """
        in_time = self.until is None or today <= self.until
        return in_time and any(subject and fnmatchcase(subject, self.match) for subject in subjects)

    def covers(self, rule_id: str, kind: str) -> bool:
        """Whether the exemption is about this rule and kind."""
        of_kind = not self.kinds or kind in self.kinds
        return of_kind and any(fnmatchcase(rule_id, pattern) for pattern in self.rules)


class EffectiveSettings(NamedTuple):
    """The effective settings of one rule in one namespace."""

    action: Action
    fix: bool
    """Whether ``/mutate`` applies the rule's fixes."""
    params: Any
    opt_in_fix: bool = False
    """Whether ``check --fix`` writes the rule's fixes: those that no layer forbids."""


Decided: TypeAlias = tuple[Rule, EffectiveSettings]


@dataclass(frozen=True, eq=False)
class Policy:
    """One consistent version of the policy. Hot reload replaces the whole value."""

    layers: tuple[Layer, ...] = ()
    users: tuple[Exemption, ...] = ()
    namespaces: tuple[Exemption, ...] = ()
    annotations: frozenset[str] | None = None
    """The rules for which an annotation on the object counts; None:
    inherited from the base policy.
    """
    texts: tuple[bytes, ...] = ()
    """What it was parsed from: the shipped policies below it, lowest first, and its own text."""
    name: str = ""
    """Where the policy comes from: a file, a ConfigMap, or the name of a shipped policy."""
    today: datetime.date = datetime.date.min
    """The day for which expiring exemptions are evaluated. The command or the server sets it."""

    def at(self, today: datetime.date) -> Policy:
        """Return this policy as of that day."""
        return self if self.today == today else dataclasses.replace(self, today=today)

    def decide(self, rule: Rule, namespace: str) -> EffectiveSettings:
        """Return the settings of the rule in the namespace (empty for cluster-scoped objects)."""
        return self._decisions(self._layers_of(namespace), rule)

    def active(
        self, rules: tuple[Rule, ...], namespace: str, weakest: Action
    ) -> tuple[Decided, ...]:
        """Return the rules to which the policy gives at least this action in the namespace,
        with their settings.
        """
        return self._active(self._layers_of(namespace), rules, weakest)

    def fixing(
        self, rules: tuple[Rule, ...], namespace: str, *, opt_in: bool
    ) -> tuple[Decided, ...]:
        """Return the rules whose fixes the policy applies, or with ``opt_in`` does not forbid,
        with their settings.
        """
        return self._fixing(self._layers_of(namespace), rules, opt_in)

    @functools.cached_property
    def digest(self) -> str:
        """12 hexadecimal digits that distinguish policies in an audit log;
        empty if it was not parsed from a text.
        """
        # loading OpenSSL takes time, and checking files alone shows no digest
        import hashlib  # noqa: PLC0415

        digest = ""
        for text in self.texts:
            own = hashlib.sha256(text).hexdigest()[:12]
            digest = hashlib.sha256(f"{digest} {own}".encode()).hexdigest()[:12] if digest else own
        return digest

    @functools.cached_property
    def _layers_of(self) -> Callable[[str], tuple[Layer, ...]]:
        return functools.lru_cache(maxsize=4096)(
            lambda namespace: tuple(layer for layer in self.layers if layer.covers(namespace))
        )

    @functools.cached_property
    def _decisions(self) -> Callable[[tuple[Layer, ...], Rule], EffectiveSettings]:
        return functools.cache(_decide)

    @functools.cached_property
    def _active(
        self,
    ) -> Callable[[tuple[Layer, ...], tuple[Rule, ...], Action], tuple[Decided, ...]]:
        return functools.lru_cache(maxsize=1024)(
            lambda layers, rules, weakest: tuple(
                each for each in self._decided(layers, rules) if each[1].action >= weakest
            )
        )

    @functools.cached_property
    def _fixing(self) -> Callable[[tuple[Layer, ...], tuple[Rule, ...], bool], tuple[Decided, ...]]:
        return functools.lru_cache(maxsize=1024)(
            lambda layers, rules, opt_in: tuple(
                (rule, settings)
                for rule, settings in self._decided(layers, rules)
                if rule.fixable and settings.action is not Action.OFF
                if settings.fix or (opt_in and settings.opt_in_fix)
            )
        )

    def _decided(self, layers: tuple[Layer, ...], rules: tuple[Rule, ...]) -> Iterator[Decided]:
        return ((rule, self._decisions(layers, rule)) for rule in rules)

    def exempt(
        self, rule: Rule, user: str, namespace: str, obj: Object, aliases: tuple[str, ...] = ()
    ) -> Exemption | None:
        """Return the exemption by user or namespace that covers the object; the last one wins.

        ``aliases`` are further names of the user, with placeholders for its namespace
        (``trusted_accounts``).
        """
        for exemption in (
            *self._naming_namespace((namespace,)),
            *self._naming_user((user, *aliases)),
        ):
            if exemption.covers(rule.id, obj.kind):
                return exemption
        return None

    @functools.cached_property
    def _naming_namespace(self) -> Callable[[tuple[str, ...]], tuple[Exemption, ...]]:
        """The exemptions that name a namespace, the last one first;
        a cluster has few namespaces and users.
        """
        return functools.lru_cache(maxsize=4096)(
            lambda subjects: self._naming(self.namespaces, subjects)
        )

    @functools.cached_property
    def _naming_user(self) -> Callable[[tuple[str, ...]], tuple[Exemption, ...]]:
        return functools.lru_cache(maxsize=4096)(
            lambda subjects: self._naming(self.users, subjects)
        )

    def _naming(
        self, exemptions: tuple[Exemption, ...], subjects: tuple[str, ...]
    ) -> tuple[Exemption, ...]:
        return tuple(
            exemption for exemption in reversed(exemptions) if exemption.names(subjects, self.today)
        )

    def annotated(self, rule: Rule, obj: Object) -> str:
        """Return the reason in an annotation that exempts the object, if the policy allows that;
        else empty.
        """
        if rule.id not in (self.annotations or ()):
            return ""
        for key in (EXEMPT_RULE + rule.id, EXEMPT_ALL):
            reason, until = parse_annotation(obj.annotations.get(key, ""))
            if reason and (until is None or self.today <= until):
                return reason
        return ""

    @property
    def expired(self) -> tuple[Exemption, ...]:
        """The exemptions that have expired."""
        return tuple(
            e
            for e in (*self.users, *self.namespaces)
            if e.until is not None and e.until < self.today
        )


def _decide(layers: tuple[Layer, ...], rule: Rule) -> EffectiveSettings:
    action, fix, opt_in_fix = rule.action, rule.fix_by_default, rule.fixable
    params: dict[str, Any] = {}
    for layer in layers:
        named = rule.id in layer.rules
        for ruling in layer.rulings(rule.id):
            # a pattern never enables a rule that is off by default
            if ruling.action is not None and (named or rule.action is not Action.OFF):
                action = ruling.action
            if ruling.fix is not None:
                fix = opt_in_fix = ruling.fix and rule.fixable
            params.update(ruling.params)
    all_params = dataclasses.replace(rule.params, **params) if params else rule.params
    return EffectiveSettings(action, fix, all_params, opt_in_fix)


def parse_annotation(text: str) -> tuple[str, datetime.date | None]:
    """Parse ``reason[; until=YYYY-MM-DD][; by=name]``.

    An end date that is not valid counts as expired, because a visible finding is safer than a
    silent exemption.
    """
    reason, *extras = (part.strip() for part in text.split(";"))
    until = None
    for extra in extras:
        key, _, value = extra.partition("=")
        if key.strip() == "until":
            try:
                until = datetime.date.fromisoformat(value.strip())
            except ValueError:
                until = datetime.date.min
    return reason, until
