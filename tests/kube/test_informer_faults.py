"""Informers against an API server that misbehaves: what they know is right again soon,
and never wrong in between.
"""

from __future__ import annotations

import dataclasses
import time

import pytest

from tests.fake_api import path_of
from tests.kube.lookups import QUICK, answer, obj
from tests.waiting import eventually
from virt_admit.kube.cache import KindStore, StoreState
from virt_admit.kube.client import pause
from virt_admit.model.kubernetes.kinds import LEASE, NODE, PVC, VM


def test_while_a_list_is_repeated_the_old_one_holds(api, nodes):
    api.broken[path_of(NODE)] = b"{"
    api.compact()
    api.break_off()
    eventually(lambda: api.asked(NODE, limit="500") > 2)
    assert answer(nodes, NODE, "one") == "there"


def test_a_connection_that_only_seems_to_live(api, follow):
    live = follow(NODE, pace=dataclasses.replace(QUICK, silence=0.2))
    eventually(lambda: api.asked(NODE, watch="true"))
    api.silent = True
    api.put(NODE, obj("two"))
    eventually(lambda: api.asked(NODE, watch="true") >= 3)
    assert answer(live, NODE, "two") == "none"
    api.silent = False
    eventually(lambda: answer(live, NODE, "two") == "there")
    assert api.asked(NODE, limit="500") == 1


def test_rights_are_taken_away_and_given_back(api, nodes):
    api.forbidden.add(path_of(NODE))
    assert answer(nodes, NODE, "one") == "there", "the watch that runs is still allowed"
    api.break_off()
    eventually(lambda: answer(nodes, NODE, "one") == "unseen")
    assert nodes.missing == (), "it is known why"
    api.delete(NODE, "one")
    api.put(NODE, obj("two"))
    api.forbidden.clear()
    eventually(lambda: answer(nodes, NODE, "two") == "there")
    assert answer(nodes, NODE, "one") == "none"


def test_a_token_that_is_not_accepted(api, follow):
    api.token = "another"
    live = follow(NODE)
    eventually(lambda: live.stores[NODE].state is StoreState.REFUSED)
    assert answer(live, NODE, "one") == "unseen"
    api.token = "secret"
    eventually(lambda: answer(live, NODE, "one") == "there")


@pytest.mark.parametrize("kind", [VM, PVC], ids=str)
def test_a_404_of_something_else_is_no_proof(api, follow, kind):
    """A proxy, or the wrong port: had it the last word, every object would count as absent."""
    api.broken["/apis"] = b"<html>welcome to nginx</html>"
    live = follow(kind)
    eventually(lambda: api.asked(kind, limit="500") > 2)
    assert answer(live, kind, "db", "shop") == "unseen"


def test_every_api_server_has_nodes(api, follow):
    del api.objects[path_of(NODE)]
    live = follow(NODE)
    eventually(lambda: api.asked(NODE, limit="500") > 2)
    assert answer(live, NODE, "one") == "unseen"


def test_an_api_server_that_is_away_at_the_start(api, follow):
    api.stop()
    live = follow(NODE)
    assert answer(live, NODE, "one") == "unseen"
    assert live.server_version is None
    api.start()
    eventually(lambda: answer(live, NODE, "one") == "there")
    eventually(lambda: live.server_version == "v1.36.3")


def test_an_api_server_that_restarts(api, nodes):
    for number in range(3):
        api.stop()
        api.put(NODE, obj(f"new-{number}"))
        assert answer(nodes, NODE, "one") == "there", "while it is away, what was known stays"
        api.start()
        eventually(lambda name=f"new-{number}": answer(nodes, NODE, name) == "there")


@pytest.mark.parametrize(
    "event",
    [
        b"no JSON",
        b"[]",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": {}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": null}}}',
        b'{"type": "ERROR", "object": {"code": "x"}}',
    ],
)
def test_garbage_in_a_watch_leads_to_a_new_list(api, nodes, event):
    api.say(NODE, "raw", event)
    api.objects[path_of(NODE)]["", "two"] = obj("two")
    eventually(lambda: answer(nodes, NODE, "two") == "there")
    assert answer(nodes, NODE, "one") == "there"


@pytest.mark.parametrize(
    "body", [b"", b"null", b'{"items": 3, "metadata": {}}', b'{"items": [{}]}', b'"text"']
)
def test_garbage_instead_of_a_list(api, follow, body):
    api.broken[path_of(NODE)] = body
    live = follow(NODE)
    eventually(lambda: api.asked(NODE, limit="500") > 2)
    assert answer(live, NODE, "one") == "unseen"


def test_a_bug_does_not_end_an_informer(api, nodes, monkeypatch, caplog):
    """A thread that dies unseen would leave its look-ups behind for years."""
    upsert = KindStore.upsert
    monkeypatch.setattr(KindStore, "upsert", lambda *_: 1 / 0)
    api.put(NODE, obj("two"))
    eventually(lambda: "informer failed; restarting it" in caplog.messages)
    monkeypatch.setattr(KindStore, "upsert", upsert)
    eventually(lambda: answer(nodes, NODE, "two") == "there")


def test_one_kind_in_trouble_does_not_hurt_the_others(api, follow):
    api.broken[path_of(VM)] = b"{"
    live = follow(VM, NODE)
    eventually(lambda: answer(live, NODE, "one") == "there")
    assert live.missing == ("virtualmachines.kubevirt.io",)


def test_a_namespace_that_this_cluster_does_not_have(api, follow):
    """No account can be given rights in it; there is nothing to see."""
    path = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"
    api.install(LEASE)
    api.forbidden.add(path)
    live = follow(LEASE)
    eventually(lambda: answer(live, LEASE, "node-a", "medik8s-leases") == "none")
    assert answer(live, LEASE, "node-a", "elsewhere") == "unseen"
    api.namespaces.add("medik8s-leases")
    eventually(lambda: answer(live, LEASE, "node-a", "medik8s-leases") == "unseen")
    api.put(LEASE, obj("node-a", "medik8s-leases"))
    api.forbidden.clear()
    eventually(lambda: answer(live, LEASE, "node-a", "medik8s-leases") == "there")


def test_a_namespace_that_cannot_be_asked_for_may_exist(api, follow):
    api.install(LEASE)
    api.forbidden |= {"/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"}
    api.forbidden |= {"/api/v1/namespaces/medik8s-leases"}
    live = follow(LEASE)
    eventually(lambda: not live.missing)
    assert answer(live, LEASE, "node-a", "medik8s-leases") == "unseen"


def test_failures_are_repeated_less_and_less_often():
    for failures, most in [
        (0, 0.0),
        (1, 0.2),
        (2, 0.4),
        (3, 0.8),
        (5, 3.2),
        (6, 5.0),
        (10_000, 5.0),
    ]:
        pauses = {pause(failures) for _ in range(50)}
        assert most / 2 <= min(pauses) <= max(pauses) <= most
        assert failures == 0 or len(pauses) > 1, "not all replicas at once"


def test_a_server_that_hangs_up_at_once_is_not_asked_without_end(api, follow):
    api.hangs_up = True
    follow(NODE, pace=dataclasses.replace(QUICK, longest=5))
    eventually(lambda: api.asked(NODE, watch="true") > 1)
    time.sleep(1)
    assert api.asked(NODE, watch="true") < 6
