"""Label selectors as Kubernetes evaluates them, and the syntax of label keys and values.

The schemas of health checks and machine sets hardly validate selectors. The API server accepts a
malformed one, and then every reconcile fails (k8s.io/apimachinery:
pkg/apis/meta/v1/helpers.go#LabelSelectorAsSelector). Parsing therefore collects every error with
its path instead of stopping at the first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.objects import Key, PathStep
from virt_admit.model.kubernetes.units import show

Error = tuple[tuple[PathStep, ...], str]
"""The path of the invalid entry, relative to the parsed value, and the problem."""

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GREATER: Final = "Gt"
LESS: Final = "Lt"

LABEL_OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)
NODE_OPERATORS: Final = (*LABEL_OPERATORS, GREATER, LESS)

# k8s.io/apimachinery: pkg/util/validation#IsQualifiedName, #IsDNS1123Subdomain, #IsValidLabelValue
_NAME: Final = r"(?:[A-Za-z0-9][A-Za-z0-9_.-]*)?[A-Za-z0-9]"
SUBDOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_LONGEST_NAME: Final = 63
LONGEST_SUBDOMAIN: Final = 253
_WORD: Final = re.compile(_NAME)
CONDITION_TYPE: Final = f"^(?:{SUBDOMAIN}/)?{_NAME}$"
"""The pattern of the type of a condition, which may have ``LONGEST_CONDITION`` characters."""
_KEY: Final = re.compile(f"(?:{SUBDOMAIN}/)?{_NAME}")

INTEGER: Final = r"[+-]?[0-9]+"


def is_dns_name(text: str) -> bool:
    """Whether a text is a DNS-1123 subdomain, the syntax of label prefixes and of most names."""
    return len(text) <= LONGEST_SUBDOMAIN and re.fullmatch(SUBDOMAIN, text) is not None


def key_error(key: object) -> str | None:
    """Return what is wrong with a label key (``name`` or ``prefix/name``), or None."""
    if not isinstance(key, str):
        return f"{show(key)} is not a label key: it must be a string"
    if len(key) <= _LONGEST_NAME and _KEY.fullmatch(key):
        return None  # the usual case: neither part can be too long
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns_name(prefix):
        return f"{show(key)} is not a label key: the part before / must be a lower-case DNS name"
    if not (len(name) <= _LONGEST_NAME and _WORD.fullmatch(name)):
        return (
            f"{show(key)} is not a label key: a name has 1 to 63 letters, digits, - _ or ., "
            "and begins and ends with a letter or digit"
        )
    return None


LONGEST_CONDITION: Final = 316


def condition_type_error(name: str) -> bool:
    """Whether a text is not the type of a condition: ``name`` or ``prefix/name``,
    316 characters at most.

    The pattern is the one of metav1.Condition, which bounds the whole and not the parts.
    """
    prefix, slash, word = name.rpartition("/")
    return (
        len(name) > LONGEST_CONDITION
        or _WORD.fullmatch(word) is None
        or (bool(slash) and re.fullmatch(SUBDOMAIN, prefix) is None)
    )


def value_error(value: object) -> str | None:
    """Return what is wrong with a label value, or None. The empty string is valid."""
    if not isinstance(value, str):
        return f"{show(value)} is not a label value: write a string, in quotes if need be"
    if value and not (len(value) <= _LONGEST_NAME and _WORD.fullmatch(value)):
        return (
            f"{show(value)} is not a label value: it has at most 63 letters, digits, - _ or ., "
            "and begins and ends with a letter or digit"
        )
    return None


class Requirement(NamedTuple):
    """One condition on one label: ``key operator values``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels match. An absent key matches ``NotIn`` and ``DoesNotExist``."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return isinstance(value, str) and value in self.values
            case "NotIn":
                return not (isinstance(value, str) and value in self.values)
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case "Gt":
                return (number := integer(value)) is not None and all(
                    number > int(v) for v in self.values
                )
            case "Lt":
                return (number := integer(value)) is not None and all(
                    number < int(v) for v in self.values
                )
        return False

    def __str__(self) -> str:
        values = ", ".join(sorted(self.values))
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={values}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator} ({values})"
            case "Gt" | "Lt":
                return f"{self.key} {self.operator} {values}"
        return f"{self.key} {self.operator}"


