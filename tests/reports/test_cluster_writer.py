"""What a scan writes into a cluster: Events, and reports, which it also deletes."""

from __future__ import annotations

import datetime
import json
import re
from types import SimpleNamespace

import pytest

from tests.fake_api import FakeApi, path_of
from tests.https.reviews import vm
from tests.reports.test_policy_reports import NOW, RULE, RULES, SECONDS, UID, both_keys, judged
from virt_admit.install import manifests
from virt_admit.kube import client
from virt_admit.kube.client import PATIENCE, ApiError
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports import cluster_writer
from virt_admit.reports.findings.formats import policy_reports
from virt_admit.reports.findings.formats.policy_reports import MAX_MESSAGE, OPENREPORTS
from virt_admit.reports.findings.report import Report

# --- Events


def events_of(*objects, **how):
    return [event for one in judged(*objects, **how) for event in cluster_writer.events(one, NOW)]


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
        (
            b"exempt: {namespaces: [{match: shop, rules: ['*'], reason: ours, at_most: warn}]}",
            False,
        ),
    ],
)
def test_what_is_worth_an_event(text, there):
    assert any(RULE in each["message"] for each in events_of(both_keys(), text=text)) == there


def test_reasons_are_those_of_rules_that_there_are():
    reasons = {rule.event for rule in RULES}
    assert reasons == {
        "DrainBlocked",
        "FenceTaintLeft",
        "MigrationImpossible",
        "RemediationLoop",
        "PolicyFinding",
        "NoFailover",
        "RemediationRefused",
        "NodeNotReporting",
        "WebhookBundleExpired",
        "WebhookWithoutEndpoint",
        "UpdateHeld",
        "DeletionHeld",
        "NodeRebootHeld",
        "NodeCordonStays",
        "MachineHealthStale",
        "MachineWithoutNode",
        "NodeUninitialized",
        "NodeWithoutPool",
    }
    assert all(re.fullmatch("([A-Z][a-z]+)+", reason) for reason in reasons)


def test_a_drain_that_is_blocked_is_called_so():
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    stuck = vm(
        "db",
        "shop",
        runStrategy="Always",
        template={"evictionStrategy": "LiveMigrate", "volumes": volumes},
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    found = {each["reason"] for each in events_of(stuck, cluster=[claim])}
    assert "DrainBlocked" in found


def test_a_message_has_room():
    event = cluster_writer._event(Object(both_keys()), RULE, "x" * 3000, NOW)
    assert MAX_MESSAGE - 3 <= len(event["message"].encode()) <= MAX_MESSAGE
    assert event["message"].endswith(f"… [virt-admit/{RULE}]")


def test_a_message_is_counted_in_bytes_as_the_api_server_does():
    """Of an Event with an ``eventTime``, which a user may have created
    (pkg/apis/core/validation/events.go).
    """
    event = cluster_writer._event(Object(both_keys()), RULE, "\U0001f600" * 600, NOW)
    assert len(event["message"].encode()) <= MAX_MESSAGE
    assert event["message"].endswith(f"\U0001f600… [virt-admit/{RULE}]")


def test_what_has_no_namespace_has_its_events_in_default():
    node = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    event = cluster_writer._event(node, RULE, "x", NOW)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


# --- writing and deleting


class Recorder:
    """An API server that keeps what is applied, by path, and refuses what a test wants refused."""

    def __init__(self, objects=(), refuse=None):
        self.objects = dict(objects)
        self.refuse = refuse or {}
        self.full = "-"
        """A namespace whose quota is used up."""
        self.status = 403
        self.trap = "-"
        """The name of an object that is not valid after any change."""
        self.calls = []

    def _call(self, verb, path):
        self.calls.append((verb, path))
        if verb in self.refuse:
            raise self.refuse[verb]
        if verb != "list" and f"/namespaces/{self.full}/" in f"{path}/":
            raise ApiError(self.status, "exceeded quota: team, requested: count/events=1")
        if path.endswith(f"/{self.trap}"):
            raise ApiError(422, "message: can have at most 1024 bytes")

    def list(self, path, query):
        self._call("list", path)
        assert query == {"labelSelector": "app.kubernetes.io/managed-by=virt-admit"}
        group, _, plural = path.rpartition("/")
        return [
            obj
            for key, obj in self.objects.items()
            if key.startswith(group) and f"/{plural}/" in key
        ]

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
    cluster_writer.write_reports(api, OPENREPORTS, judged(*objects), unreadable, home, SECONDS)


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
    monkeypatch.setattr(client, "PAGE", 2)
    with FakeApi() as fake:
        fake.install(
            OPENREPORTS.namespaced,
            *({"metadata": {"name": name, "namespace": "shop"}} for name in "abcde"),
        )
        found = client.ApiClient.connect(fake.kubeconfig(tmp_path)).list(
            path_of(OPENREPORTS.namespaced), {"labelSelector": "a=b"}
        )
        assert [obj["metadata"]["name"] for obj in found] == [*"abcde"]
        assert fake.asked(OPENREPORTS.namespaced, limit="2", labelSelector="a=b") == 3


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
def test_a_failed_write_is_named(verb, error, says, monkeypatch):
    monkeypatch.setattr(cluster_writer, "time", SimpleNamespace(sleep=lambda _: None))
    with pytest.raises(cluster_writer.NotWritten) as caught:
        write(Recorder(refuse={verb: error}), both_keys())
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("code", "tries"), [(0, PATIENCE + 1), (429, PATIENCE + 1), (503, PATIENCE + 1), (422, 1)]
)
def test_patience(code, tries, monkeypatch):
    waits = []
    # other threads sleep too
    monkeypatch.setattr(cluster_writer, "time", SimpleNamespace(sleep=waits.append))
    api = Recorder(refuse={"list": ApiError(code, "busy")})
    with pytest.raises(cluster_writer.NotWritten, match=r"cannot list .*: busy"):
        write(api)
    assert (len(api.calls), len(waits)) == (tries, tries - 1)
    assert 0 <= sum(waits) < 10


