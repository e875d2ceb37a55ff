"""Informers keep look-ups current: lists, watches, bookmarks, versions and metrics."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from kubernetes.config import incluster_config
from prometheus_client.parser import text_string_to_metric_families

from tests.fake_api import path_of
from tests.kube.lookups import QUICK, answer, looking_up, obj
from tests.waiting import eventually
from virt_admit.kube.client import ApiClient
from virt_admit.kube.informers import LiveCluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, KUBEVIRT, LEASE, NODE, PVC, VM
from virt_admit.serving.metrics import Metrics
from virt_admit.settings import SettingError


def test_look_ups_are_answered_from_memory(api, nodes):
    api.install(PVC)

    assert nodes.missing == ()
    assert answer(nodes, NODE, "one") == "there"
    assert answer(nodes, NODE, "two") == "none"
    assert answer(nodes, PVC, "disk", "shop") == "unseen", "no rule reads claims"
    assert [node.data for node in nodes.list(NODE)] == [
        {"apiVersion": "v1", "kind": "Node", **obj("one")}
    ]
    assert [path for path, _ in api.requests if "persistent" in path] == []


def test_changes_arrive(api, nodes):
    api.put(NODE, obj("two", spec={"unschedulable": True}))
    api.put(NODE, obj("one", spec={"unschedulable": True}))
    eventually(lambda: len(nodes.known(NODE)) == 2)
    eventually(lambda: all(node["spec"]["unschedulable"].boolean for node in nodes.list(NODE)))
    api.delete(NODE, "one")
    eventually(lambda: answer(nodes, NODE, "one") == "none")
    assert api.asked(NODE, limit="500") == 1


def test_long_lists_come_in_pages(api, follow):
    api.install(PVC, *(obj(f"disk-{i}", "shop") for i in range(1100)))
    live = follow(PVC)
    eventually(lambda: not live.missing)
    assert len(live.known(PVC)) == 1100
    assert [query.get("continue", "") for path, query in api.requests if "limit" in query] == [
        "",
        "500",
        "1000",
    ]


def test_nothing_is_known_before_the_list_is_complete(api, follow):
    api.broken[path_of(NODE)] = b"{}"
    live = follow(NODE)
    eventually(lambda: api.asked(NODE, limit="500") > 2)
    assert live.missing == ("nodes",)
    assert answer(live, NODE, "one") == answer(live, NODE, "two") == "unseen"
    del api.broken[path_of(NODE)]
    eventually(lambda: answer(live, NODE, "one") == "there")


def test_a_bookmark_says_where_to_go_on(api, nodes):
    api.bookmark(NODE)
    mark = str(api.revision)
    eventually(lambda: nodes._informers[0]._resume_point.version == mark)
    api.compact()
    api.oldest = int(mark)
    api.break_off()
    eventually(lambda: api.asked(NODE, watch="true", resourceVersion=mark))
    api.put(NODE, obj("two"))
    eventually(lambda: answer(nodes, NODE, "two") == "there")
    assert api.asked(NODE, limit="500") == 1, "nothing was listed again"


def test_a_watch_that_ends_goes_on_where_it_was(api, follow):
    live = follow(NODE, pace=dataclasses.replace(QUICK, watch=1))
    eventually(lambda: api.asked(NODE, watch="true", timeoutSeconds="1") >= 2)
    api.put(NODE, obj("two"))
    eventually(lambda: answer(live, NODE, "two") == "there")
    assert api.asked(NODE, limit="500") == 1


@pytest.mark.parametrize("where", ["refused", "in the stream"])
def test_what_happened_too_long_ago_is_listed_anew(api, nodes, where):
    with api.changed:
        api.compact()
        api.objects[path_of(NODE)].clear()  # a deletion that no watch will ever tell of
    if where == "refused":
        api.break_off()
    else:
        api.say(
            NODE, "ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}
        )
    eventually(lambda: answer(nodes, NODE, "one") == "none")
    assert api.asked(NODE, limit="500") == 2


def test_a_kind_that_is_installed_later_and_removed_again(api, follow):
    live = follow(VM, NODE)
    eventually(lambda: not live.missing)
    assert answer(live, VM, "db", "shop") == "none"
    assert list(live.list(VM)) == []

    api.install(VM, obj("db", "shop"))
    eventually(lambda: answer(live, VM, "db", "shop") == "there")
    api.uninstall(VM)
    eventually(lambda: answer(live, VM, "db", "shop") == "none")
    api.install(VM, obj("db", "shop"))
    eventually(lambda: answer(live, VM, "db", "shop") == "there")


def test_an_older_version_is_taken_where_the_newest_is_not_served(api, follow):
    older = CAPI_MACHINE.versions[-1]
    machine = {"apiVersion": f"cluster.x-k8s.io/{older}", "kind": "Machine", **obj("m", "shop")}
    api.install(CAPI_MACHINE, machine, version=older)
    live = follow(CAPI_MACHINE)
    eventually(lambda: answer(live, CAPI_MACHINE, "m", "shop") == "there")
    assert live.get(CAPI_MACHINE, "shop", "m").version == older
    api.put(
        CAPI_MACHINE, {**machine, "metadata": {"name": "n", "namespace": "shop"}}, version=older
    )
    eventually(lambda: answer(live, CAPI_MACHINE, "n", "shop") == "there")


def test_an_upgrade_of_the_api_server_is_noticed(api, nodes):
    eventually(lambda: nodes.cached(lambda cluster: cluster.server_version) == "v1.36.3")
    api.version = "v1.37.0"
    eventually(lambda: nodes.server_version == "v1.37.0")


def test_where_only_one_namespace_matters_no_other_is_asked_for(api, follow):
    api.install(LEASE, obj("node-a", "medik8s-leases"), obj("other", "kube-system"))
    live = follow(LEASE)
    eventually(lambda: not live.missing)
    assert answer(live, LEASE, "node-a", "medik8s-leases") == "there"
    assert answer(live, LEASE, "other", "kube-system") == "unseen"
    api.put(LEASE, obj("node-b", "medik8s-leases"))
    eventually(lambda: answer(live, LEASE, "node-b", "medik8s-leases") == "there")
    paths = {path for path, _ in api.requests if "leases" in path}
    assert paths == {"/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"}


def test_metrics(api, tmp_path):
    api.install(PVC, obj("a", "shop"), obj("b", "shop"))
    api.forbidden.add(path_of(KUBEVIRT))
    metrics = Metrics()
    live = LiveCluster.connect(looking_up(PVC, KUBEVIRT, VM, NODE), api.kubeconfig(tmp_path))
    metrics.follow_informers(live.informed)

    def series(name):
        families = text_string_to_metric_families(metrics.text().decode())
        samples = [
            sample
            for each in families
            if each.name == f"virt_admit_informer_{name}"
            for sample in each.samples
        ]
        return {sample.labels["kind"]: sample.value for sample in samples}

    kinds = [
        "kubevirts.kubevirt.io",
        "nodes",
        "persistentvolumeclaims",
        "virtualmachines.kubevirt.io",
    ]
    assert series("synced") == dict.fromkeys(kinds, 0)
    live.start()
    try:
        eventually(lambda: series("synced") == dict(zip(kinds, [0, 1, 1, 1], strict=True)))
        assert series("objects") == dict(zip(kinds, [0, 1, 2, 0], strict=True))
        api.stop()
        eventually(lambda: series("synced")["nodes"] == 0)
        assert series("objects")["nodes"] == 1, "what was known is still used"
    finally:
        live.stop()


def test_threads_end(api, nodes):
    began = time.monotonic()
    nodes.stop()
    assert time.monotonic() - began < QUICK.silence / 2, "no caller waits for the end of a watch"
    assert not {"nodes", "version"} & {thread.name for thread in threading.enumerate()}
    assert answer(nodes, NODE, "one") == "there"


def test_without_any_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingError, match="no cluster is configured"):
        LiveCluster.connect(looking_up(NODE), str(tmp_path / "missing"))


def test_in_a_pod_its_own_api_server_is_asked_with_its_own_token(tmp_path, monkeypatch):
    for name, constant in (
        ("token", "SERVICE_TOKEN_FILENAME"),
        ("ca.crt", "SERVICE_CERT_FILENAME"),
    ):
        (tmp_path / name).write_text(f"the {name}")
        monkeypatch.setattr(incluster_config, constant, str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    api = ApiClient.connect()

    assert api._configuration.host == "https://[fd00::1]:443"
    assert api._configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert api._headers()["authorization"] == "bearer the token"


def test_an_unknown_context(api, tmp_path):
    with pytest.raises(SettingError, match="no cluster is configured"):
        LiveCluster.connect(looking_up(NODE), api.kubeconfig(tmp_path), "elsewhere")
