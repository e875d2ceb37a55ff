"""Findings as OpenReports and PolicyReports: what they say."""

from __future__ import annotations

import datetime
import json
import re

import pytest
from click.testing import CliRunner

from tests.https.reviews import vm
from virt_admit.cli import main
from virt_admit.engine.admission_review import Response
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.reports.findings.formats import policy_reports
from virt_admit.reports.findings.formats.policy_reports import (
    MAX_MESSAGE,
    MAX_RESULTS,
    OPENREPORTS,
    POLICYREPORT,
    PolicyResult,
    Subject,
)
from virt_admit.reports.findings.judging import judge
from virt_admit.reports.findings.report import Report
from virt_admit.rules import load_rules

RULES = load_rules()
RULE = "vm-running-and-run-strategy"
UID = "0a1b2c3d-0000-4000-8000-000000000001"
NOW = datetime.datetime(2026, 11, 21, 4, 0, tzinfo=datetime.UTC)
SECONDS = int(NOW.timestamp())


def both_keys(name="db", uid=UID):
    """A machine with both keys, as the API server would return it: denied."""
    obj = vm(name, "shop", running=True, runStrategy="Always")
    return {**obj, "metadata": {**obj["metadata"], "uid": uid}}


def judged(*objects, text=b"{}", kinds=(VM,), cluster=()):
    """What a scan says of these objects under this policy."""
    there = Snapshot(map(Object, (*objects, *cluster)), complete=["*"])
    return judge(there, kinds, RULES, parser.parse(text, RULES)).results


def only(one, rule=RULE, form=OPENREPORTS, seconds=None):
    """The report, and its results of one rule."""
    made = policy_reports.report(form, policy_reports.subject(one), seconds)
    return made, [each for each in made["results"] if each["policy"] == rule]


# --- what a report says


def test_a_report():
    (one,) = judged(both_keys())
    made, (result,) = only(one)
    (verdict,) = [each for each in one.response.verdicts if each.rule.id == RULE]
    results, summary = made.pop("results"), made.pop("summary")
    who = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "db", "uid": UID}
    assert made == {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {
            "name": UID,
            "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "virt-admit"},
            "ownerReferences": [who],
        },
        "scope": {**who, "namespace": "shop"},
    }
    assert result == {
        "source": "virt-admit",
        "policy": RULE,
        "result": "fail",
        "severity": "high",
        "message": verdict.finding.message,
        "properties": {"path": "spec.running"},
    }
    assert summary == {
        name: [each["result"] for each in results].count(name) for name in policy_reports.OUTCOMES
    }
    assert summary["fail"] >= 1
    assert summary["pass"] > 10


def test_each_rule_that_judged_it_is_there_and_no_other():
    (one,) = judged(both_keys(), text=b"rules: {vm-running-deprecated: {action: 'off'}}")
    made, _ = only(one)
    said = {each["policy"] for each in made["results"]}
    assert said == {rule.id for rule in one.response.evaluated_rules}
    assert "vm-running-deprecated" not in said
    assert not any(name.startswith("mhc-") for name in said)


@pytest.mark.parametrize(
    ("text", "result", "severity"),
    [
        (b"{}", "fail", "high"),
        (b"rules: {vm-running-and-run-strategy: {action: warn}}", "warn", "medium"),
        (b"rules: {vm-running-and-run-strategy: {action: audit}}", "warn", "low"),
        (b"exempt: {namespaces: [{match: shop, rules: ['*'], reason: ours}]}", "skip", "high"),
    ],
)
def test_results(text, result, severity):
    (found,) = only(*judged(both_keys(), text=text))[1]
    assert (found["result"], found["severity"]) == (result, severity)
    assert found["message"].endswith(" (exempt: ours)") == (result == "skip")


def test_rules_without_data_and_crashed_rules():
    (one,) = judged(both_keys())
    rule, other = one.response.evaluated_rules[:2]
    unseen, errors = ((rule, "pods a/b"),), ((other, "KeyError()"),)
    response = Response(unseen=unseen, errors=errors, evaluated_rules=one.response.evaluated_rules)
    result = one._replace(response=response)
    results = {each.rule: each.outcome for each in policy_reports.subject(result).results}
    assert (results.pop(rule.id), results.pop(other.id)) == ("skip", "error")
    assert set(results.values()) == {"pass"}


