"""Every case of every rule, and what every rule owes its readers.

A case stands in ``webhook/rules/<family>/<rule>.yaml``:

``name``       what is special about it
``object``     the object that is judged
``old``        the object before; makes the case an UPDATE
``operation``  CREATE (or UPDATE with ``old``) unless said otherwise
``user``, ``groups``, ``subresource``  of the request
``cluster``    the other objects; every kind is complete unless ``complete`` lists the complete ones (``[]``: none)
``serverVersion``
``params``     as in a policy

and expects

``finds``      for each finding its path, or a map: ``path``, ``says`` (parts of the message), ``max_action``, ``value``
``fix``        the JSON Patch of all findings
``unseen``     parts of what the rule could not see; without the key the rule must have seen everything it needed
"""

import pytest
import yaml

from tests.rule_cases import rule_cases
from virt_admit.engine.admission_review import MAX_WARNING, Verdict
from virt_admit.engine.review import run
from virt_admit.model import json_patch, kinds
from virt_admit.model.cluster import Snapshot
from virt_admit.model.objects import Object
from virt_admit.policy.parser import parse
from virt_admit.rule import Action, Context, Operation
from virt_admit.rules import load_rules


def _read_cases():
    for rule_id, cases in rule_cases().items():
        rule = load_rules().by_id[rule_id]
        for case in cases:
            yield pytest.param(rule, case, id=f"{rule.id}/{case['name']}")


CASES = list(_read_cases())
ALL = list(load_rules())
KEYS = {"name", "object", "old", "operation", "user", "groups", "subresource", "cluster", "complete", "serverVersion",
        "params", "finds", "fix", "unseen"}  # fmt: skip


def file_of(rule):
    """The rule's file, for messages."""
    return f"webhook/{rule.module.replace('.', '/')}.py"


class Recorder:
    """A cluster that notes which kinds are looked up."""

    def __init__(self, cluster):
        self.cluster, self.read = cluster, set()
        self.server_version = cluster.server_version

    def get(self, kind, namespace, name):
        self.read.add(kind)
        return self.cluster.get(kind, namespace, name)

    def list(self, kind, namespace=None):
        self.read.add(kind)
        return self.cluster.list(kind, namespace)

    def known(self, kind, namespace=None):
        self.read.add(kind)
        return self.cluster.known(kind, namespace)

    def cached(self, function):
        return function(self)


def ask(rule, case):
    """Run a rule on a case: the result, and the kinds that it looked up."""
    snapshot = Snapshot(
        [Object(data) for data in case.get("cluster", [])],
        complete=case.get("complete", ["*"]),
        server_version=case.get("serverVersion"),
    )
    cluster = Recorder(snapshot)
    old = Object(case["old"]) if "old" in case else None
    obj = Object(case["object"])
    return run(rule, obj, context_of(rule, case, obj, old, cluster)), cluster.read


def context_of(rule, case, obj, old, cluster):
    """All that a rule may know besides the object."""
    return Context(
        cluster,
        params_of(rule, case["params"]) if "params" in case else rule.params,
        {},
        Operation(case.get("operation", "CREATE" if old is None else "UPDATE")),
        old,
        case.get("user", ""),
        frozenset(case.get("groups", ())),
        case.get("subresource", ""),
        kinds.of(obj) or rule.kinds[0],
    )


def params_of(rule, values):
    """A rule's parameters as a policy writes them."""
    policy = parse(yaml.safe_dump({"rules": {rule.id: {"params": values}}}).encode(), load_rules())
    return policy.decide(rule, "").params


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case(rule, case):
    assert set(case) <= KEYS, "a case has a key that nothing reads"

    result, read = ask(rule, case)

    assert not result.error
    expected = [{"path": each} if isinstance(each, str) else each for each in case.get("finds", [])]
    assert [str(finding.path) for finding in result.findings] == [each["path"] for each in expected]
    for finding, wanted in zip(result.findings, expected, strict=True):
        for part in wanted.get("says", []):
            assert part in finding.message
        assert str(finding.max_action) == wanted.get("max_action", str(finding.max_action))
        if "value" in wanted:
            assert finding.value == wanted["value"]
    assert [step.as_json() for finding in result.findings for step in finding.fix] == case.get("fix", [])
    assert len(result.unseen) == len(case.get("unseen", [])), result.unseen
    for part, what in zip(case.get("unseen", []), result.unseen, strict=True):
        assert part in what
    assert read & set(kinds.ALL) <= set(rule.reads), "the rule looks up kinds that it does not declare"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_every_rule_explains_itself(rule):
    assert rule.title.endswith(".")
    assert "**Why.**" in rule.doc
    assert "**Fix.**" in rule.doc
    assert rule.sources
    assert len(rule.id) <= 56, "the exempt annotation would have a name of more than 63 characters"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_every_rule_has_a_bad_and_a_good_case(rule):
    cases = [case for each, case in (param.values for param in CASES) if each is rule]
    assert any(case.get("finds") for case in cases), "no case in which the rule finds something"
    assert any(not case.get("finds") and "unseen" not in case for case in cases), "no case that is fine"


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_messages_are_one_line_that_fits(rule, case):
    result, _ = ask(rule, case)
    for finding in result.findings:
        assert "\n" not in finding.message
        assert len(finding.message) <= 480, finding.message


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_warnings_are_not_cut(rule, case):
    """The API server may cut a warning above 256 characters; what to do stands at its end."""
    result, _ = ask(rule, case)
    for finding in result.findings:
        if min(rule.action, finding.max_action) <= Action.WARN:
            assert len(Verdict(rule, finding, Action.WARN).text) <= MAX_WARNING


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_fix_makes_the_finding_go_away(rule, case):
    result, _ = ask(rule, case)
    steps = [step for finding in result.findings for step in finding.fix]
    if steps:
        fixed = json_patch.apply(Object(case["object"]), steps)
        again, _ = ask(rule, case | {"object": fixed.data})
        assert not again.findings


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_without_a_cluster_a_rule_finds_no_more_than_a_warning_more(rule, case):
    """Unseen is not absent: what is found without any knowledge of the cluster must be found with it too."""
    with_cluster, _ = ask(rule, case)
    without, _ = ask(rule, {**case, "cluster": [], "complete": []})
    assert not without.error
    known = {str(finding.path) for finding in with_cluster.findings}
    for finding in without.findings:
        assert str(finding.path) in known or min(finding.max_action, rule.action) < Action.DENY