def integer(value: object) -> int | None:
    """Parse a 64-bit integer in a label value, as ``Gt`` and ``Lt`` compare them (Go's
    ``strconv.ParseInt``).
    """
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or not re.fullmatch(INTEGER, value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: requirements that must all hold.

    Equal selectors match the same objects, whatever their order.

    A selector with errors matches nothing, because no controller can use it.
    """

    requirements: frozenset[Requirement] = frozenset()
    errors: tuple[Error, ...] = ()
    pruned: tuple[tuple[PathStep, ...], ...] = field(default=(), compare=False)
    """The paths of labels with the value null, which the API server removes."""

    def pruned_text(self, noun: str) -> str:
        """Return what the removal of the labels without a value does."""
        effect = f"every {noun}" if self.empty else f"more {noun}s than it says"
        return (
            "null is not a value, so the API server removes this label and the selector matches "
            f"{effect}"
        )

    @property
    def empty(self) -> bool:
        """Whether the selector has no requirements, and so selects everything."""
        return not self.requirements and not self.errors

    def matches(self, labels: object) -> bool:
        """Whether the selector matches these labels. Labels that are not a map count as empty."""
        if self.errors:
            return False
        given = labels if isinstance(labels, Mapping) else {}
        return all(requirement.matches(given) for requirement in self.requirements)

    def allowed_values(self, key: str) -> frozenset[str] | None:
        """Return the values that this label may have in selected objects,
        or None if any value may match.
        """
        return allowed_values(self.requirements, key)

    def __str__(self) -> str:
        """Format the selector roughly as ``kubectl --selector`` does."""
        return ", ".join(sorted(map(str, self.requirements)))


def allowed_values(requirements: Iterable[Requirement], key: str) -> frozenset[str] | None:
    """Return the values that the ``In`` requirements leave to a key,
    or None without such a requirement.
    """
    choices = [each.values for each in requirements if each.key == key and each.operator == IN]
    return frozenset.intersection(*choices) if choices else None


def parse(selector: object) -> Selector:
    """Parse a ``LabelSelector``. Absent, null and ``{}`` are the empty selector.

    The paths of errors are ``matchLabels[key]`` and ``matchExpressions[i]``.
    """
    if selector is None:
        return Selector()
    if not isinstance(selector, dict):
        return Selector(
            errors=(
                ((), f"{show(selector)} is not a selector: write matchLabels or matchExpressions"),
            )
        )
    requirements: list[Requirement] = []
    errors: list[Error] = []
    # many labels may have the same value, and a set takes 216 bytes
    alone: dict[str, frozenset[str]] = {}
    labels = selector.get("matchLabels")
    if isinstance(labels, dict):
        for key, value in labels.items():
            of_key, of_value = key_error(key), value_error(value)
            if of_key is None and of_value is None:
                requirements.append(
                    Requirement(key, IN, alone.setdefault(value, frozenset((value,))))
                )
            else:
                errors += [
                    (("matchLabels", Key(key)), problem)
                    for problem in (of_key, of_value)
                    if problem
                ]
    elif labels is not None:
        errors.append((("matchLabels",), f"{show(labels)} is not a map of labels"))
    parsed, more = parse_requirements(
        selector.get("matchExpressions"), LABEL_OPERATORS, "matchExpressions"
    )
    return Selector(frozenset(requirements + parsed if parsed else requirements), (*errors, *more))


def parse_custom(selector: object) -> Selector:
    """Parse the ``LabelSelector`` of a custom resource,
    without the labels that the API server removes.

    The schema does not allow null as the value of a label. The API server therefore removes such an
    entry instead of rejecting it (k8s.io/apiextensions-apiserver:
    pkg/apiserver/schema/defaulting/prunenulls.go).
    """
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    if not isinstance(labels, dict) or None not in labels.values():
        return parse(selector)
    kept = {key: value for key, value in labels.items() if value is not None}
    parsed = parse({**selector, "matchLabels": kept} if isinstance(selector, dict) else selector)
    return replace(
        parsed,
        pruned=tuple(("matchLabels", Key(key)) for key, value in labels.items() if value is None),
    )


def parse_requirements(
    expressions: object,
    operators: tuple[str, ...],
    name: str,
    value_error: Callable[[object], str | None] = value_error,
) -> tuple[list[Requirement], list[Error]]:
    """Parse a list of ``key``, ``operator``, ``values``.

    Args:
        expressions: the list.
        operators: the operators that are valid here.
        name: the name of the field that holds the list.
        value_error: returns what is wrong with a value, or None.

    Returns:
        The valid requirements, and the errors of the others.
    """
    if expressions is None:
        return [], []
    if not isinstance(expressions, list):
        return [], [((name,), f"{show(expressions)} is not a list of requirements")]
    requirements: list[Requirement] = []
    errors: list[Error] = []
    for index, expression in enumerate(expressions):
        if not isinstance(expression, dict):
            errors.append(
                (
                    (name, index),
                    f"{show(expression)} is not a requirement: write key, operator, values",
                )
            )
            continue
        problems = list(_problems(expression, operators, value_error))
        errors += [((name, index), problem) for problem in problems]
        if not problems:
            values = frozenset(expression.get("values") or ())
            requirements.append(Requirement(expression["key"], expression["operator"], values))
    return requirements, errors


def _problems(
    expression: Mapping[str, Any],
    operators: tuple[str, ...],
    value_error: Callable[[object], str | None],
) -> Iterator[str]:
    """Yield what is wrong with one requirement."""
    if problem := key_error(expression.get("key")):
        yield problem
    operator, values = expression.get("operator"), expression.get("values")
    if operator not in operators:
        yield (
            f"{show(operator)} is not an operator: write {', '.join(operators[:-1])} or "
            f"{operators[-1]}"
        )
    if values is None:
        values = []
    if not isinstance(values, list):
        yield f"{show(values)} is not a list of values"
        return
    if operator in (IN, NOT_IN) and not values:
        yield f"{operator} needs at least one value"
    if operator in (EXISTS, DOES_NOT_EXIST) and values:
        yield f"{operator} takes no values"
    if operator in (GREATER, LESS):
        if len(values) != 1 or integer(values[0]) is None:
            yield f"{operator} needs exactly one value, an integer in quotes"
        return
    yield from filter(None, map(value_error, values))


_WORDS = r"[^\s,()!=<>]"
_TERM: Final = (
    rf"\s*(?:!\s*(?P<absent>{_WORDS}+)"
    rf"|(?P<key>{_WORDS}+)(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|\s*(?P<sign>==|=|!=|<|>)\s*(?P<value>{_WORDS}*))?)\s*(?:,(?!\s*\Z)|\Z)"
)
_SIGNS: Final = {
    "=": IN,
    "==": IN,
    "!=": NOT_IN,
    "in": IN,
    "notin": NOT_IN,
    ">": GREATER,
    "<": LESS,
}


def parse_text(text: str) -> Selector:
    """Parse the syntax of ``kubectl --selector``: ``app=db,tier in (a, b),zone!=x,!old``.

    An empty text selects everything.

    Raises:
        ValueError: the text is not a valid selector.
    """
    expressions: list[dict[str, Any]] = []
    at = 0
    while at < len(text.rstrip()):
        term = re.compile(_TERM).match(text, at)
        if term is None:
            raise ValueError(
                f"{show(text[at:])} is not a selector: write key=value, key in (a, b), key or !key"
            )
        at = term.end()
        expressions.append(_expression(term.groupdict()))
    requirements, errors = parse_requirements(expressions, NODE_OPERATORS, "")
    if errors:
        raise ValueError(f"{show(text)} is not a selector: {errors[0][1]}")
    return Selector(frozenset(requirements))


def _expression(term: Mapping[str, str | None]) -> dict[str, Any]:
    if term["absent"]:
        return {"key": term["absent"], "operator": DOES_NOT_EXIST}
    sign = term["set"] or term["sign"]
    if not sign:
        return {"key": term["key"], "operator": EXISTS}
    values = (term["values"] or "").split(",") if term["set"] else [term["value"] or ""]
    return {
        "key": term["key"],
        "operator": _SIGNS[sign],
        "values": [value.strip() for value in values],
    }
