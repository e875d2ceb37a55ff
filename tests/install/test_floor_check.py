"""The doctor and the floor: what is installed,
against what the policy of the cluster would export.
"""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from tests.install.installation import (
    DEPLOYMENT,
    MUTATING,
    POLICY,
    RULES,
    VALIDATING,
    Cluster,
    change,
)
from virt_admit.cli.commands.rules import page
from virt_admit.cli.main import virt_admit
from virt_admit.install import policies
from virt_admit.install.doctor import exit_code
from virt_admit.install.inspect import Unreadable
from virt_admit.install.observations import Status
from virt_admit.policy.parser import load

GROUP = "/apis/admissionregistration.k8s.io/v1"
LABEL = "app.kubernetes.io/component=floor"
POLICIES = f"{GROUP}/validatingadmissionpolicies?{LABEL}"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings?{LABEL}"
RULE = "virt-admit-vm-running-and-run-strategy"


@pytest.fixture
def cluster():
    """A cluster with the floor of the policy ``default``."""
    found = Cluster()
    objects = policies.policies(RULES.at_admission, load("default", RULES))
    found.objects[POLICIES] = {
        "items": [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    }
    found.objects[BINDINGS] = {
        "items": [each for each in objects if each["kind"] != "ValidatingAdmissionPolicy"]
    }
    return found


def said(cluster):
    return [(each.status, each.text) for each in cluster.diagnose() if each.topic == "floor"]


def items(cluster, path=POLICIES):
    return {each["metadata"]["name"]: each for each in cluster.objects[path]["items"]}


def test_without_a_floor_nothing_is_said():
    assert said(Cluster()) == []


def test_the_floor_of_the_policy_in_force_is_sound(cluster):
    ((status, text),) = said(cluster)
    assert status is Status.OK
    assert text == (
        "the floor enforces what the policy in ConfigMap virt-admit/virt-admit-policy exports: "
        f"{len(items(cluster))} rules"
    )


def test_without_a_config_map_the_built_in_policy_counts(cluster):
    del cluster.objects[POLICY]
    ((status, text),) = said(cluster)
    assert (status, "the built-in policy default" in text) == (Status.OK, True)


def test_the_floor_is_checked_before_the_webhook_is_installed(cluster):
    cluster.objects |= {VALIDATING: {"items": []}, MUTATING: {"items": []}}
    del cluster.objects[DEPLOYMENT]
    assert [status for status, _ in said(cluster)] == [Status.OK]


@pytest.mark.parametrize("path", [POLICIES, BINDINGS])
def test_a_policy_or_binding_that_is_missing(cluster, path):
    cluster.objects[path]["items"].remove(items(cluster, path)[RULE])
    ((status, text),) = said(cluster)
    assert (status, "does not enforce 1 rule" in text, "vm-running-and-run-strategy" in text) == (
        Status.WRONG,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [(POLICIES, "failurePolicy", "Fail"), (BINDINGS, "validationActions", ["Audit"])],
)
def test_a_policy_or_binding_that_differs(cluster, path, field, value):
    items(cluster, path)[RULE]["spec"][field] = value
    ((status, text),) = said(cluster)
    assert (status, "enforces differently 1 rule" in text) == (Status.WRONG, True)


def test_what_the_policy_no_longer_denies_is_left_over(cluster):
    change("extends: default\nrules: {vm-running-and-run-strategy: {action: warn}}\n", cluster)
    found = cluster.diagnose()
    (floor,) = (each for each in found if each.topic == "floor")
    assert floor.status is Status.WRONG
    assert "still enforces 1 rule" in floor.text
    assert "kubectl delete" in floor.remedy
    assert exit_code(found) == 1


def test_a_namespace_more_makes_the_floor_different(cluster):
    change(
        "extends: default\nnamespaces: [{match: [dev-*], rules: {vm-running-and-run-strategy: "
        "{action: warn}}}]\n",
        cluster,
    )
    assert ["enforces differently 1 rule" in text for _, text in said(cluster)] == [True]


@pytest.mark.parametrize("path", [POLICIES, BINDINGS, POLICY])
def test_what_cannot_be_read_is_said(cluster, path):
    cluster.objects[path] = Unreadable("GET of it is forbidden")
    assert said(cluster) == [(Status.UNKNOWN, "GET of it is forbidden")]


def test_a_policy_that_is_not_valid_exports_nothing(cluster):
    change("extends: nothing\n", cluster)
    ((status, text),) = said(cluster)
    assert (status, "the policy is not valid" in text) == (Status.UNKNOWN, True)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("vm-running-and-run-strategy", "Floor: a ValidatingAdmissionPolicy denies the same"),
        (
            "hco-jsonpatch-override",
            (
                "Floor: not exported: the patch is JSON within a text, and CEL has no function "
                "that reads JSON"
            ),
        ),
        ("vm-run-strategy-unknown", "Floor: not exported: it looks other objects up"),
    ],
)
def test_the_page_of_a_rule_that_denies_says_whether_it_is_exported(rule, line):
    assert line in page(RULES.by_id[rule]).splitlines()


def test_each_rule_that_is_not_exported_has_a_reason_and_only_those():
    assert all(policies.reason(rule) for rule in RULES if not rule.denials)
    assert [rule.id for rule in RULES if rule.denials and rule.not_in_cel] == []


def test_what_cannot_be_exported_is_said_in_a_comment_and_on_stderr(tmp_path):
    """The file may be applied without its stderr.

    A name with a line break must not end the comment.
    """
    file = tmp_path / "policy.yaml"
    exemption = {
        "match": "old\nkind: Pod",
        "rules": ["vm-*"],
        "reason": "moves",
        "until": "2027-03-31",
    }
    document = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Policy",
        "exempt": {"namespaces": [exemption]},
    }
    file.write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(
        virt_admit, ["manifests", "--part", "policies", "--policy", str(file)]
    )
    assert done.exit_code == 0, done.output
    comments = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    assert [line.removeprefix("# ") for line in comments] == done.stderr.splitlines()
    assert any("ends on 2027-03-31" in line for line in comments)
    assert {each["kind"] for each in yaml.safe_load_all(done.stdout)} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
