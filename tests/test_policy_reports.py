"""Findings as OpenReports, PolicyReports and Events: what they say, and what is written and deleted."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re

import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from tests.https.reviews import vm
from webhook import apiserver, cli, manifests, policy_reader, writing
from webhook.admission import Response
from webhook.apiserver import PATIENCE, ApiError
from webhook.formats import policy_reports
from webhook.formats.policy_reports import LONGEST, MOST, OPENREPORTS, POLICYREPORT, Result, Subject
from webhook.model.cluster import Snapshot
from webhook.model.kinds import NODE, VM
from webhook.model.objects import Object
from webhook.report import Report
from webhook.rules import load_rules
from webhook.verbs.scan import judge

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
    return judge(there, kinds, RULES, policy_reader.parse(text, RULES)).judged


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
    assert summary == {name: [each["result"] for each in results].count(name) for name in policy_reports.OUTCOMES}
    assert summary["fail"] >= 1
    assert summary["pass"] > 10


def test_each_rule_that_judged_it_is_there_and_no_other():
    (one,) = judged(both_keys(), text=b"rules: {vm-running-deprecated: {action: 'off'}}")
    made, _ = only(one)
    said = {each["policy"] for each in made["results"]}
    assert said == {rule.id for rule in one.asked}
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


def test_blind_and_broken_rules():
    (one,) = judged(both_keys())
    rule, other = one.asked[:2]
    response = Response(unseen=((rule, "pods a/b"),), errors=((other, "KeyError()"),))
    blind = dataclasses.replace(one, response=response)
    results = {each.rule: each.outcome for each in policy_reports.subject(blind).results}
    assert (results.pop(rule.id), results.pop(other.id)) == ("skip", "error")
    assert set(results.values()) == {"pass"}


def test_severities_are_those_that_every_definition_knows():
    (one,) = judged(both_keys())
    every = dataclasses.replace(one, asked=tuple(RULES), response=Response())
    assert {each.severity for each in policy_reports.subject(every).results} == {"high", "medium", "low"}


def test_when_is_said_only_where_it_is_given():
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
    assert made["apiVersion"] == form.home.api_version


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
    many = [Result("pass", f"r{number}", "low") for number in range(MOST)]
    worst = Result("fail", "z", "high", "x" * 5000 + "\n", "spec.a")
    made = policy_reports.report(OPENREPORTS, Subject(Object(both_keys()), True, (*many, worst)))
    assert made["results"][0]["policy"] == "z"
    assert len(made["results"][0]["message"]) == LONGEST
    assert len(made["results"]) == MOST
    assert made["summary"] == {"fail": 1, "warn": 0, "error": 0, "skip": 0, "pass": MOST}


def test_names_that_no_api_server_would_take_can_be_printed():
    strange = both_keys("a\ud800\nb", uid=None)
    policy_reports.render(OPENREPORTS, Report(judged(strange))).encode()


@pytest.mark.parametrize("form", policy_reports.WRITTEN)
def test_of_files(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, manifest in {"b": both_keys("b"), "a": vm("a", "shop", running=True, runStrategy="Always")}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(manifest))
    run = CliRunner()
    first = run.invoke(cli.virt_admit, ["check", ".", "-o", form]).stdout
    made = json.loads(first)
    assert [each["scope"]["name"] for each in made["items"]] == ["a", "b"]
    assert all(each["summary"]["fail"] for each in made["items"])
    assert "timestamp" not in first
    assert run.invoke(cli.virt_admit, ["check", "b.json", "a.json", "-o", form]).stdout == first


# --- Events


def events_of(*objects, **how):
    return [event for one in judged(*objects, **how) for event in writing.events(one, NOW)]


def test_an_event():
    (event,) = [each for each in events_of(both_keys()) if f"/{RULE}]" in each["message"]]
    assert event["metadata"]["namespace"] == "shop"
    assert event["involvedObject"] == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "namespace": "shop",
        "name": "db",
        "uid": UID,
    }
    assert (event["type"], event["reason"]) == ("Warning", "PolicyFinding")
    assert event["message"].startswith("spec.running: ")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-11-21T04:00:00Z"


def test_one_event_for_each_rule_and_object():
    found = events_of(both_keys(), both_keys("other", UID[:-1] + "2"))
    names = [each["metadata"]["name"] for each in found]
    assert len(set(names)) == len(names) >= 2
    assert all(re.fullmatch(r"virt-admit\.[0-9a-f]{16}", name) for name in names)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (b"rules: {vm-running-and-run-strategy: {action: warn}}", True),
        (b"rules: {vm-running-and-run-strategy: {action: audit}}", False),
        (b"exempt: {namespaces: [{match: shop, rules: ['*'], reason: ours, at_most: warn}]}", False),
    ],
)
def test_what_is_worth_an_event(text, there):
    assert any(RULE in each["message"] for each in events_of(both_keys(), text=text)) == there


def test_reasons_are_those_of_rules_that_there_are():
    named = [rule for rules in writing.REASONS.values() for rule in rules]
    assert len(set(named)) == len(named)
    assert set(named) <= RULES.by_id.keys()
    for reason in (*writing.REASONS, writing.OTHERS):
        assert re.fullmatch("([A-Z][a-z]+)+", reason)


def test_a_drain_that_is_blocked_is_called_so():
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    stuck = vm("db", "shop", runStrategy="Always", template={"evictionStrategy": "LiveMigrate", "volumes": volumes})
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    found = {each["reason"] for each in events_of(stuck, cluster=[claim])}
    assert "DrainBlocked" in found


def test_a_message_has_room():
    event = writing._event(Object(both_keys()), RULE, "x" * 3000, NOW)
    assert len(event["message"]) == LONGEST
    assert event["message"].endswith(f"… [virt-admit/{RULE}]")


def test_what_has_no_namespace_has_its_events_in_default():
    node = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    event = writing._event(node, RULE, "x", NOW)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


# --- writing


class Recorder:
    """An API server that keeps what is applied, by path, and refuses what a test wants refused."""

    def __init__(self, objects=(), refuse=None):
        self.objects = dict(objects)
        self.refuse = refuse or {}
        self.calls = []

    def _call(self, verb, path):
        self.calls.append((verb, path))
        if verb in self.refuse:
            raise self.refuse[verb]

    def list(self, path, query):
        self._call("list", path)
        assert query == {"labelSelector": "app.kubernetes.io/managed-by=virt-admit"}
        group, _, plural = path.rpartition("/")
        return [obj for key, obj in self.objects.items() if key.startswith(group) and f"/{plural}/" in key]

    def patch(self, path, kind, body, query=None):
        self._call("patch", path)
        if kind == "merge-patch+json":
            if path not in self.objects:
                raise ApiError(404, "not found")
            self.objects[path] |= body
        else:
            assert query == {"fieldManager": "virt-admit-scan", "force": "true"}
            self.objects[path] = body

    def post(self, path, body):
        self._call("post", path)
        self.objects[f"{path}/{body['metadata']['name']}"] = body

    def delete(self, path):
        self._call("delete", path)
        self.objects.pop(path)


ROOT = "/apis/openreports.io/v1alpha1"


def write(api, *objects, unreadable=frozenset(), home=""):
    writing.write_reports(api, OPENREPORTS, judged(*objects), unreadable, home, SECONDS)


def test_reports_are_written_and_those_of_objects_that_are_gone_deleted():
    api = Recorder()
    write(api, both_keys())
    assert api.objects.keys() == {f"{ROOT}/namespaces/shop/reports/{UID}"}
    assert [verb for verb, _ in api.calls] == ["list", "list", "patch"]
    other = both_keys("other", UID[:-1] + "2")
    write(api, other)
    assert api.objects.keys() == {f"{ROOT}/namespaces/shop/reports/{UID[:-1]}2"}


def test_what_is_being_deleted_has_no_report():
    api = Recorder()
    write(api, both_keys())
    leaving = both_keys()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-01T10:00:00Z"
    write(api, leaving)
    assert not api.objects
    assert json.loads(policy_reports.render(OPENREPORTS, Report(judged(leaving))))["items"] == []


def test_our_reports_are_listed_page_by_page(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(apiserver, "PAGE", 2)
    with FakeApi() as fake:
        fake.install(OPENREPORTS.home, *({"metadata": {"name": name, "namespace": "shop"}} for name in "abcde"))
        found = apiserver.Api.connect(fake.kubeconfig(tmp_path)).list(
            path_of(OPENREPORTS.home), {"labelSelector": "a=b"}
        )
        assert [obj["metadata"]["name"] for obj in found] == [*"abcde"]
        assert fake.asked(OPENREPORTS.home, limit="2", labelSelector="a=b") == 3


def test_what_could_not_be_read_keeps_its_reports():
    api = Recorder()
    write(api, both_keys())
    write(api, unreadable=frozenset((VM.resource,)))
    assert len(api.objects) == 1
    write(api)
    assert not api.objects


def test_one_namespace_alone():
    api = Recorder()
    write(api, both_keys(), home="shop")
    assert ("list", f"{ROOT}/namespaces/shop/reports") in api.calls
    assert not any("clusterreports" in path for _, path in api.calls)


@pytest.mark.parametrize(
    ("verb", "error", "says"),
    [
        ("list", ApiError(404, "page not found"), "reports.openreports.io is not installed"),
        ("list", ApiError(403, "no"), "cannot list reports.openreports.io: no"),
        ("patch", ApiError(403, "no"), f"cannot write reports.openreports.io shop/{UID}: no"),
        ("patch", ApiError(0, "away"), f"cannot write reports.openreports.io shop/{UID}: away"),
    ],
)
def test_what_goes_wrong_is_said(verb, error, says, monkeypatch):
    monkeypatch.setattr(writing.time, "sleep", lambda _: None)
    with pytest.raises(writing.NotWritten) as caught:
        write(Recorder(refuse={verb: error}), both_keys())
    assert str(caught.value) == says


@pytest.mark.parametrize(("code", "tries"), [(0, PATIENCE + 1), (429, PATIENCE + 1), (503, PATIENCE + 1), (422, 1)])
def test_patience(code, tries, monkeypatch):
    waits = []
    monkeypatch.setattr(writing.time, "sleep", waits.append)
    api = Recorder(refuse={"list": ApiError(code, "busy")})
    with pytest.raises(writing.NotWritten, match=r"cannot list .*: busy"):
        write(api)
    assert (len(api.calls), len(waits)) == (tries, tries - 1)
    assert 0 <= sum(waits) < 10


def test_a_report_that_may_not_be_deleted():
    api = Recorder()
    write(api, both_keys())
    api.refuse = {"delete": ApiError(403, "no")}
    with pytest.raises(writing.NotWritten, match="cannot delete"):
        write(api)
    api.refuse = {"delete": ApiError(404, "gone")}
    write(api)


@pytest.mark.parametrize("error", [ApiError(404, "x"), ApiError(403, "namespace shop … it is being terminated")])
def test_a_namespace_that_goes_meanwhile_stops_nothing(error):
    api = Recorder(refuse={"patch": error, "post": error})
    write(api, both_keys())
    writing.write_events(api, judged(both_keys()), NOW)
    assert not api.objects


def test_an_event_is_used_again():
    api = Recorder()
    writing.write_events(api, judged(both_keys()), NOW)
    first = {path: dict(event) for path, event in api.objects.items()}
    later = NOW + datetime.timedelta(hours=1)
    writing.write_events(api, judged(both_keys()), later)
    assert first.keys() == api.objects.keys()
    for path, event in api.objects.items():
        assert event == first[path] | {"lastTimestamp": "2026-11-21T05:00:00Z"}


def test_an_event_that_is_refused():
    api = Recorder(refuse={"patch": ApiError(403, "no")})
    with pytest.raises(writing.NotWritten, match=r"cannot write events shop/virt-admit\.[0-9a-f]+: no"):
        writing.write_events(api, judged(both_keys()), NOW)


# --- rights


def test_the_scan_may_write_only_with_the_component():
    verbs = {verb for obj in manifests.scan_rbac(RULES) for rule in obj.get("rules", ()) for verb in rule["verbs"]}
    assert verbs == {"get", "list"}
    role, binding = manifests.reports_rbac()
    kinds = {
        (group, plural): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    write = {"list", "create", "patch", "delete"}
    assert kinds.pop(("", "events")) == {"create", "patch"}
    assert kinds == {
        (kind.group, kind.plural): write
        for form in policy_reports.WRITTEN.values()
        for kind in (form.home, form.cluster)
    }
    assert [each["name"] for each in binding["subjects"]] == ["virt-admit-scan"]
