"""The events of a live cluster: all warnings and a few others, within bounds."""

import re

import pytest

from tests.fake_api import FakeApi
from tests.paths import ROOT
from virt_admit.kube import bounded_events
from virt_admit.kube.bounded_events import BoundedEvents
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.events import EVENT


def event(number, kind="Pod", **fields):
    about = {"kind": kind, "namespace": "shop", "name": "db"}
    metadata = {"name": f"e{number:05}", "namespace": "shop", "labels": {"own": "x"}}
    return {"metadata": metadata, "type": "Warning", "reason": "Failed", "involvedObject": about, **fields}


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
    plan, by = event(5, "Plan", **usual), event(6, **usual, source={"component": "sigs.k8s.io/descheduler"})
    store = read(event(1), event(2, **usual), event(3, "Pod", **usual, reason="SuccessfulCreate"), made, plan, by)
    assert [each.name for each in store] == ["e00001", "e00004", "e00005", "e00006"]
    assert (store.missing, store.complete) == ("", ())
    assert "labels" not in store.find("shop", "e00001").metadata.map
    cluster = ClusterCache([store])
    assert [each.name for each in events.known("Plan", "Failed", cluster)] == ["e00005"]
    with pytest.raises(Unseen):
        list(cluster.list(EVENT))


def test_they_are_bounded(read, monkeypatch):
    monkeypatch.setattr(bounded_events, "MOST", 1_000)
    store = read(*map(event, range(1_200)))
    assert (len(store), store.missing) == (1_000, "events after the first 1000: the cluster has very many of them")


def test_time_is_bounded(read, monkeypatch):
    monkeypatch.setattr(bounded_events, "SECONDS", -1.0)
    store = read(event(1))
    assert (len(store), store.missing) == (0, "events after the first 0: the cluster has very many of them")


def test_an_account_that_may_not_list_them(fake, read):
    fake.forbidden.add("/api/v1/events")
    store = read(event(1))
    assert (len(store), store.missing) == (0, "events, which this account may not list")
    store = read(namespace="shop")
    assert (len(store), store.missing) == (1, "events, which this account may not list")


def test_an_answer_that_is_none(fake, read):
    fake.broken["/api/v1/events"] = b'{"items": [{"metadata": 1}], "metadata": {}}'
    assert read().missing.startswith("events: this is not the answer of an API server")


WARNINGS = {"Failed"}
"""Reasons of events that are looked up by their kind, and that are warnings."""


def test_every_event_that_is_looked_up_is_read():
    source = (each.read_text() for each in (ROOT / "webhook").rglob("*.py"))
    reasons = {reason for text in source for reason in re.findall(r'events\.known\([^,]+, "(\w+)"', text)}
    read = {each.rpartition("reason=")[2] for each in events.NOT_WARNINGS if "reason=" in each}
    assert len(reasons) > 5
    assert reasons - WARNINGS <= read