def test_a_report_that_may_not_be_deleted():
    api = Recorder()
    write(api, both_keys())
    api.refuse = {"delete": ApiError(403, "no")}
    with pytest.raises(cluster_writer.NotWritten, match="cannot delete"):
        write(api)
    api.refuse = {"delete": ApiError(404, "gone")}
    write(api)


@pytest.mark.parametrize(
    "error", [ApiError(404, "x"), ApiError(403, "namespace shop … it is being terminated")]
)
def test_a_namespace_that_goes_meanwhile_stops_nothing(error):
    api = Recorder(refuse={"patch": error, "post": error})
    write(api, both_keys())
    cluster_writer.write_events(api, judged(both_keys()), NOW)
    assert not api.objects


def test_an_event_is_used_again():
    api = Recorder()
    cluster_writer.write_events(api, judged(both_keys()), NOW)
    first = {path: dict(event) for path, event in api.objects.items()}
    later = NOW + datetime.timedelta(hours=1)
    cluster_writer.write_events(api, judged(both_keys()), later)
    assert first.keys() == api.objects.keys()
    for path, event in api.objects.items():
        assert event == first[path] | {"lastTimestamp": "2026-11-21T05:00:00Z"}


def test_an_event_that_is_refused():
    api = Recorder(refuse={"patch": ApiError(403, "no")})
    with pytest.raises(
        cluster_writer.NotWritten, match=r"cannot write events shop/virt-admit\.[0-9a-f]+: no"
    ):
        cluster_writer.write_events(api, judged(both_keys()), NOW)


def in_namespace(name):
    obj = both_keys(name, UID[:-2] + name[-2:])
    return obj | {"metadata": obj["metadata"] | {"namespace": name}}


def write_events(api, *objects):
    cluster_writer.write_events(api, judged(*objects), NOW)


@pytest.mark.parametrize(("what", "writes"), [("reports", write), ("events", write_events)])
def test_a_namespace_that_refuses_hides_no_other(what, writes):
    api, objects = Recorder(), (in_namespace("a1"), in_namespace("b2"), in_namespace("c3"))
    api.full = "b2"
    with pytest.raises(
        cluster_writer.WriteRefused, match=rf"cannot write {what}.* b2/.*: exceeded quota"
    ):
        writes(api, *objects)
    assert {path.split("/namespaces/")[1].partition("/")[0] for path in api.objects} == {"a1", "c3"}


@pytest.mark.parametrize(
    ("status", "written"), [(422, {"a1", "c3"}), (500, {"a1", "c3"}), (413, {"a1", "c3"})]
)
@pytest.mark.parametrize(("what", "writes"), [("reports", write), ("events", write_events)])
def test_an_object_that_is_not_valid_hides_no_other(what, writes, status, written, monkeypatch):
    """A user may create an Event with the name of ours, of a kind that is not changed like this,
    or a huge object.
    """
    monkeypatch.setattr(cluster_writer, "time", SimpleNamespace(sleep=lambda _: None))
    api, objects = Recorder(), (in_namespace("a1"), in_namespace("b2"), in_namespace("c3"))
    api.full, api.status = "b2", status
    with pytest.raises(cluster_writer.WriteRefused, match=rf"cannot write {what}.* b2/"):
        writes(api, *objects)
    assert {path.split("/namespaces/")[1].partition("/")[0] for path in api.objects} == written


def test_one_event_that_is_not_valid_hides_none_of_its_namespace():
    """Events about nodes are in the namespace ``default``, where users may create others."""
    bodies = [event["metadata"]["name"] for event in events_of(both_keys(), in_namespace("b2"))]
    api = Recorder()
    api.trap = bodies[0]
    with pytest.raises(cluster_writer.WriteRefused, match=bodies[0]):
        write_events(api, both_keys(), in_namespace("b2"))
    assert {path.rpartition("/")[2] for path in api.objects} == {*bodies[1:]}


# --- rights


def test_the_scan_may_write_only_with_the_component():
    verbs = {
        verb
        for obj in manifests.scan_rbac(RULES)
        for rule in obj.get("rules", ())
        for verb in rule["verbs"]
    }
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
        for kind in (form.namespaced, form.cluster)
    }
    assert [each["name"] for each in binding["subjects"]] == ["virt-admit-scan"]
