"""Reviews: which rules run, and what their findings lead to. Pure: the same input gives the same result.

The webhook, ``check`` and ``scan`` all use this module.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.engine.admission_review import Reply, Request, Response, Verdict, decode, encode, strongest_first
from virt_admit.model import json_patch
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kubevirt import trusted_accounts
from virt_admit.model.objects import Object
from virt_admit.policy.policy import Exemption, Policy
from virt_admit.rule import FROM_OBJECT, Action, Context, Finding, Operation, Rule
from virt_admit.rules import Rules

log = logging.getLogger(__name__)

NO_FINDINGS: Final = Response()


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The findings of one rule on one object."""

    rule: Rule
    findings: tuple[Finding, ...] = ()
    unseen: tuple[str, ...] = ()
    error: str = ""


def run(rule: Rule, obj: Object, context: Context[Any]) -> RuleResult:
    """Run one rule. Never raises; keeps the findings that precede a failure."""
    found: list[Finding] = []
    unseen: list[str] = []
    try:
        for item in rule.check(obj, context):
            if isinstance(item, Unseen):
                unseen.append(item.what)
            else:
                found.append(item)
    except Unseen as missing:
        unseen.append(missing.what)
    except Exception as error:  # a broken rule must not stop a cluster
        log.exception("rule failed", extra={"rule": rule.id, "kind": obj.kind, "object": obj.full_name})
        return RuleResult(rule, tuple(found), tuple(unseen), repr(error))
    return RuleResult(rule, tuple(found), tuple(dict.fromkeys(unseen)))


def applicable_rules(request: Request, rules: Rules) -> tuple[Rule, ...]:
    """Return the rules to run for a request.

    Empty for kinds and sub-resources without rules, and for objects being deleted, because their finalizers must stay
    removable. Also empty for updates that change nothing a rule reads (status writes, storage migration), and for
    updates of kinds that are only reviewed on creation.
    """
    if request.kind is None or request.subject is None:
        return ()
    if request.subject.deleted:
        return ()
    if request.operation == Operation.UPDATE and (request.kind.created_only or _unchanged(request, rules)):
        return ()
    return tuple(
        rule
        for rule in rules.by_kind.get(request.kind, ())
        if request.operation in rule.operations
        and (not request.subresource or request.subresource in rule.subresources)
    )


def _unchanged(request: Request, rules: Rules) -> bool:
    obj, old = request.obj, request.old
    if obj is None or old is None or request.kind is None or obj.data.get("spec") != old.data.get("spec"):
        return False
    if any(obj.metadata[part].texts != old.metadata[part].texts for part in request.kind.judged_metadata):
        return False
    return all(_metadata(obj, key) == _metadata(old, key) for key in rules.metadata.get(request.kind, ()))


def _metadata(obj: Object, key: str) -> tuple[Any, Any]:
    return obj.annotation(key).value, obj.label(key).value


def fix(request: Request, rules: Rules, cluster: Cluster, policy: Policy) -> Response:
    """Return the fixes that the policy applies to the object of a request (``/mutate``)."""
    obj = request.obj
    if obj is None or request.kind is None or request.kind.never_denied:
        return NO_FINDINGS
    rules_run = applicable_rules(request, rules)
    if not rules_run:
        return NO_FINDINGS
    evaluation = _Evaluation(request, obj, cluster, policy)
    fixed: list[Verdict] = []
    for rule in rules_run:
        decision = policy.decide(rule, request.namespace) if rule.fixable else None
        if decision is None or not decision.fix or decision.action is Action.OFF:
            continue
        if evaluation.exemption(rule) is None:
            findings = evaluation.run_rule(rule, decision.params)
            fixed += [Verdict(rule, finding, decision.action) for finding in findings if finding.fix]
    return evaluation.response(
        fixed=tuple(fixed), patch=tuple(operation for verdict in fixed for operation in verdict.finding.fix)
    )


def review(request: Request, rules: Rules, cluster: Cluster, policy: Policy) -> Response:
    """Review one request (``/validate``)."""
    obj = request.subject
    rules_run = applicable_rules(request, rules)
    if obj is None or request.kind is None or not rules_run:
        return NO_FINDINGS
    never_denied = request.kind.never_denied or request.operation == Operation.DELETE
    ceiling = Action.WARN if never_denied else Action.DENY
    evaluation = _Evaluation(request, obj, cluster, policy)
    verdicts: list[Verdict] = []
    for rule in rules_run:
        decision = policy.decide(rule, request.namespace)
        if decision.action is Action.OFF:
            continue
        findings = evaluation.run_rule(rule, decision.params)
        if not findings:
            continue
        max_action = min(decision.action, ceiling)
        known = _known(rule, evaluation, decision.params, max_action)
        for finding in findings:
            action = _ratchet(min(max_action, finding.max_action), known, _key(finding, obj))
            if action is not None:
                verdicts.append(_exempted(Verdict(rule, finding, action), max_action, evaluation))
    return evaluation.response(verdicts=strongest_first(verdicts))


