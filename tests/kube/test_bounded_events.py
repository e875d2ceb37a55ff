"""The events of a live cluster: all warnings and a few others, within bounds."""

import re
import time

import pytest

from tests.fake_api import FakeApi
from tests.paths import ROOT
from virt_admit.cli.commands import live_events
from virt_admit.cli.options import ClusterOptions
from virt_admit.kube import bounded_events
from virt_admit.kube.bounded_events import BoundedEvents
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.objects import Object


def event(number, kind="Pod", **fields):
    about = {"kind": kind, "namespace": "shop", "name": "db"}
    metadata = {"name": f"e{number:05}", "namespace": "shop", "labels": {"own": "x"}}
    return {
        "metadata": metadata,
        "type": "Warning",
        "reason": "Failed",
        "involvedObject": about,
        **fields,
    }


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as running:
        running.install(EVENT)
        yield running


@pytest.fixture
def read(fake, tmp_path):
    def run(*found, namespace=""):
        for each in found:
            fake.put(EVENT, each)
        store = BoundedEvents()
        store.read(ApiClient.connect(fake.kubeconfig(tmp_path)), namespace)
        return store

    return run


def test_warnings_and_the_others_that_are_looked_up(read):
    usual = {"type": "Normal"}
    made = event(4, "MachineSet", **usual, reason="SuccessfulCreate")
    plan, by = (
        event(5, "Plan", **usual),
        event(6, **usual, source={"component": "sigs.k8s.io/descheduler"}),
    )
    store = read(
        event(1),
        event(2, **usual),
        event(3, "Pod", **usual, reason="SuccessfulCreate"),
        made,
        plan,
        by,
    )
    assert [each.name for each in store] == ["e00001", "e00004", "e00005", "e00006"]
    assert (store.missing, store.complete) == ("", ())
    assert "labels" not in store.find("shop", "e00001").metadata.map
    cluster = ClusterCache([store])
    assert [each.name for each in events.known("Plan", "Failed", cluster)] == ["e00005"]
    with pytest.raises(Unseen):
        list(cluster.list(EVENT))


def test_they_are_bounded(read, monkeypatch):
    monkeypatch.setattr(bounded_events, "_LISTINGS", (("type=Warning", 1_000),))
    store = read(*map(event, range(1_200)))
    assert len(store) == 1_000
    assert store.missing == "events with type=Warning after the first 1000: there are very many"


def test_the_others_are_bounded_and_it_is_said(read):
    usual = {"type": "Normal", "reason": "NodeNotReady"}
    store = read(event(0), *(event(number, "Node", **usual) for number in range(1, 1_502)))
    assert len(store) == 1_001
    assert store.missing.startswith("events with type!=Warning,reason=NodeNotReady after")


def test_time_is_bounded(read, monkeypatch):
    monkeypatch.setattr(bounded_events, "SECONDS", -1.0)
    store = read(event(1))
    assert (len(store), store.missing) == (0, "events: no time was left")


def test_time_bounds_a_request_that_is_under_way(fake, read, monkeypatch):
    monkeypatch.setattr(bounded_events, "SECONDS", 0.3)
    fake.slow["/api/v1/events"] = 5.0
    began = time.monotonic()
    assert read(event(1)).missing == "events: no time was left"
    assert time.monotonic() - began < 3.0


def test_an_account_that_may_not_list_them(fake, read):
    fake.forbidden.add("/api/v1/events")
    store = read(event(1))
    assert (len(store), store.missing) == (0, "events, which this account may not list")
    assert fake.asked(EVENT) == 1
    attached = event(2, type="Normal", reason="SuccessfulAttachVolume")
    store = read(attached, namespace="shop")
    assert (len(store), store.missing) == (2, "events, which this account may not list")


def test_an_answer_that_is_none(fake, read):
    fake.broken["/api/v1/events"] = b'{"items": [{"metadata": 1}], "metadata": {}}'
    assert read().missing.startswith("events: this is not the answer of an API server")


def test_each_reason_is_said_once_and_live_reads_go_on(fake, read):
    fake.failing["/api/v1/events"] = 429
    store = read(event(1), namespace="shop")
    assert (len(store), store.missing) == (1, "events: slow down")
    assert live_events.of(ClusterCache([store]), ClusterOptions()) is not None
    fake.failing.clear()
    assert live_events.of(ClusterCache([read()]), ClusterOptions()) is None


def test_a_named_namespace_is_read_before_the_bound_of_all(read, monkeypatch):
    monkeypatch.setattr(bounded_events, "_LISTINGS", (("type=Warning", 500),))
    others = (
        {**event(number), "metadata": {"name": f"e{number}", "namespace": "a"}}
        for number in range(900)
    )
    store = read(*others, event(9_000), namespace="shop")
    assert store.find("shop", "e09000") is not None


def test_a_volume_that_was_attached_since_is_no_warning(read):
    def said(number, kind, reason, minute):
        fields = {
            "type": kind,
            "reason": reason,
            "message": 'for volume "pv"',
            "lastTimestamp": f"2026-01-01T10:{minute}:00Z",
        }
        return event(number, **fields)

    store = read(
        said(1, "Warning", "FailedAttachVolume", "00"),
        said(2, "Normal", "SuccessfulAttachVolume", "02"),
    )
    pod = Object({"kind": "Pod", "metadata": {"namespace": "shop", "name": "db"}})
    assert not list(events.warnings(pod, None, ClusterCache([store])))


def test_the_node_whose_kubelet_wrote_it_is_known(read):
    store = read(event(1, reportingInstance="w1"))
    assert events.host(next(iter(store))) == "w1"


WARNINGS = {"Failed", "NodeNotFound", "Rebooted"}
"""Reasons of events that are looked up by their kind, and that are warnings.

Source: kubernetes/kubernetes:pkg/kubelet/nodestatus/setters.go#MachineInfo, for Rebooted;
medik8s/fence-agents-remediation:controllers/fenceagentsremediation_controller.go#Reconcile, for
NodeNotFound.
"""
_KNOWN = re.compile(r'\bknown\((?:[\w.]+|"\w+"), "(\w+)"')


def test_every_event_that_is_looked_up_is_read():
    source = (each.read_text() for each in (ROOT / "webhook").rglob("*.py"))
    reasons = {reason for text in source for reason in _KNOWN.findall(text)}
    read = {each.rpartition("reason=")[2] for each in events.NOT_WARNINGS if "reason=" in each}
    assert len(reasons) > 5
    assert reasons - WARNINGS <= read


_FIELD = re.compile(r'\bevent(?:\[|\.at\()"(\w+)"')


def test_every_field_of_events_that_is_read_is_kept(read):
    folders = (ROOT / "webhook" / "virt_admit" / name for name in ("model", "forecasts", "rules"))
    source = (each.read_text() for folder in folders for each in folder.rglob("*.py"))
    fields = {field for text in source for field in _FIELD.findall(text)} - {"metadata"}
    assert len(fields) > 8
    values = dict.fromkeys(fields - {"type", "involvedObject", "source", "series"}, "x")
    assert (
        fields <= next(iter(read(event(1, **values, source={"a": 1}, series={"a": 1})))).data.keys()
    )
