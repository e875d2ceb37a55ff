"""The judge of derived objects: what a user would be denied,
another controller creates because of a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.test_engine import make_rule
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request, Response
from virt_admit.engine.rule_run import NO_LIMITS, Limits
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.policy import Exemption, Layer, Policy, RuleSettings
from virt_admit.rule import Action, Finding, Operation, Rule
from virt_admit.rules import Rules, load_rules

ID = "clone-patch-denied"
NO_POLICY = Policy()
CLONE = load_rules().by_id[ID]
SOURCE = Object(
    {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": {}},
    }
)
CLUSTER = Snapshot([SOURCE], complete=["*"])


def clone(*patches: str) -> Object:
    return Object(
        {
            "apiVersion": "clone.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClone",
            "metadata": {"name": "copy", "namespace": "shop"},
            "spec": {"source": {"kind": "VirtualMachine", "name": "db"}, "patches": list(patches)},
        }
    )


LARGE = '{"op": "add", "path": "/spec/size", "value": 9}'


def too_big(obj: Object, _context: Any) -> Iterator[Finding]:
    size = obj.at("spec", "size")
    if (size.integer or 0) > 3:
        yield Finding(size.path, "too big; write 3")


def ask(
    *patches: str,
    rule: Rule | None = None,
    policy: Policy = NO_POLICY,
    limits: Limits = NO_LIMITS,
    **more: Any,
) -> Response:
    request = Request(Operation.CREATE, kinds.VM_CLONE, clone(*patches), namespace="shop", **more)
    return engine.review(
        request, Rules([CLONE, rule or make_rule(too_big)]), CLUSTER, policy, limits
    )


def said(response: Response) -> list[tuple[str, str]]:
    return [(str(verdict.finding.path), str(verdict.action)) for verdict in response.verdicts]


def test_it_warns_at_the_patch() -> None:
    response = ask('{"op": "add", "path": "/spec/a", "value": 9}', LARGE)
    assert said(response) == [("spec.patches[1]", "warn")]
    assert "too-big (spec.size)" in response.verdicts[0].message
    assert response.allowed


def test_only_denials_count() -> None:
    policy = Policy(layers=(Layer(rules={"too-big": RuleSettings(action=Action.WARN)}),))
    assert said(ask(LARGE, policy=policy)) == []


def test_an_exemption_of_the_user_or_the_namespace_holds() -> None:
    exemption = {"rules": ("too-big",), "reason": "a test", "max_action": Action.AUDIT}
    by_user = Policy(users=(Exemption(match="alice", **exemption),))
    assert said(ask(LARGE, policy=by_user, user="alice")) == []
    assert said(ask(LARGE, policy=by_user, user="bob")) != []
    by_namespace = Policy(namespaces=(Exemption(match="shop", **exemption),))
    assert said(ask(LARGE, policy=by_namespace)) == []


def test_an_old_fault_is_not_an_error_of_an_update() -> None:
    old = clone(LARGE)
    policy = Policy(layers=(Layer(rules={ID: RuleSettings(action=Action.DENY)}),))
    request = Request(Operation.UPDATE, kinds.VM_CLONE, clone(LARGE, LARGE), old, namespace="shop")
    assert engine.review(request, Rules([CLONE, make_rule(too_big)]), CLUSTER, policy).allowed
    assert not ask(LARGE, policy=policy).allowed


def test_a_rule_that_crashes_denies_no_clone() -> None:
    def crashing(obj: Object, context: Any) -> Iterator[Finding]:
        yield from too_big(obj, context)
        raise ZeroDivisionError

    policy = Policy(layers=(Layer(rules={ID: RuleSettings(action=Action.DENY)}),))
    rule = make_rule(crashing)
    response = ask(LARGE, rule=rule, policy=policy)
    assert response.allowed
    assert {failed for failed, _ in response.errors} == {rule}


def test_the_time_of_the_review_ends_it_too() -> None:
    clock = itertools.count()
    response = ask(LARGE, limits=Limits(expired=lambda: next(clock) > 3))
    assert response.not_judged == (CLONE,)
    assert response.verdicts == ()


def test_many_patches_are_few_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    reviewed = []
    original = engine.review
    monkeypatch.setattr(engine, "review", lambda *args: reviewed.append(1) or original(*args))
    patches = ['{"op": "add", "path": "/spec/a", "value": 9}'] * 999
    assert said(ask(*patches[:700], LARGE, *patches[700:])) == [("spec.patches[700]", "warn")]
    assert len(reviewed) <= 14
