"""Decisions: which rules are asked, what their findings lead to. Pure: same input, same answer.

The webhook, ``check`` and ``scan`` all come through here.
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
from virt_admit.model.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.rule import FROM_OBJECT, Action, Context, Finding, Operation, Rule
from virt_admit.rules import Rules

log = logging.getLogger(__name__)

NO_FINDINGS: Final = Response()


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule said of one object."""

    rule: Rule
    findings: tuple[Finding, ...] = ()
    unseen: tuple[str, ...] = ()
    error: str = ""


def run(rule: Rule, obj: Object, context: Context[Any]) -> RuleResult:
    """Run one rule. Never raises; keeps what the rule found before it stopped."""
    found: list[Finding] = []
    unseen: list[str] = []
    try:
        for item in rule.check(obj, context):
            if isinstance(item, Unseen):
                unseen.append(item.what)
            else:
                found.append(item)
    except Unseen as blind:
        unseen.append(blind.what)
    except Exception as error:  # a broken rule must not stop a cluster
        log.exception("rule failed", extra={"rule": rule.id, "kind": obj.kind, "object": obj.full_name})
        return RuleResult(rule, tuple(found), tuple(unseen), repr(error))
    return RuleResult(rule, tuple(found), tuple(dict.fromkeys(unseen)))


