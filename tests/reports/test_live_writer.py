"""What the watch writes into a cluster, judgement after judgement: only what changed."""

from __future__ import annotations

import pytest

from tests.https.reviews import vm
from tests.reports.test_cluster_writer import ROOT, Recorder, in_namespace
from tests.reports.test_policy_reports import UID, both_keys, judged
from virt_admit.kube.client import ApiError
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.reports import live_writer
from virt_admit.reports.cluster_writer import NotWritten, WriteRefused
from virt_admit.reports.findings.formats.policy_reports import OPENREPORTS
from virt_admit.reports.findings.report import Report
from virt_admit.reports.live_writer import LiveWriter

PATH = f"{ROOT}/namespaces/shop/reports/{UID}"


def fixed():
    obj = both_keys()
    return {**vm("db", "shop", runStrategy="Always"), "metadata": obj["metadata"]}


@pytest.fixture
def api():
    return Recorder()


def calls(api, writer, *objects, unreadable=frozenset()):
    """Return the verbs and paths of one round."""
    api.calls.clear()
    writer.write(Report(judged(*objects)), unreadable)
    return [(verb, path) for verb, path in api.calls if verb != "list"]


def test_an_unchanged_cluster_costs_no_request(api):
    writer = LiveWriter(api, OPENREPORTS, events=True)
    assert ("patch", PATH) in calls(api, writer, both_keys())
    assert calls(api, writer, both_keys()) == []
    assert api.calls == []


def test_what_changed_is_written_and_what_is_gone_deleted(api):
    writer = LiveWriter(api, OPENREPORTS, events=False)
    other = both_keys("other", UID[:-1] + "2")
    calls(api, writer, both_keys(), other)
    assert calls(api, writer, fixed(), other) == [("patch", PATH)]
    assert api.objects[PATH]["summary"]["fail"] == 0
    assert calls(api, writer, other) == [("delete", PATH)]
    assert calls(api, writer, both_keys(), other) == [("patch", PATH)]


def test_reports_about_kinds_that_cannot_be_read_stay(api):
    writer = LiveWriter(api, OPENREPORTS, events=False)
    calls(api, writer, both_keys())
    assert calls(api, writer, unreadable=frozenset((VM.resource,))) == []
    assert PATH in api.objects
    assert calls(api, writer) == [("delete", PATH)]


def test_reports_of_an_earlier_process_are_found(api):
    calls(api, LiveWriter(api, OPENREPORTS, events=False), both_keys())
    assert calls(api, LiveWriter(api, OPENREPORTS, events=False)) == [("delete", PATH)]


def test_a_report_that_another_client_deleted_is_written_again(api, monkeypatch):
    writer = LiveWriter(api, OPENREPORTS, events=False)
    calls(api, writer, both_keys())
    del api.objects[PATH]
    assert calls(api, writer, both_keys()) == []
    monkeypatch.setattr(live_writer, "RELIST", 0)
    assert calls(api, writer, both_keys()) == [("patch", PATH)]


def test_after_a_failure_everything_is_written_again(api):
    writer = LiveWriter(api, OPENREPORTS, events=True)
    api.refuse = {"patch": ApiError(403, "no")}
    with pytest.raises(NotWritten):
        calls(api, writer, both_keys())
    api.refuse = {}
    assert ("patch", PATH) in calls(api, writer, both_keys())


def test_a_namespace_that_refuses_costs_one_request_a_round(api):
    writer, objects = (
        LiveWriter(api, OPENREPORTS, events=False),
        [in_namespace(name) for name in ("a1", "b2", "c3")],
    )
    api.full = "b2"
    for paths in (["a1", "b2", "c3"], ["b2"], ["b2"]):
        with pytest.raises(WriteRefused, match="exceeded quota"):
            calls(api, writer, *objects)
        done = [path for verb, path in api.calls if verb == "patch"]
        assert [path.split("/namespaces/")[1].partition("/")[0] for path in done] == paths
    api.full = "-"
    assert len(calls(api, writer, *objects)) == 1
    assert calls(api, writer, *objects) == []


def test_an_event_is_written_when_its_message_changes_returns_or_gets_old(api, monkeypatch):
    writer = LiveWriter(api, None, events=True)
    assert {verb for verb, _ in calls(api, writer, both_keys())} == {"patch", "post"}
    assert calls(api, writer, both_keys()) == []
    calls(api, writer, fixed())
    assert calls(api, writer, both_keys())
    assert calls(api, writer, both_keys()) == []
    monkeypatch.setattr(live_writer, "EVENT_REFRESH", 1)
    assert calls(api, writer, both_keys())


def test_nothing_is_remembered_of_what_is_gone(api):
    writer = LiveWriter(api, OPENREPORTS, events=True)
    calls(api, writer, both_keys())
    calls(api, writer)
    assert not writer._reports
    assert not writer._events