def test_severities_are_those_that_every_definition_knows():
    (one,) = judged(both_keys())
    every = one._replace(response=Response(evaluated_rules=tuple(RULES)))
    assert {each.severity for each in policy_reports.subject(every).results} == {
        "high",
        "medium",
        "low",
    }


def test_the_timestamp_is_optional():
    (one,) = judged(both_keys())
    assert only(one, seconds=SECONDS)[1][0]["timestamp"] == {"seconds": SECONDS, "nanos": 0}
    assert "timestamp" not in json.dumps(only(one)[0])


@pytest.mark.parametrize(
    ("form", "kind", "of", "is_"),
    [
        (OPENREPORTS, "Report", VM, both_keys()),
        (POLICYREPORT, "PolicyReport", VM, both_keys()),
        (
            OPENREPORTS,
            "ClusterReport",
            NODE,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": UID}},
        ),
        (
            POLICYREPORT,
            "ClusterPolicyReport",
            NODE,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": UID}},
        ),
    ],
)
def test_kinds(form, kind, of, is_):
    made, _ = only(*judged(is_, kinds=(of,)), form=form)
    assert (made["kind"], "namespace" in made["metadata"]) == (kind, of.namespaced)
    assert made["apiVersion"] == form.namespaced.api_version


@pytest.mark.parametrize("uid", [None, "", 7, "UPPER", "a/b", "x" * 64])
def test_without_a_uid_it_is_named_by_who_it_is(uid):
    made = only(*judged(both_keys(uid=uid)))[0]
    again = only(*judged(both_keys(uid=uid)))[0]
    other = only(*judged(both_keys("other", uid=uid)))[0]
    assert re.fullmatch("[0-9a-f]{32}", made["metadata"]["name"])
    assert made["metadata"]["name"] == again["metadata"]["name"] != other["metadata"]["name"]
    assert "ownerReferences" not in made["metadata"]
    assert "uid" not in made["scope"]


def test_the_worst_come_first_and_not_without_end():
    many = [PolicyResult("pass", f"r{number}", "low") for number in range(MAX_RESULTS)]
    worst = PolicyResult("fail", "z", "high", "x" * 5000 + "\n", "spec.a")
    made = policy_reports.report(OPENREPORTS, Subject(Object(both_keys()), True, (*many, worst)))
    assert made["results"][0]["policy"] == "z"
    assert len(made["results"][0]["message"]) == MAX_MESSAGE
    assert len(made["results"]) == MAX_RESULTS
    assert made["summary"] == {"fail": 1, "warn": 0, "error": 0, "skip": 0, "pass": MAX_RESULTS}


def test_a_report_is_small_enough_for_etcd():
    """It refuses objects of more than 1.5 MiB, with status 500."""
    long = "\U0001f600" * 2000
    many = [
        PolicyResult("warn", f"r{number}", "low", long, long, long) for number in range(MAX_RESULTS)
    ]
    made = policy_reports.report(OPENREPORTS, Subject(Object(both_keys()), True, many), SECONDS)
    assert 900_000 < len(json.dumps(made, ensure_ascii=False).encode()) < 1_400_000
    assert made["summary"]["warn"] == MAX_RESULTS


def test_names_that_no_api_server_would_take_can_be_printed():
    strange = both_keys("a\ud800\nb", uid=None)
    policy_reports.render(OPENREPORTS, Report(judged(strange))).encode()


@pytest.mark.parametrize("form", policy_reports.WRITTEN)
def test_of_files(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, manifest in {
        "b": both_keys("b"),
        "a": vm("a", "shop", running=True, runStrategy="Always"),
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(manifest))
    run = CliRunner()
    first = run.invoke(main.virt_admit, ["check", ".", "-o", form]).stdout
    made = json.loads(first)
    assert [each["scope"]["name"] for each in made["items"]] == ["a", "b"]
    assert all(each["summary"]["fail"] for each in made["items"])
    assert "timestamp" not in first
    assert run.invoke(main.virt_admit, ["check", "b.json", "a.json", "-o", form]).stdout == first
