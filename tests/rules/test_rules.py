"""Every case of every rule, and what every rule owes its readers.

``docs/case.schema.json`` describes the cases.
"""

import copy
import dataclasses
import importlib
import pkgutil
from functools import partial

import pytest
import yaml

from tests.for_each import check_each
from tests.rule_results import result_of
from tests.rules import cases, never_break_world
from virt_admit import forecasts, model
from virt_admit.engine.admission_review import MAX_WARNING, Request, Verdict
from virt_admit.engine.review import _Evaluation
from virt_admit.engine.rule_run import NO_LIMITS
from virt_admit.model import releases
from virt_admit.model.kubernetes import json_patch, kinds, reads
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import ReviewCache
from virt_admit.model.messages import LONGEST_MESSAGE
from virt_admit.policy.parser import load, parse
from virt_admit.rule import Action, Context, Operation
from virt_admit.rules import load_rules

ALL = list(load_rules())
DEFAULT = load("default", load_rules())
PAIRS = list(cases.read(load_rules()))
CASES_BY_RULE = [
    pytest.param(rule, [case for each, case in PAIRS if each is rule], id=rule.id) for rule in ALL
]
"""One test for each rule is quicker than one for each case;
``each_case`` names the cases that fail.
"""
SHARED = {
    (kind, path)
    for package in (forecasts, model)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    for name, value in vars(importlib.import_module(module.name)).items()
    if name.endswith("READS")
    for kind, paths in value.items()
    for path in paths
}
"""The fields that facts and forecasts declare for the rules."""


def file_of(rule):
    """The rule's file, for messages."""
    return f"webhook/{rule.module.replace('.', '/')}.py"


class Recorder:
    """A cluster that notes which kinds are looked up."""

    def __init__(self, cluster):
        self.cluster, self.read = cluster, set()
        self.server_version = cluster.server_version
        self.time = cluster.time

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
    return result_of(rule, obj, context_of(rule, case, obj, old, cluster)), cluster.read


def context_of(rule, case, obj, old, cluster):
    """All that a rule may know besides the object."""
    return Context(
        cluster,
        params_of(rule, case["params"]) if "params" in case else rule.params,
        ReviewCache(cluster),
        Operation(case.get("operation", "CREATE" if old is None else "UPDATE")),
        old,
        case.get("user", ""),
        frozenset(case.get("groups", ())),
        case.get("subresource", ""),
        kinds.of(obj) or rule.kinds[0],
        releases.parse(case["target"]) if "target" in case else releases.NO_TARGET,
        judge_of(case, obj, cluster),
    )


def judge_of(case, obj, cluster):
    """The judge that the engine gives to a rule. The look-ups of the other rules are theirs."""
    others = cluster.cluster if isinstance(cluster, Recorder) else cluster
    request = Request(
        "CREATE", kinds.of(obj), obj, namespace=obj.namespace, user=case.get("user", "")
    )
    return _Evaluation(request, obj, load_rules(), others, DEFAULT, NO_LIMITS).judge


def params_of(rule, values):
    """A rule's parameters as a policy writes them."""
    policy = parse(yaml.safe_dump({"rules": {rule.id: {"params": values}}}).encode(), load_rules())
    return policy.decide(rule, "").params


def each_case(rule, own, check):
    """Check all cases of a rule; the failure names file and line of those that fail."""
    check_each(own, check, lambda case: f"{rule.id}/{case['name']}\n{cases.place(rule, case)}")


@pytest.mark.parametrize(("rule", "own"), CASES_BY_RULE)
def test_cases(rule, own):
    each_case(rule, own, partial(judge, rule))


def judge(rule, case):
    """The rule finds in a case what the case says, and keeps to what every rule promises."""
    result, read = ask(rule, case)

    assert not result.error
    for problem in undeclared_kinds(rule, case, read):
        pytest.fail(problem, pytrace=False)
    as_expected(result, case)
    for finding in result.findings:
        fits(rule, finding)
    fix_removes_findings(rule, case, result)
    finds_no_more_without_a_cluster(rule, case, result)


def undeclared_kinds(rule, case, read):
    """Yield the kinds that the check looks up and that the rule does not declare,
    each with what to write.
    """
    for kind in sorted(read & set(kinds.ALL) - set(rule.reads)):
        name = next(name for name, value in vars(kinds).items() if value == kind)
        yield (
            f"{file_of(rule)}: the check looks up {kind} (case {case['name']!r}). Add {name}: "
            "(...) to reads"
        )


def as_expected(result, case):
    """The findings, fixes and gaps are those that the case names."""
    expected = [{"path": each} if isinstance(each, str) else each for each in case.get("finds", [])]
    assert [str(finding.path) for finding in result.findings] == [each["path"] for each in expected]
    for finding, details in zip(result.findings, expected, strict=True):
        for part in details.get("says", []):
            assert part in finding.message
        assert str(finding.max_action) == details.get("max_action", str(finding.max_action))
        if "command" in details:
            assert finding.command == details["command"]
        if "value" in details:
            assert finding.value == details["value"]
    assert [step.as_json() for finding in result.findings for step in finding.fix] == case.get(
        "fix", []
    )
    assert len(result.unseen) == len(case.get("unseen", [])), result.unseen
    for part, what in zip(case.get("unseen", []), result.unseen, strict=True):
        assert part in what


def fits(rule, finding):
    """A message is one line.

    The API server may cut a warning above 256 characters, and the remedy is at its end.
    """
    assert "\n" not in finding.message
    assert len(finding.message) <= LONGEST_MESSAGE, finding.message
    if rule.at_admission and min(rule.action, finding.max_action) <= Action.WARN:
        assert len(Verdict(rule, finding, Action.WARN).text) <= MAX_WARNING


