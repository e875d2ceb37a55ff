"""The policy file: what it says, what it refuses, and the schema that editors get."""

import datetime
import json
import os

import jsonschema
import pytest
import yaml

from tests.for_each import for_each
from virt_admit.cli.commands.rules import policy_schema
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.parser import load, parse, shipped
from virt_admit.policy.policy import SHIPPED, PolicyError
from virt_admit.rule import Action
from virt_admit.rules import load_rules
from virt_admit.serving.reload import Reloaded

RULES = load_rules()
EXAMPLE = """\
apiVersion: virt-admit.io/v1alpha1
kind: Policy
extends: default
rules:
  vm-live-migrate-not-migratable: {action: deny}
  condition-timeout-too-short: {action: warn, params: {shortest: 90s}}
  vm-eviction-strategy-default: {fix: true, params: {always: false}}
namespaces:
- {match: ["dev-*"], rules: {"*": {action: audit}}}
exempt:
  users: [{match: "system:serviceaccount:openshift-mtv:*", rules: ["*"], reason: "imports are judged by scan"}]
  namespaces: [{match: "kube-*", rules: ["*"], reason: "not ours", until: 2027-01-31}]
  annotations: [nm-vm-blocks-drain]
"""  # noqa: E501


def decide(read, rule, namespace="prod"):
    return read.decide(RULES.by_id[rule], namespace)


def test_the_documented_example():
    read = parse(EXAMPLE.encode(), RULES)
    assert decide(read, "vm-live-migrate-not-migratable").action is Action.DENY
    assert decide(read, "vm-live-migrate-not-migratable", "dev-1").action is Action.AUDIT
    short = decide(read, "condition-timeout-too-short")
    assert (short.action, short.params.shortest) == (Action.WARN, 90 * 10**9)
    assert decide(read, "vm-running-and-run-strategy").action is Action.DENY
    assert decide(read, "vm-eviction-strategy-default").fix
    assert [each.until for each in read.namespaces] == [datetime.date(2027, 1, 31)]
    assert "system:serviceaccount:{kubevirt}:kubevirt-controller" in [
        each.match for each in read.users
    ]


def test_a_parameter_of_several_parts():
    text = (
        b"rules: {vm-takes-failover-capacity: {params: {tolerate: {nodes: 2, reserve: 25%}, count: "
        b"everything}}}"
    )
    params = decide(parse(text, RULES), "vm-takes-failover-capacity").params
    assert (params.tolerate.nodes, params.tolerate.zones, params.tolerate.reserve) == (2, 0, 25)
    assert (params.count, params.short) == ("everything", "audit")


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ("{tolerate: {hosts: 1}}", "must be a map with some of nodes, zones, reserve"),
        ("{tolerate: 1}", "must be a map with some of nodes, zones, reserve"),
        ("{tolerate: {reserve: 200%}}", "must be a percentage from 0% to 100%"),
        ("{tolerate: {nodes: many}}", "must be an integer"),
        ("{count: vm}", "must be one of vms, everything; did you mean vms?"),
    ],
)
def test_parameters_that_are_not_valid(params, problem):
    with pytest.raises(PolicyError, match=problem):
        parse(f"rules: {{vm-takes-failover-capacity: {{params: {params}}}}}".encode(), RULES)


@for_each("rule", list(RULES), lambda rule: rule.id)
def test_shipped_policies(rule):
    default, audit, strict = (
        decide(load(name, RULES), rule.id) for name in ("default", "audit", "strict")
    )
    assert default.action is rule.action
    assert audit.action is min(rule.action, Action.AUDIT)
    assert not audit.fix
    denies = ("vm-running-deprecated", "vm-live-migrate-not-migratable", "vm-pinned-to-one-node")
    stricter = dict.fromkeys(denies, Action.DENY) | {"vm-takes-failover-capacity": Action.WARN}
    assert strict.action is stricter.get(rule.id, rule.action)


@pytest.mark.parametrize(
    ("user", "rule", "left_alone"),
    [
        ("system:node:worker-1", "node-cordon-blocked-by-vms", True),
        ("system:node:worker-1", "nm-vm-blocks-drain", False),
        (
            "system:serviceaccount:openshift-machine-api:machineset-controller",
            "machine-delete-blocked-by-vms",
            True,
        ),
        ("alice", "node-cordon-blocked-by-vms", False),
    ],
)
def test_who_is_left_alone_out_of_the_box(user, rule, left_alone):
    found = load("default", RULES).exempt(RULES.by_id[rule], user, "", Object({}))
    assert (found is not None) is left_alone


def test_a_file_that_names_no_base_extends_the_default():
    assert decide(parse(b"rules: {}", RULES), "vm-running-and-run-strategy").action is Action.DENY
    assert (
        decide(parse(b"extends: audit", RULES), "vm-running-and-run-strategy").action
        is Action.AUDIT
    )


def test_a_plain_off_is_a_word():
    read = parse(b"rules: {vm-running-deprecated: {action: off}}", RULES)
    assert decide(read, "vm-running-deprecated").action is Action.OFF