class _Evaluation:
    """One evaluation: runs rules on an object, and records missing data and failures."""

    def __init__(self, request: Request, obj: Object, cluster: Cluster, policy: Policy) -> None:
        self.request, self.obj, self.cluster, self.policy = request, obj, cluster, policy
        self.operation = Operation(request.operation)
        self.cached: dict[Any, Any] = {}
        self.unseen: list[tuple[Rule, str]] = []
        self.errors: list[tuple[Rule, str]] = []

    def run_rule(self, rule: Rule, params: Any) -> tuple[Finding, ...]:
        request = self.request
        context = Context(
            self.cluster,
            params,
            self.cached,
            self.operation,
            request.old,
            request.user,
            request.groups,
            request.subresource,
            request.kind,
        )
        result = run(rule, self.obj, context)
        self.unseen += [(rule, what) for what in result.unseen]
        self.errors += [(rule, result.error)] if result.error else []
        return result.findings

    def exemption(self, rule: Rule) -> Exemption | None:
        user, namespace = self.request.user, self.request.namespace
        return self.policy.exempt(rule, user, namespace, self.obj, trusted_accounts.aliases(user, self.cluster))

    def response(self, **fields: Any) -> Response:
        return Response(unseen=tuple(self.unseen), errors=tuple(self.errors), policy=self.policy.digest, **fields)


_Key = tuple[tuple[str, ...], Any]


def _key(finding: Finding, obj: Object) -> _Key:
    value = obj.root.at(*finding.path).value if finding.value is FROM_OBJECT else finding.value
    return finding.path.without_indices, value


def _known(rule: Rule, evaluation: _Evaluation, params: Any, max_action: Action) -> list[tuple[_Key, Action]]:
    """Return the findings on the old object alone, as if it were created now in the same cluster."""
    request, old = evaluation.request, evaluation.request.old
    if request.operation != Operation.UPDATE or old is None or Operation.CREATE not in rule.operations:
        return []
    context = Context(evaluation.cluster, params, evaluation.cached, kind=request.kind, subresource=request.subresource)
    return [(_key(finding, old), min(max_action, finding.max_action)) for finding in run(rule, old, context).findings]


def _ratchet(action: Action, known: list[tuple[_Key, Action]], key: _Key) -> Action | None:
    """Return the action of a finding on UPDATE; None: leave the finding out.

    A newly enabled rule must not block edits of objects that were admitted before, so an old denial becomes a warning.
    An old warning is left out, or every ``kubectl label`` would print it.
    """
    before = max((old_action for old_key, old_action in known if old_key == key), default=None)
    if before is Action.DENY:
        return min(action, Action.WARN)
    if before is Action.WARN and action <= Action.WARN:
        return None
    return action


def _exempted(verdict: Verdict, max_action: Action, evaluation: _Evaluation) -> Verdict:
    """Return the verdict after exemptions. ``max_action`` is the strongest action that the policy allows the rule."""
    exemption = evaluation.exemption(verdict.rule)
    if exemption is not None:
        action = min(verdict.action, exemption.max_action)
        return Verdict(verdict.rule, verdict.finding, action, exemption.reason)
    reason = evaluation.policy.annotated(verdict.rule, evaluation.obj)
    if reason:  # one step weaker than the rule allows: editors of an object may downgrade a denial, but not hide it
        return Verdict(verdict.rule, verdict.finding, min(verdict.action, _STEP_DOWN[max_action]), reason)
    return verdict


_STEP_DOWN: Final = {
    Action.DENY: Action.WARN,
    Action.WARN: Action.AUDIT,
    Action.AUDIT: Action.AUDIT,
    Action.OFF: Action.OFF,
}


def answer(body: bytes, decide: Decide, rules: Rules, cluster: Cluster, policy: Policy) -> Reply:
    """Decode an AdmissionReview, decide, and encode the response.

    Raises:
        ReviewError: the body is not an AdmissionReview that can be answered.
    """
    request = decode(body)
    response = decide(request, rules, cluster, policy)
    return Reply(encode(request, response), request, response)


Decide = Callable[[Request, Rules, Cluster, Policy], Response]
"""``review`` or ``fix``."""


def judge(request: Request, rules: Rules, cluster: Cluster, policy: Policy) -> Response:
    """Return what the API server would receive for a request: the fixes, then the verdicts on the fixed object.

    Raises:
        PatchError: a fix does not fit the object, which is a bug in its rule.
    """
    fixes = fix(request, rules, cluster, policy)
    if fixes.patch and request.obj is not None:
        request = dataclasses.replace(request, obj=json_patch.apply(request.obj, fixes.patch))
    response = review(request, rules, cluster, policy)
    return dataclasses.replace(response, patch=fixes.patch, fixed=fixes.fixed, errors=(*fixes.errors, *response.errors))
