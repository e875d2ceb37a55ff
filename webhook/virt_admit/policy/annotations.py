"""Exemption annotations that do not count, and why."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut, did_you_mean
from virt_admit.policy.policy import EXEMPT_ALL, EXEMPT_RULE, Policy, parse_annotation
from virt_admit.rule import Rule
from virt_admit.settings import DOMAIN

_PREFIX = f"{DOMAIN}/exempt"


def ignored_annotation(rule: Rule, obj: Object, policy: Policy, known: Collection[str]) -> str:
    """Return one sentence on why an exemption annotation does not count for a rule;
    empty if there is none.

    Args:
        rule: the rule that found something.
        obj: the object with the annotations.
        policy: the policy in force.
        known: the ids of all rules.
    """
    for key, reason in _ignored(rule, obj, policy, known):
        return f"The annotation {cut(key, 120)} does not count: {reason}."
    return ""


def _ignored(
    rule: Rule, obj: Object, policy: Policy, known: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the annotations that seem to be meant for the rule,
    with the reasons why they do not count.
    """
    keys = [key for key in obj.annotations if key.lower().startswith(_PREFIX)]
    for key in (EXEMPT_RULE + rule.id, EXEMPT_ALL):
        if key in keys:
            yield key, _reason(rule, obj.annotations[key], policy)
    for key in sorted(keys):
        if key == EXEMPT_ALL or key.removeprefix(EXEMPT_RULE) in known:
            continue
        if meant := did_you_mean(key, (EXEMPT_RULE + rule.id, EXEMPT_ALL)):
            yield key, f"the name is unknown. Use {meant}"
        elif not key.startswith(EXEMPT_RULE):
            yield key, f"the name is unknown. Use {EXEMPT_RULE}{rule.id}"


def _reason(rule: Rule, text: str, policy: Policy) -> str:
    if rule.id not in (policy.annotations or ()):
        return "the policy allows none for this rule"
    reason, until = parse_annotation(text)
    if not reason:
        return "it has no reason"
    if until == datetime.date.min:
        return "its end is not a date such as until=2027-01-31"
    return f"it expired on {until}"