@for_each(
    "text, says",
    [
        ("- a", "p.yaml:1:1: a list"),
        ("a: [", "p.yaml:1"),
        ("kind: Polcy", "p.yaml:1: kind: must be Policy"),
        ("apiVersion: v1", "p.yaml:1: apiVersion: must be virt-admit.io/v1alpha1"),
        ("ruels: {}", "p.yaml:1: ruels: unknown key; did you mean rules?"),
        ("rules: [a]", "p.yaml:1: rules: must be a map"),
        ("rules:\n  nope: {}", "p.yaml:2: rules.nope: there is no rule nope"),
        ("rules:\n  'zz-*': {}", "no rule matches zz-*"),
        (
            "rules:\n  vm-running-deprecated: {fix: 1}",
            "p.yaml:2: rules.vm-running-deprecated.fix: must be true or false",
        ),
        ("rules:\n  '*': {params: {a: 1}}", "belong to one rule"),
        (
            "rules:\n  condition-timeout-too-short: {params: {shorter: 1s}}",
            "unknown key; did you mean shortest?",
        ),
        ("rules:\n  condition-timeout-too-short: {params: {shortest: 5}}", "shortest: "),
        (
            "rules:\n  vm-eviction-strategy-default: {params: {always: 1}}",
            "always: must be true or false",
        ),
        ("namespaces: {}", "namespaces: must be a list"),
        ("namespaces: [{rules: {}}]", "must name at least one namespace"),
        ("exempt: {users: [{match: a, rules: ['*']}]}", "reason: is required"),
        ("exempt: {users: [{match: a, reason: b}]}", 'rules: is required; ["*"] means all'),
        (
            (
                "exempt: {users: [{match: 'system:serviceaccount:{kubvirt}:a', reason: b, rules: "
                "['*']}]}"
            ),
            "unknown placeholder {kubvirt}; did you mean {kubevirt}?",
        ),
        (
            "exempt: {users: [{match: a, reason: b, rules: ['*'], until: 31.1.2027}]}",
            "must be a date as 2027-01-31",
        ),
        (
            "exempt: {users: [{match: a, reason: b, rules: ['*'], until: 2027-02-31}]}",
            "must be a date as 2027-01-31",
        ),
        ("exempt: {annotations: [nope]}", "there is no rule nope"),
        ("rules: {}\nrules: {}", "duplicate key, first in line 1"),
        ("rules: {}\n---\nrules: {}", "expected one document"),
        ("", "expected one document"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, says):
    with pytest.raises(PolicyError) as refused:
        parse(text.encode(), RULES, "p.yaml")
    assert says in str(refused.value)


def test_every_problem_is_said_at_once():
    with pytest.raises(PolicyError) as refused:
        parse(b"kind: X\nextends: y\nrules: {nope: {}}", RULES)
    assert len(refused.value.problems) == 3


class TestSchema:
    schema = jsonschema.Draft202012Validator(policy_schema(RULES))

    def test_it_is_one(self):
        self.schema.check_schema(self.schema.schema)

    @pytest.mark.parametrize("name", SHIPPED)
    def test_shipped_policies_fit(self, name):
        self.schema.validate(yaml.safe_load(shipped(name)))

    def test_the_example_fits(self):
        data = yaml.safe_load(EXAMPLE)
        data["exempt"]["namespaces"][0]["until"] = "2027-01-31"  # YAML 1.1 makes it a date
        self.schema.validate(json.loads(json.dumps(data)))

    @pytest.mark.parametrize(
        "data",
        [
            {"ruels": {}},
            {"extends": "strikt"},
            {"rules": {"nope": {}}},
            {"rules": {"vm-running-deprecated": {"action": "denied"}}},
            {"rules": {"condition-timeout-too-short": {"params": {"shortest": 5}}}},
            {"exempt": {"users": [{"match": "a", "rules": ["*"]}]}},
        ],
    )
    def test_mistakes_do_not(self, data):
        with pytest.raises(jsonschema.ValidationError):
            self.schema.validate(data)


class TestReload:
    def test_a_renamed_file_is_in_force_at_the_next_use(self, tmp_path):
        file = tmp_path / "policy.yaml"
        file.write_text("extends: audit")
        source = Reloaded(lambda path: parse(path.read_bytes(), RULES), file)
        for name in ("strict", "audit", "default", "strict"):
            new = tmp_path / "new"
            new.write_text(f"extends: {name}")
            os.replace(new, file)
            wanted = decide(load(name, RULES), "vm-running-deprecated").action
            assert decide(source(), "vm-running-deprecated").action is wanted

    def test_a_broken_file_leaves_the_last_good_one_in_force(self, tmp_path):
        file = tmp_path / "policy.yaml"
        file.write_text("extends: strict")
        failures = []
        source = Reloaded(lambda path: parse(path.read_bytes(), RULES), file, failures.append)
        file.write_text("extends: nonsense")
        for _ in range(3):
            assert decide(source(), "vm-running-deprecated").action is Action.DENY
        assert len(failures) == 1
        file.unlink()
        assert decide(source(), "vm-running-deprecated").action is Action.DENY
        file.write_text("extends: audit")
        assert decide(source(), "vm-running-deprecated").action is Action.AUDIT
        assert source.error is None