def fix_removes_findings(rule, case, result):
    """After its fixes an object has only the findings of the rule that have no fix."""
    steps = [step for finding in result.findings for step in finding.fix]
    if steps:
        fixed = json_patch.apply(Object(case["object"]), json_patch.in_order(steps))
        again, _ = ask(rule, case | {"object": fixed.data})
        assert len(again.findings) == sum(not finding.fix for finding in result.findings)
        assert not any(finding.fix for finding in again.findings), "a second run would change more"


def finds_no_more_without_a_cluster(rule, case, result):
    """Unseen is not absent: a denial that is found without any knowledge of the cluster is found
    with it too.
    """
    without, _ = ask(rule, {**case, "cluster": [], "complete": []})
    assert not without.error
    known = {str(finding.path) for finding in result.findings}
    for finding in without.findings:
        assert str(finding.path) in known or min(finding.max_action, rule.action) < Action.DENY


@pytest.mark.parametrize("rule", [rule for rule in ALL if rule.only_with], ids=lambda rule: rule.id)
def test_a_rule_finds_nothing_without_the_fields_that_it_is_asked_only_with(rule):
    """The engine does not run it then. The cases are those of all rules about its kinds."""
    every = [case for _, case in PAIRS if kinds.of(Object(case["object"])) in rule.kinds]
    each_case(rule, every, partial(is_silent_without_its_fields, rule))


def is_silent_without_its_fields(rule, case):
    obj = Object(copy.deepcopy(case["object"]))
    for spec in (vms.vm_spec(obj), vms.vmi_spec(obj)):
        for field in rule.only_with if spec.is_map else ():
            spec.value.pop(field, None)
    changed = {key: value for key, value in case.items() if key != "params"} | {"object": obj.data}
    for cluster in ({}, {"complete": []}, {"cluster": [], "complete": []}):
        result, _ = ask(rule, changed | cluster)
        assert result == ((), (), "")


def test_case_files_are_valid():
    assert list(cases.problems(load_rules())) == []


@pytest.mark.parametrize(("rule", "own"), CASES_BY_RULE)
def test_every_rule_explains_itself_and_has_a_bad_and_a_good_case(rule, own):
    assert rule.title.endswith(".")
    assert "**Why.**" in rule.doc
    assert "**Fix.**" in rule.doc
    assert rule.sources
    assert len(rule.id) <= 56, "the exempt annotation would have a name of more than 63 characters"
    place = cases.case_file(rule)
    assert any(case.get("finds") for case in own), (
        f"{place}: add a case in which the rule finds something"
    )
    assert any(not case.get("finds") and "unseen" not in case for case in own), (
        f"{place}: add a case without findings"
    )


@pytest.mark.parametrize(("rule", "own"), CASES_BY_RULE)
def test_a_rule_declares_the_metadata_keys_that_it_judges(rule, own):
    """Otherwise no update of the key reaches the rule,
    and the match condition for Nodes drops each of them.
    """
    for kind, key in undeclared_keys(rule, own):
        pytest.fail(
            f"{file_of(rule)}: an update of {key!r} would not be judged on {kind}. Add the key to "
            "metadata"
        )


def undeclared_keys(rule, rule_cases):
    """Yield the annotation and label keys that findings are at and whose updates nothing brings to
    the rule, by kind.
    """
    for case in rule_cases if rule.at_admission else ():
        kind = kinds.of(Object(case["object"])) or rule.kinds[0]
        for finding in ask(rule, case)[0].findings:
            match finding.path:
                case ("metadata", "annotations" | "labels" as part, str(key)) if (
                    not kind.created_only
                ):
                    if part not in kind.judged_metadata and key not in rule.metadata:
                        yield kind, str(key)


def test_an_undeclared_metadata_key_is_noticed():
    rule = load_rules().by_id["node-labeller-skip"]
    own = [case for each, case in PAIRS if each is rule]
    assert not list(undeclared_keys(rule, own))
    assert list(undeclared_keys(dataclasses.replace(rule, metadata=()), own))


@pytest.mark.parametrize("rule", [rule for rule in ALL if rule.reads], ids=lambda rule: rule.id)
def test_the_fields_of_a_rule_exist_in_its_cases(rule):
    """A misspelt field would be retained for nothing.

    Fields that the model declares are left out.
    """
    objects = [data for each, case in PAIRS if each is rule for data in case.get("cluster", [])]
    assert objects, (
        f"{cases.case_file(rule)}: add a case with a cluster; the rule looks up "
        f"{', '.join(map(str, rule.reads))}"
    )
    for kind, paths in rule.reads.items():
        for path in (
            each for each in paths if (kind, each) not in SHARED and each not in reads.NAME
        ):
            found = any(
                kinds.of(Object(data)) is kind and has(data, reads.keys(path)) for data in objects
            )
            assert found, (
                f"{file_of(rule)}: no case has the field {path} of {kind}. Correct it in reads, or "
                "add a case"
            )


def has(value, path):
    """Whether a value has something at a path; lists are passed through."""
    if isinstance(value, list):
        return any(has(item, path) for item in value)
    return not path or (
        isinstance(value, dict) and path[0] in value and has(value[path[0]], path[1:])
    )


def test_a_field_of_a_later_hyperconverged_is_never_denied_at_admission():
    """The API server has dropped the fields that it does not know,
    so a field that it sends exists.
    """
    hco = {
        "apiVersion": "hco.kubevirt.io/v1",
        "kind": "HyperConverged",
        "metadata": {"name": "a", "namespace": "b"},
    }
    assert never_break_world.ask({**hco, "spec": {"laterField": {}}}) == {"allowed": True}
    assert "hco-field-wrong-version" in load_rules().by_id  # check still asks it
