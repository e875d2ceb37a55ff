"""Node selectors, taints and tolerations, evaluated as the scheduler does.

Sources: k8s.io/component-helpers: scheduling/corev1/nodeaffinity; k8s.io/api:
core/v1/toleration.go#ToleratesTaint.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes.selectors import (
    IN,
    NODE_OPERATORS,
    NOT_IN,
    Error,
    Requirement,
    allowed_values,
    is_dns_name,
    parse_requirements,
)
from virt_admit.model.kubernetes.units import show

NAME_FIELD: Final = "metadata.name"
"""The only field of a node that ``matchFields`` supports."""


class Term(NamedTuple):
    """One alternative of a node selector: requirements on labels and name that must all hold."""

    labels: frozenset[Requirement]
    fields: frozenset[Requirement]

    def matches(self, name: str, labels: object) -> bool:
        """Whether a node with this name and these labels matches.

        A term without requirements matches no node.
        """
        given = labels if isinstance(labels, dict) else {}
        return bool(self.labels or self.fields) and (
            all(requirement.matches(given) for requirement in self.labels)
            and all(requirement.matches({NAME_FIELD: name}) for requirement in self.fields)
        )

    def allowed_values(self, key: str) -> frozenset[str] | None:
        """Return the values that this label may have, or None if any value may match.

        The key ``metadata.name`` means the node's name.
        """
        return allowed_values(self.fields if key == NAME_FIELD else self.labels, key)


class NodeSelector(NamedTuple):
    """Alternatives of which one must hold.

    The API server rejects a selector with errors, so it matches no node here.
    """

    terms: tuple[Term, ...] = ()
    errors: tuple[Error, ...] = ()

    def matches(self, name: str, labels: object) -> bool:
        """Whether a pod with this selector may go to a node with this name and these labels."""
        return not self.errors and any(term.matches(name, labels) for term in self.terms)


def name_error(name: object) -> str | None:
    """Return what is wrong with the name of a node, or None."""
    if isinstance(name, str) and is_dns_name(name):
        return None
    return f"{show(name)} is not the name of a node"


def parse_node_selector(selector: object) -> NodeSelector:
    """Parse ``requiredDuringSchedulingIgnoredDuringExecution`` of a node affinity.

    The caller must handle an absent affinity: it matches every node, while a selector without terms
    matches none.
    """
    terms = selector.get("nodeSelectorTerms") if isinstance(selector, dict) else None
    if not isinstance(terms, list):
        return NodeSelector(
            errors=(((), f"{show(selector)} is not a node selector: write nodeSelectorTerms"),)
        )
    parsed: list[Term] = []
    errors: list[Error] = []
    for index, term in enumerate(terms):
        place = ("nodeSelectorTerms", index)
        if not isinstance(term, dict):
            errors.append(
                (place, f"{show(term)} is not a term: write matchExpressions or matchFields")
            )
            continue
        labels, faults = parse_requirements(
            term.get("matchExpressions"), NODE_OPERATORS, "matchExpressions"
        )
        fields, more = parse_requirements(
            term.get("matchFields"), (IN, NOT_IN), "matchFields", name_error
        )
        errors += [((*place, *path), problem) for path, problem in (*faults, *more)]
        errors += [
            ((*place, "matchFields"), f"{field.key}: write metadata.name and exactly one value")
            for field in fields
            if field.key != NAME_FIELD or len(field.values) != 1
        ]
        parsed.append(Term(frozenset(labels), frozenset(fields)))
    return NodeSelector(tuple(parsed), tuple(errors))


def tolerates(tolerations: object, taint: object) -> bool:
    """Whether one of these tolerations covers the taint.

    An empty key covers every key, and an empty effect every effect. ``Exists`` ignores the value.
    The default operator is ``Equal``. A toleration that is not a map covers nothing. A taint that
    is not a map needs no toleration.
    """
    if not isinstance(taint, dict):
        return True
    items = tolerations if isinstance(tolerations, list) else []
    return any(isinstance(item, dict) and _covers(item, taint) for item in items)


def _covers(toleration: dict[str, object], taint: dict[str, object]) -> bool:
    if _text(toleration, "effect") not in ("", taint.get("effect")):
        return False
    if _text(toleration, "key") not in ("", taint.get("key")):
        return False
    match _text(toleration, "operator"):
        case "Exists":
            return True
        case "" | "Equal":
            return _text(toleration, "value") == _text(taint, "value")
    return False


def _text(fields: dict[str, object], name: str) -> object:
    """Return a field that Go reads as the empty string if it is absent or null."""
    value = fields.get(name)
    return "" if value is None else value
