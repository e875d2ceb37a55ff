"""Reviews: which rules run, and what their findings lead to.

Pure: the same input gives the same result.

The webhook, ``check`` and ``scan`` all use this module.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from virt_admit.engine import probe
from virt_admit.engine.admission_review import (
    NONE_OMITTED,
    Reply,
    Request,
    Response,
    Verdict,
    encode,
    strongest_first,
)
from virt_admit.engine.applicable import applicable_rules, concerned
from virt_admit.engine.decoding import decode
from virt_admit.engine.ratchet import KnownFindings, identity
from virt_admit.engine.rule_run import NO_LIMITS, Gaps, Limits, run
from virt_admit.model.kubernetes import json_patch, kinds
from virt_admit.model.kubernetes.cluster import Cluster, OutOfTime, TimedCluster, time_limit
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubevirt.settings import trusted_accounts
from virt_admit.model.lookups import ReviewCache
from virt_admit.policy.annotations import ignored_annotation
from virt_admit.policy.policy import EffectiveSettings, Exemption, Policy
from virt_admit.rule import Action, Context, Finding, Judgement, Operation, Rule
from virt_admit.rules import Rules, listed_rules

NO_FINDINGS: Final = Response()

TOO_LARGE: Final = "the object: it has too many values"


def fix(
    request: Request,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    limits: Limits = NO_LIMITS,
    own: bool = False,
) -> Response:
    """Return the fixes that the policy applies to the object of a request (``/mutate``).

    With ``own`` also those that it does not forbid (``check --fix``).
    """
    if request.too_large:
        return _not_read(request, rules, policy, fixing=True)
    obj = request.obj
    if obj is None or request.kind is None or request.kind.never_denied:
        return NO_FINDINGS
    asked = rules.rules_for(request.kind, request.operation, request.subresource, request.target)
    fixing = policy.fixing(asked, request.namespace, opt_in=own)
    if not fixing or not applicable_rules(request, rules):
        return NO_FINDINGS
    evaluation = _Evaluation(request, obj, rules, cluster, policy, limits)
    fixed: list[Verdict] = []
    for rule, decision in fixing:
        if evaluation.exemption(rule) is None:
            with time_limit(limits.expired):
                fixed += evaluation.fixes(rule, decision)
    fixed = _compatible(fixed)
    operations = [operation for verdict in fixed for operation in verdict.finding.fix]
    return evaluation.response(fixed=tuple(fixed), patch=json_patch.in_order(operations))


def _compatible(fixed: Iterable[Verdict]) -> list[Verdict]:
    """Leave out a fix that changes what an earlier fix changes."""
    changed: set[Path] = set()
    found = []
    for verdict in fixed:
        paths = {operation.path for operation in verdict.finding.fix}
        if changed.isdisjoint(paths):
            found.append(verdict)
            changed |= paths
    return found


def review(
    request: Request,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    limits: Limits = NO_LIMITS,
    weakest: Action = Action.AUDIT,
) -> Response:
    """Review one request (``/validate``), by the rules to which the policy gives at least the
    action ``weakest``.
    """
    if request.too_large:
        return _not_read(request, rules, policy)
    obj = request.subject
    evaluated_rules = applicable_rules(request, rules)
    if obj is None or request.kind is None or not evaluated_rules:
        return NO_FINDINGS
    never_denied = request.kind.never_denied or request.operation == Operation.DELETE
    ceiling = Action.WARN if never_denied else Action.DENY
    evaluation = _Evaluation(request, obj, rules, cluster, policy, limits)
    active = policy.active(evaluated_rules, request.namespace, weakest)
    verdicts: list[Verdict] = []
    with time_limit(limits.expired):
        for rule, decision in concerned(active, obj):
            verdicts += evaluation.verdicts(rule, decision.params, min(decision.action, ceiling))
    return evaluation.response(
        verdicts=strongest_first(verdicts),
        evaluated_rules=tuple([rule for rule, _ in active]),
        probe=probe.answer(request),
    )


def _not_read(request: Request, rules: Rules, policy: Policy, fixing: bool = False) -> Response:
    """Return the response to a request whose object was not read: it is allowed, and names the
    rules that did not judge.
    """
    if request.kind is None or (
        request.kind.created_only and request.operation == Operation.UPDATE
    ):
        return NO_FINDINGS
    asked = rules.rules_for(request.kind, request.operation, request.subresource)
    decisions = ((rule, policy.decide(rule, request.namespace)) for rule in asked)
    not_judged = tuple(
        rule
        for rule, decision in decisions
        if decision.action is not Action.OFF and (decision.fix or not fixing)
    )
    return Response(
        not_judged=not_judged, unseen=tuple((rule, TOO_LARGE) for rule in not_judged), policy=policy
    )


class _Evaluation:
    """One evaluation: runs rules on an object, and records missing data,
    failures and rules that did not end.
    """

    def __init__(
        self,
        request: Request,
        obj: Object,
        rules: Rules,
        cluster: Cluster,
        policy: Policy,
        limits: Limits,
    ) -> None:
        self.request, self.obj, self.cluster = request, obj, cluster
        self.policy, self.limits = policy, limits
        self.operation = Operation(request.operation)
        self.facts = ReviewCache(
            cluster if limits is NO_LIMITS else TimedCluster(cluster, limits.expired)
        )
        self._contexts: dict[int, Context[Any]] = {}
        self.gaps = Gaps()
        self.omitted: Mapping[Action, int] = NONE_OMITTED
        # no method: the contexts would lead back to what holds them, and only the garbage collector
        # would free the review
        self.judge = partial(_judge_derived, request, rules, cluster, policy, limits, self.gaps)

    def _context(self, params: Any) -> Context[Any]:
        """Make what a check may know.

        Rules with the same parameters, which are mostly none, share it.
        """
        request = self.request
        made = self._contexts[id(params)] = Context(
            self.facts.cluster,
            params,
            self.facts,
            self.operation,
            request.old,
            request.user,
            request.groups,
            request.subresource,
            request.kind,
            request.target,
            self.judge,
        )
        return made

    def findings(self, rule: Rule, params: Any) -> Iterator[Finding]:
        context = self._contexts.get(id(params)) or self._context(params)
        variables = self.request.has_variables
        return run(rule, self.obj, context, self.gaps, self.limits, variables)

    def fixes(self, rule: Rule, decision: EffectiveSettings) -> list[Verdict]:
        """Run a rule and return its findings that have a fix."""
        found: list[Verdict] = []
        for finding in self.findings(rule, decision.params):
            if finding.fix and len(found) >= self.limits.fixes:
                self.gaps.stop(rule)
                break
            if finding.fix:
                found.append(Verdict(rule, finding, decision.action))
        return found

    def exemption(self, rule: Rule) -> Exemption | None:
        user, namespace = self.request.user, self.request.namespace
        return self.policy.exempt(
            rule, user, namespace, self.obj, trusted_accounts.aliases(user, self.cluster)
        )

    def verdicts(self, rule: Rule, params: Any, max_action: Action) -> list[Verdict]:
        """Run a rule and return its verdicts.

        ``max_action`` is the strongest that the policy allows it.

        A rule that fails never denies, whatever it found before: it did not see all that it wanted
        to see.
        """
        findings = self.findings(rule, params)
        first = next(findings, None)
        if first is None:  # the common case
            return []
        known = self._known_findings(rule, params, max_action)
        exempted = self._exempted(rule, max_action)
        kept: list[Verdict] = []
        count: Counter[Action] = Counter()
        omitted: Counter[Action] = Counter()
        for finding in chain((first,), findings):
            action = min(max_action, finding.max_action)
            if known is not None:
                ratcheted = known.ratchet(finding, self.obj, action)
                if ratcheted is None:
                    continue
                action = ratcheted
            verdict = exempted(Verdict(rule, finding, action))
            count[verdict.action] += 1
            if count[verdict.action] <= self.limits.verdicts:
                kept.append(verdict)
            else:
                omitted[verdict.action] += 1
        if self.gaps.failed(rule):
            kept = [verdict._replace(action=min(verdict.action, Action.WARN)) for verdict in kept]
            omitted = Counter({Action.WARN: omitted.total()})
        if omitted:
            self.omitted = Counter(self.omitted) + omitted
        return kept

    def _known_findings(self, rule: Rule, params: Any, max_action: Action) -> KnownFindings | None:
        """Return the findings on the old object alone,
        as if it were created now in the same cluster.

        None if the ratchet does not apply.
        """
        request, old = self.request, self.request.old
        if (
            request.operation != Operation.UPDATE
            or old is None
            or Operation.CREATE not in rule.operations
        ):
            return None
        context = Context(
            self.facts.cluster,
            params,
            self.facts,
            kind=request.kind,
            subresource=request.subresource,
            target=request.target,
            judge=self.judge,
        )
        known, gaps = KnownFindings(), Gaps()
        for finding in run(rule, old, context, gaps, self.limits):
            known.add(finding, old, min(max_action, finding.max_action))
        self.gaps.errors += gaps.errors
        if gaps.not_judged:
            known.complete = False
            self.gaps.stop(rule)
        return known

    def _exempted(self, rule: Rule, max_action: Action) -> Callable[[Verdict], Verdict]:
        """Return the function that applies the exemptions of a rule to a verdict,
        looked up once for all verdicts.
        """
        exemption = self.exemption(rule)
        if exemption is not None:
            limit, reason = exemption.max_action, exemption.reason
        else:
            # one step weaker than the rule allows: editors of an object may downgrade a denial, but
            # not hide it
            limit, reason = _STEP_DOWN[max_action], self.policy.annotated(rule, self.obj)
        if not reason and exemption is None:
            note = ignored_annotation(rule, self.obj, self.policy, listed_rules().by_id)
            return lambda verdict: verdict._replace(note=note) if note else verdict
        return lambda verdict: Verdict(rule, verdict.finding, min(verdict.action, limit), reason)

    def response(self, **fields: Any) -> Response:
        return Response(
            unseen=tuple(self.gaps.unseen),
            errors=tuple(self.gaps.errors),
            not_judged=tuple(self.gaps.not_judged),
            omitted=self.omitted,
            policy=self.policy,
            **fields,
        )


def _judge_derived(
    request: Request,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    limits: Limits,
    gaps: Gaps,
    obj: Object,
) -> Judgement:
    """Judge an object that another controller would create,
    as if the user of this request created it.

    Raises:
        OutOfTime: the time of this review is over.
    """
    derived = request._replace(
        operation=Operation.CREATE,
        kind=kinds.of(obj),
        obj=obj,
        old=None,
        name=obj.name,
        namespace=obj.namespace,
        subresource="",
    )
    unlimited = limits._replace(verdicts=math.inf) if limits is not NO_LIMITS else NO_LIMITS
    response = review(derived, rules, cluster, policy, unlimited, Action.DENY)
    gaps.errors += response.errors
    if response.not_judged:
        raise OutOfTime
    denials = [verdict for verdict in response.verdicts if verdict.action is Action.DENY]
    return Judgement(
        {
            (
                verdict.rule.id,
                *identity(verdict.finding, obj),
            ): f"{verdict.rule.id} ({verdict.finding.path})"
            for verdict in denials
        },
        tuple(dict.fromkeys(what for _, what in response.unseen)),
    )


_STEP_DOWN: Final = {
    Action.DENY: Action.WARN,
    Action.WARN: Action.AUDIT,
    Action.AUDIT: Action.AUDIT,
    Action.OFF: Action.OFF,
}


def answer(
    body: bytes,
    decide: Decide,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    limits: Limits = NO_LIMITS,
) -> Reply:
    """Decode an AdmissionReview, decide, and encode the response.

    Raises:
        ReviewError: the body is not an AdmissionReview that can be answered.
    """
    request = decode(body)
    response = decide(request, rules, cluster, policy, limits)
    return Reply(encode(request, response), request, response)


Decide = Callable[[Request, Rules, Cluster, Policy, Limits], Response]
"""``review`` or ``fix``."""


def judge(
    request: Request,
    rules: Rules,
    cluster: Cluster,
    policy: Policy,
    include_opt_in_fixes: bool = False,
) -> Response:
    """Return what the API server would receive for a request: the fixes,
    then the verdicts on the fixed object.

    With ``include_opt_in_fixes`` the object is fixed as ``check --fix`` does.

    Raises:
        PatchError: a fix does not fit the object, which is a bug in its rule.
    """
    fixes = fix(request, rules, cluster, policy, own=include_opt_in_fixes)
    if fixes.patch and request.obj is not None:
        request = request._replace(obj=json_patch.apply(request.obj, fixes.patch))
    response = review(request, rules, cluster, policy)
    return response._replace(
        patch=fixes.patch, fixed=fixes.fixed, errors=(*fixes.errors, *response.errors)
    )
