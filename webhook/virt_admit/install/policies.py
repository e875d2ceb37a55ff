"""ValidatingAdmissionPolicies for the rules that say their denials in CEL: API servers evaluate
them, so nothing can be down.

A policy denies what the webhook denies too, and nothing else: warnings stay with the webhook. What
the policy file says of actions, namespaces and exemptions becomes match conditions. An expression
that fails denies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from virt_admit.install.guard import GROUP
from virt_admit.install.manifests import NAME, NOT_DELETED, SYSTEM_NAMESPACES, all_but, labels
from virt_admit.model import cel
from virt_admit.policy.policy import EXEMPT_ALL, EXEMPT_RULE, Exemption, Layer, Policy
from virt_admit.rule import Action, Operation, Rule

COMPONENT: Final = "floor"
_NEW: Final = (
    "variables.findings[0].filter(f, variables.findings.size() < 2"
    " || !variables.findings[1].exists(k, f.path == k.path && f.value == k.value))"
)
"""The findings that an update brings: path without indices, and value,
as in ``engine/ratchet.py``.
"""


def exported(rules: Iterable[Rule], policy: Policy) -> list[Rule]:
    """Return the rules that deny something under the policy and can say so in CEL."""
    return [rule for rule in rules if rule.denials and denies(rule, policy) != "false"]


def policies(rules: Iterable[Rule], policy: Policy) -> list[dict[str, Any]]:
    """Return a policy and a binding for each rule that is exported."""
    return [
        each for rule in exported(rules, policy) for each in (_policy(rule, policy), _binding(rule))
    ]


def _policy(rule: Rule, policy: Policy) -> dict[str, Any]:
    constraints = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": all_but(SYSTEM_NAMESPACES),
        "objectSelector": {},
        "resourceRules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": list(kind.versions),
                "operations": [str(operation) for operation in rule.operations],
                "resources": [kind.plural],
                "scope": "Namespaced" if kind.namespaced else "Cluster",
            }
            for kind in rule.kinds
        ],
    }
    spec = {
        "failurePolicy": "Ignore",
        "matchConstraints": constraints,
        "matchConditions": [
            {"name": name, "expression": text} for name, text in _conditions(rule, policy)
        ],
        "variables": [
            {"name": "params", "expression": _params(rule, policy)},
            {"name": "findings", "expression": _findings(rule)},
            {"name": "denied", "expression": _NEW},
        ],
        "validations": [
            {
                "expression": "variables.denied.size() == 0",
                "message": f"{rule.title} [{rule.id}]",
                "messageExpression": (
                    "string(variables.denied[0].path) + ': ' + string(variables.denied[0].message) "
                    f"+ ' [{rule.id}]'"
                ),
                "reason": "Invalid",
            }
        ],
    }
    return _object("ValidatingAdmissionPolicy", rule, spec)


def _binding(rule: Rule) -> dict[str, Any]:
    spec = {"policyName": _name(rule), "validationActions": ["Deny"]}
    return _object("ValidatingAdmissionPolicyBinding", rule, spec)


def _object(kind: str, rule: Rule, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": _name(rule), "labels": labels(COMPONENT)}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _name(rule: Rule) -> str:
    return f"{NAME}-{rule.id}"


def _findings(rule: Rule) -> str:
    """Return the findings on the object, and those on the old object.

    Rules about updates alone compare both themselves.
    """
    lists = " + ".join(denial.findings() for denial in rule.denials).replace(
        "params.", "variables.params."
    )
    old = "(oldObject == null ? [] : [oldObject])" if Operation.CREATE in rule.operations else "[]"
    return f"([object] + {old}).map(self, {lists})"


def _params(rule: Rule, policy: Policy) -> str:
    values = vars(policy.decide(rule, "").params)
    return "{" + ", ".join(f"'{name}': {_literal(value)}" for name, value in values.items()) + "}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return cel.text(value)
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, tuple) else str(value)


# --- which requests are judged --------------------------------------------------------------------


def _conditions(rule: Rule, policy: Policy) -> Iterator[tuple[str, str]]:
    yield NOT_DELETED
    action = denies(rule, policy)
    if action != "true":
        yield "denied-by-the-policy", action
    if users := _users(rule, policy):
        yield "no-exempt-user", f"!({users})"
    if rule.id in (policy.annotations or ()):
        keys = ", ".join(map(cel.text, (EXEMPT_RULE + rule.id, EXEMPT_ALL)))
        yield (
            "no-exempting-annotation",
            f"![{keys}].exists(k, k in object.metadata.?annotations.orValue({{}}))",
        )


def denies(rule: Rule, policy: Policy) -> str:
    """Return whether the policy denies findings of the rule in the namespace of the request,
    in CEL.
    """
    expression = _bool(rule.action is Action.DENY)
    for layer in policy.layers:
        action = _action(layer, rule)
        if action is None:
            continue
        here = _bool(action is Action.DENY)
        if layer.namespaces is None:
            expression = here
        elif here != expression:
            expression = (
                f"({_named('request.namespace', layer.namespaces)} ? {here} : {expression})"
            )
    for exemption in policy.namespaces:
        if (
            any(exemption.covers(rule.id, kind.kind) for kind in rule.kinds)
            and expression != "false"
        ):
            expression = (
                f"({_named('request.namespace', (exemption.match,))} ? false : {expression})"
            )
    return expression


def _action(layer: Layer, rule: Rule) -> Action | None:
    """Return the action that a layer sets: the last that does, as ``policy.decide``."""
    found = None
    for ruling in layer.rulings(rule.id):
        if ruling.action is not None and (rule.id in layer.rules or rule.action is not Action.OFF):
            found = ruling.action
    return found


def _bool(value: bool) -> str:
    return str(value).lower()


def _users(rule: Rule, policy: Policy) -> str:
    """Return whether some exemption names the user.

    One that leaves a warning is an exemption too: a policy only denies.
    """
    covering = (e for e in policy.users if any(e.covers(rule.id, kind.kind) for kind in rule.kinds))
    return _named(
        "request.userInfo.username", dict.fromkeys(_PLACEHOLDER.sub("*", e.match) for e in covering)
    )


_PLACEHOLDER: Final = re.compile(r"\{(kubevirt|hyperconverged)(-unseen)?\}")
"""The namespace of KubeVirt or HyperConverged. A policy cannot look it up, and refusing their
accounts stops them.
"""


def _named(name: str, patterns: Iterable[str]) -> str:
    """Return whether a name matches one of these shell patterns."""
    return " || ".join(
        f"{name}.matches({cel.text(_regex(pattern))})"
        if set(pattern) & set("*?[")
        else f"{name} == {cel.text(pattern)}"
        for pattern in patterns
    )


def _regex(pattern: str) -> str:
    """Return a shell pattern as RE2: ``fnmatch.translate`` writes groups that RE2 does not have."""
    parts = re.split(r"(\[!?[^\]]+\]|\*|\?)", pattern)
    return "^" + "".join(_part(part) for part in parts) + "$"


def _part(part: str) -> str:
    if part in ("*", "?"):
        return {"*": ".*", "?": "."}[part]
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        return part.replace("[!", "[^", 1)
    return re.escape(part)


# --- what cannot be said --------------------------------------------------------------------------


def unsaid(rules: Iterable[Rule], policy: Policy) -> Iterator[str]:
    """Yield what the policies cannot say of the policy file, one line each."""
    judging = [rule for rule in rules if rule.denials]
    for exemption in (*policy.users, *policy.namespaces):
        if exemption.until is not None and _concerns(exemption, judging):
            yield (
                f"the exemption of {exemption.match} ends on {exemption.until}; here it does not "
                "end: export again then"
            )
    if any(
        _PLACEHOLDER.search(exemption.match) and _concerns(exemption, judging)
        for exemption in policy.users
    ):
        yield (
            "accounts with the names of KubeVirt's pass in every namespace: a policy cannot look "
            "up where KubeVirt is"
        )
    if policy.annotations:
        yield "an exempting annotation counts without its reason and its end"
    for layer in policy.layers:
        if layer.namespaces is not None and any(
            ruling.params for rule in judging for ruling in layer.rulings(rule.id)
        ):
            yield (
                f"parameters of {layer.name or 'a layer'} for some namespaces are those of all "
                "namespaces"
            )


def _concerns(exemption: Exemption, rules: Iterable[Rule]) -> bool:
    return any(exemption.covers(rule.id, kind.kind) for rule in rules for kind in rule.kinds)


def reasons(rules: Iterable[Rule]) -> dict[str, str]:
    """Return why each rule without CEL is not exported."""
    return {rule.id: reason(rule) for rule in rules if not rule.denials}


def reason(rule: Rule) -> str:
    """Return why a rule without CEL is not exported."""
    if not rule.at_admission:
        return "it is not asked at admission"
    if rule.action is not Action.DENY:
        return "it never denies out of the box; warnings stay with the webhook"
    if all(kind.never_denied for kind in rule.kinds):
        return "requests for its kinds are never denied"
    if rule.reads:
        return "it looks other objects up"
    return rule.not_in_cel