def applicable_rules(request: Request, rules: Rules) -> tuple[Rule, ...]:
    """The rules that are to be asked about a request; none where the object must be left alone.

    Left alone are kinds and sub-resources without rules, objects that are being deleted (or their finalizers could
    never be removed), updates that change nothing a rule looks at (status writes, storage migration), and updates of
    what only its creation is judged of.
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
    """The fixes that the policy wants applied to the object of a request (``/mutate``)."""
    obj = request.obj
    if obj is None or request.kind is None or request.kind.never_denied:
        return NO_FINDINGS
    asked = applicable_rules(request, rules)
    if not asked:
        return NO_FINDINGS
    inquiry = _Evaluation(request, obj, cluster, policy)
    fixed: list[Verdict] = []
    for rule in asked:
        decision = policy.decide(rule, request.namespace) if rule.fixable else None
        if decision is None or not decision.fix or decision.action is Action.OFF:
            continue
        if policy.exempt(rule, request.user, request.namespace, obj) is None:
            findings = inquiry.ask(rule, decision.params)
            fixed += [Verdict(rule, finding, decision.action) for finding in findings if finding.fix]
    return inquiry.response(fixed=tuple(fixed), patch=tuple(step for one in fixed for step in one.finding.fix))


def review(request: Request, rules: Rules, cluster: Cluster, policy: Policy) -> Response:
    """Decide on one request (``/validate``)."""
    obj = request.subject
    asked = applicable_rules(request, rules)
    if obj is None or request.kind is None or not asked:
        return NO_FINDINGS
    never_denied = request.kind.never_denied or request.operation == Operation.DELETE
    ceiling = Action.WARN if never_denied else Action.DENY
    inquiry = _Evaluation(request, obj, cluster, policy)
    verdicts: list[Verdict] = []
    for rule in asked:
        decision = policy.decide(rule, request.namespace)
        if decision.action is Action.OFF:
            continue
        findings = inquiry.ask(rule, decision.params)
        if not findings:
            continue
        most = min(decision.action, ceiling)
        known = _known(rule, inquiry, decision.params, most)
        for finding in findings:
            action = _ratchet(min(most, finding.max_action), known, _key(finding, obj))
            if action is not None:
                verdicts.append(_exempted(Verdict(rule, finding, action), most, request, obj, policy))
    return inquiry.response(verdicts=strongest_first(verdicts))


class _Evaluation:
    """Asks rules about one object and remembers what they could not see and where they broke."""

    def __init__(self, request: Request, obj: Object, cluster: Cluster, policy: Policy) -> None:
        self.request, self.obj, self.cluster, self.policy = request, obj, cluster, policy
        self.operation = Operation(request.operation)
        self.facts: dict[Any, Any] = {}
        self.unseen: list[tuple[Rule, str]] = []
        self.errors: list[tuple[Rule, str]] = []

    def ask(self, rule: Rule, params: Any) -> tuple[Finding, ...]:
        request = self.request
        context = Context(
            self.cluster,
            params,
            self.facts,
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

    def response(self, **said: Any) -> Response:
        return Response(unseen=tuple(self.unseen), errors=tuple(self.errors), policy=self.policy.digest, **said)


_Key = tuple[tuple[str, ...], Any]


def _key(finding: Finding, obj: Object) -> _Key:
    value = obj.root.at(*finding.path).value if finding.value is FROM_OBJECT else finding.value
    return finding.path.without_indices, value


def _known(rule: Rule, inquiry: _Evaluation, params: Any, most: Action) -> list[tuple[_Key, Action]]:
    """What the rule says of the old object alone, judged as if it were created now over the same cluster."""
    request, old = inquiry.request, inquiry.request.old
    if request.operation != Operation.UPDATE or old is None or Operation.CREATE not in rule.operations:
        return []
    context = Context(inquiry.cluster, params, inquiry.facts, kind=request.kind, subresource=request.subresource)
    return [(_key(finding, old), min(most, finding.max_action)) for finding in run(rule, old, context).findings]


def _ratchet(action: Action, known: list[tuple[_Key, Action]], key: _Key) -> Action | None:
    """The action of a finding on UPDATE; None: leave it out.

    A rule switched on today must not block edits of what was admitted yesterday: an old denial becomes a warning.
    An old warning is left out, or every ``kubectl label`` would print it.
    """
    before = max((old_action for old_key, old_action in known if old_key == key), default=None)
    if before is Action.DENY:
        return min(action, Action.WARN)
    if before is Action.WARN and action <= Action.WARN:
        return None
    return action


def _exempted(verdict: Verdict, most: Action, request: Request, obj: Object, policy: Policy) -> Verdict:
    """The verdict after exemptions, where ``most`` is what the policy lets the rule do at all."""
    exemption = policy.exempt(verdict.rule, request.user, request.namespace, obj)
    if exemption is not None:
        action = min(verdict.action, exemption.max_action)
        return Verdict(verdict.rule, verdict.finding, action, exemption.reason)
    reason = policy.annotated(verdict.rule, obj)
    if reason:  # one step below what the rule may do: who may edit an object may explain a denial, not hide it
        return Verdict(verdict.rule, verdict.finding, min(verdict.action, _STEP_DOWN[most]), reason)
    return verdict


_STEP_DOWN: Final = {
    Action.DENY: Action.WARN,
    Action.WARN: Action.AUDIT,
    Action.AUDIT: Action.AUDIT,
    Action.OFF: Action.OFF,
}


def answer(body: bytes, decide: Decide, rules: Rules, cluster: Cluster, policy: Policy) -> Reply:
    """From the bytes of an AdmissionReview to the bytes of the answer.

    Raises:
        ReviewError: there is nothing that could be answered.
    """
    request = decode(body)
    response = decide(request, rules, cluster, policy)
    return Reply(encode(request, response), request, response)


Decide = Callable[[Request, Rules, Cluster, Policy], Response]
"""``review`` or ``fix``."""


def judge(request: Request, rules: Rules, cluster: Cluster, policy: Policy) -> Response:
    """What an API server would get from us for a request: first the fixes, then the verdicts on what they leave.

    Raises:
        patch.PatchError: a fix does not fit the object (a bug in its rule).
    """
    fixes = fix(request, rules, cluster, policy)
    if fixes.patch and request.obj is not None:
        request = dataclasses.replace(request, obj=json_patch.apply(request.obj, fixes.patch))
    response = review(request, rules, cluster, policy)
    return dataclasses.replace(response, patch=fixes.patch, fixed=fixes.fixed, errors=(*fixes.errors, *response.errors))
