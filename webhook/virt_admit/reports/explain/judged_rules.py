"""The rules that find something about an object,
with the action and the layer of the policy that decides it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from virt_admit.engine import review
from virt_admit.engine.admission_review import Request, Verdict
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.policy.explain import winner
from virt_admit.policy.policy import Policy
from virt_admit.reports.findings.report import called
from virt_admit.rule import Operation, Rule
from virt_admit.rules import Rules, listed_rules


@dataclass(frozen=True, slots=True)
class JudgedRule:
    """One finding of a rule, or a rule that could not read its data."""

    rule: str
    action: str
    """What the policy does about the finding: deny, warn, audit or off."""
    layer: str
    """The layer of the policy that decides the action."""
    object: str
    """``Kind/namespace/name``."""
    path: str
    message: str
    """Empty: the rule found nothing, as far as it could read."""
    exempted: str | None = None
    """The reason of the exemption that lowered the action."""
    unseen: str | None = None
    """What the rule could not read."""
    problem: str | None = None
    """The id of the problem that it shows."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """The rules and the policy that judge objects."""

    rules: Rules
    policy: Policy | None
    """None: it could not be read."""


def problems(rules: Iterable[JudgedRule] | None) -> Iterator[str]:
    """Yield the ids of the problems that findings show, without those that are exempt."""
    yield from (
        rule.problem for rule in rules or () if rule.problem is not None and rule.exempted is None
    )


def reads(rules: Rules, judged: Iterable[Kind]) -> set[Kind]:
    """Return the kinds that the rules about these kinds look up."""
    return {
        looked_up
        for kind in judged
        for rule in rules.by_kind.get(kind, ())
        for looked_up in rule.reads
    }


def judge(
    objects: Iterable[Object], rules: Rules, cluster: Cluster, policy: Policy
) -> tuple[JudgedRule, ...]:
    """Return what the rules say about these objects, as ``scan`` says it,
    strongest first for each object.
    """
    return tuple(found for obj in objects for found in _judge(obj, rules, cluster, policy))


def problems_of_rule(cluster: Cluster, rule_id: str) -> Collection[str] | None:
    """Return the ids of the problems that a rule finds; None: there is no such rule."""
    rule = listed_rules().by_id.get(rule_id)
    if rule is None:
        return None
    objects = [obj for kind in rule.kinds for obj in cluster.known(kind)]
    judged = judge(objects, Rules((rule,)), cluster, parser.load("audit", listed_rules()))
    return frozenset(found.problem for found in judged if found.problem is not None)


def _judge(obj: Object, rules: Rules, cluster: Cluster, policy: Policy) -> Iterator[JudgedRule]:
    request = Request(Operation.CREATE, kinds.of(obj), obj, name=obj.name, namespace=obj.namespace)
    response = review.review(request, rules, cluster, policy)
    for verdict in response.verdicts:
        yield _found(verdict, obj, policy)
    for rule, what in (*response.unseen, *response.errors):
        action, layer = _decided(rule, obj, policy)
        yield JudgedRule(rule.id, action, layer, called(obj), "", "", unseen=what)


def _found(verdict: Verdict, obj: Object, policy: Policy) -> JudgedRule:
    _, layer = _decided(verdict.rule, obj, policy)
    shown = verdict.finding.problem
    return JudgedRule(
        verdict.rule.id,
        str(verdict.action),
        layer,
        called(obj),
        str(verdict.finding.path),
        verdict.message,
        exempted=verdict.exempted or None,
        problem=None if shown is None else str(shown),
    )


def _decided(rule: Rule, obj: Object, policy: Policy) -> tuple[str, str]:
    settings, layer = winner(policy, rule, obj.namespace)
    return str(settings.action), layer


ACTIONS: Final = ("deny", "warn", "audit", "off")
"""The actions, strongest first."""
