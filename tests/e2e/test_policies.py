"""The denials in CEL are those of the checks: the same requests,
judged by the API server's own validator.
"""

import copy
import itertools
import json
import os
import random
from collections import Counter

import pytest
import yaml

from tests.apiserver.cel_policies import decide
from tests.policy_variants import updates
from tests.rule_cases import rule_cases
from virt_admit.engine.admission_review import Request
from virt_admit.engine.review import review
from virt_admit.install.policies import exported, policies, reasons, unsaid
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.parser import load, parse
from virt_admit.rule import Action, Operation
from virt_admit.rules import Rules, load_rules

RULES = load_rules()
DEFAULT = load("default", RULES)
EXPORTED = exported(RULES, DEFAULT)
OBJECTS = int(os.environ.get("POLICY_OBJECTS", "150"))
"""Changed objects for each rule; `make verify-policies` takes more."""
BUDGET = 10_000_000
"""What the evaluation of a policy may cost (k8s.io/apiserver:
pkg/apis/cel/config.go#RuntimeCELCostBudget).
"""


def requests(rule):
    """Every case of the rule, and objects and updates around them."""
    cases = [
        case for case in rule_cases()[rule.id] if "cluster" not in case and "params" not in case
    ]
    for case in cases:
        if _judged(rule, case["object"], case.get("old")):
            yield case["object"], case.get("old")
    around = [updates(case, random.Random(f"{rule.id} {case['name']}")) for case in cases]
    found = (next(each) for each in itertools.cycle(around))
    yield from itertools.islice(
        ((obj, old) for obj, old in found if _judged(rule, obj, old)), OBJECTS
    )


def _judged(rule, obj, old):
    """Whether the rule is about such a request.

    An update from 0 to false changes nothing in Python, and is left out.
    """
    operation = Operation.CREATE if old is None else Operation.UPDATE
    same = old is not None and obj.get("spec") == old.get("spec") and _spec(obj) != _spec(old)
    return operation in rule.operations and isinstance(obj.get("spec"), dict) and not same


def _spec(obj):
    return json.dumps(obj.get("spec"))


def in_python(rule, obj, old):
    """The fields whose findings deny, without the indices of lists."""
    judged = Object(obj)
    operation = Operation.UPDATE if old is not None else Operation.CREATE
    request = Request(
        uid="",
        kind=kinds.of(judged),
        operation=operation,
        obj=judged,
        old=Object(old) if old is not None else None,
        name=judged.name,
        namespace=judged.namespace,
    )
    response = review(request, Rules([rule]), Snapshot([], ["*"]), DEFAULT)
    return [
        ".".join(str(step) for step in verdict.finding.path if not isinstance(step, int))
        for verdict in response.verdicts
        if verdict.action is Action.DENY
    ]


@pytest.mark.parametrize("rule", EXPORTED, ids=lambda rule: rule.id)
def test_a_policy_denies_what_its_check_denies(rule, policy_validator):
    asked = list(requests(rule))
    lines = [
        {
            "policy": f"virt-admit-{rule.id}",
            "operation": "CREATE" if old is None else "UPDATE",
            "object": obj,
            "oldObject": old,
            "namespace": obj["metadata"].get("namespace", ""),
            "user": "jane",
        }
        for obj, old in asked
    ]
    answers = decide(policy_validator, policies([rule], DEFAULT), lines)
    verdicts = Counter()
    for (obj, old), answer in zip(asked, answers, strict=True):
        fields = in_python(rule, obj, old)
        assert answer.cost < BUDGET / 100, (answer.cost, obj)
        # of a field below a list: the schema rejects such an object before a policy sees it
        if answer.error:
            assert "unsupported index type 'string' in list" in answer.error, obj
            continue
        assert answer.denied == bool(fields), (fields, answer, obj, old)
        if fields:
            assert answer.message.startswith(tuple(f"{field}: " for field in fields)), (
                fields,
                answer.message,
            )
            assert answer.message.endswith(f" [{rule.id}]")
        verdicts[answer.denied] += 1
    assert set(verdicts) == {True, False}
    print(
        f"{rule.id}: {len(asked)} objects, {max(answer.cost for answer in answers)} of {BUDGET} at "
        "most"
    )


def test_every_rule_that_is_not_exported_has_a_reason():
    reason = reasons(RULES)
    assert set(reason) | {rule.id for rule in RULES if rule.denials} == {rule.id for rule in RULES}
    assert all(reason.values())


class TestPolicyFile:
    """What a policy file says of actions, namespaces and exemptions."""

    RULE = "vm-running-and-run-strategy"

    def policy(self, **more):
        document = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Policy"} | more
        return parse(yaml.safe_dump(document).encode(), RULES, "policy.yaml")

    def conditions(self, **more):
        found = policies([RULES.by_id[self.RULE]], self.policy(**more))
        return (
            {each["name"]: each["expression"] for each in found[0]["spec"]["matchConditions"]}
            if found
            else None
        )

    def test_a_rule_that_only_warns_is_not_exported(self):
        assert self.conditions(rules={self.RULE: {"action": "warn"}}) is None

    def test_namespaces(self):
        layers = [{"match": ["dev-*", "lab"], "rules": {"*": {"action": "audit"}}}]
        expected = (
            "(request.namespace.matches('^dev\\\\-.*$') || request.namespace == 'lab' ? false : "
            "true)"
        )
        assert self.conditions(namespaces=layers)["denied-by-the-policy"] == expected

    def test_an_exempt_namespace(self):
        exempt = {
            "namespaces": [
                {"match": "legacy", "rules": ["vm-*"], "reason": "moves", "until": "2027-03-31"}
            ]
        }
        assert (
            self.conditions(exempt=exempt)["denied-by-the-policy"]
            == "(request.namespace == 'legacy' ? false : true)"
        )
        assert any(
            "legacy ends on 2027-03-31" in line
            for line in unsaid(RULES, self.policy(exempt=exempt))
        )

    def test_annotations(self):
        found = self.conditions(exempt={"annotations": [self.RULE]})
        assert "virt-admit.io/exempt-all" in found["no-exempting-annotation"]

    def test_the_accounts_of_kubevirt_are_never_refused(self):
        assert (
            "^system:serviceaccount:.*:kubevirt\\\\-controller$"
            in self.conditions()["no-exempt-user"]
        )

    @pytest.mark.parametrize(
        ("namespace", "user", "denied"),
        [
            ("shop", "jane", True),
            ("dev-1", "jane", False),
            ("developers", "jane", True),
            ("shop", "system:serviceaccount:anywhere:kubevirt-controller", False),
            ("shop", "system:serviceaccount:anywhere:kubevirt-controllers", True),
        ],
    )
    def test_the_validator_obeys_it(self, namespace, user, denied, policy_validator):
        layers = [{"match": ["dev-*"], "rules": {"*": {"action": "audit"}}}]
        exported_policies = policies([RULES.by_id[self.RULE]], self.policy(namespaces=layers))
        faulty = copy.deepcopy(rule_cases()[self.RULE][0]["object"])
        faulty["metadata"]["namespace"] = namespace
        line = {
            "policy": f"virt-admit-{self.RULE}",
            "operation": "CREATE",
            "object": faulty,
            "namespace": namespace,
            "user": user,
        }
        (answer,) = decide(policy_validator, exported_policies, [line])
        assert (answer.denied, answer.error) == (denied, "")
