"""Informers against an API server that misbehaves: what they know is right again soon, and never wrong in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time

import pytest
from kubernetes.config import incluster_config
from prometheus_client.parser import text_string_to_metric_families

from tests.fake_api import FakeApi, path_of
from tests.waiting import eventually
from virt_admit.kube.cache import KindStore, State, stores
from virt_admit.kube.client import Api, ApiError, pause
from virt_admit.kube.informers import InformerTimeouts, LiveCluster, read, snapshot
from virt_admit.model.cluster import Unseen
from virt_admit.model.kinds import CAPI_MACHINE, KUBEVIRT, LEASE, NODE, PVC, VM
from virt_admit.model.objects import Object
from virt_admit.model.reads import union
from virt_admit.rules import Rules, load_rules
from virt_admit.serving.metrics import Metrics
from virt_admit.settings import SettingError

QUICK = InformerTimeouts(watch=30, silence=30, absent=0.1, longest=0.1, version=0.05)


def looking_up(*reads, kinds=(), at_admission=True):
    """Rules that look up these kinds."""
    some = next(iter(load_rules()))
    declared = union(*(rule.reads for rule in load_rules().at_admission))
    reads = {kind: declared.get(kind, ()) for kind in reads}
    return Rules([dataclasses.replace(some, reads=reads, kinds=kinds, at_admission=at_admission)])


def obj(name, namespace="", **fields):
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **fields}


def answer(cluster, kind, name, namespace=""):
    """What a look-up gives: "there", "none" or "unseen"."""
    try:
        return "none" if cluster.get(kind, namespace, name) is None else "there"
    except Unseen:
        return "unseen"


@pytest.fixture
def api():
    with FakeApi() as fake:
        fake.install(NODE, obj("one"))
        yield fake


@pytest.fixture
def follow(api, tmp_path):
    """Start informers of the API server; they are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def start(*reads, pace=QUICK):
            live = LiveCluster(Api.connect(api.kubeconfig(tmp_path), connections=9), looking_up(*reads), pace)
            stack.callback(live.stop)
            live.start()
            return live

        yield start


@pytest.fixture
def nodes(api, follow):
    """Informers of nodes that have listed and are watching."""
    live = follow(NODE)
    eventually(lambda: all(each.current for each in live.informed()))
    return live


def test_look_ups_are_answered_from_memory(api, nodes):
    api.install(PVC)

    assert nodes.missing == ()
    assert answer(nodes, NODE, "one") == "there"
    assert answer(nodes, NODE, "two") == "none"
    assert answer(nodes, PVC, "disk", "shop") == "unseen", "no rule reads claims"
    assert [node.data for node in nodes.list(NODE)] == [{"apiVersion": "v1", "kind": "Node", **obj("one")}]
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
    assert [query.get("continue", "") for path, query in api.requests if "limit" in query] == ["", "500", "1000"]


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
    assert api.asked(NODE, limit="500") == 1, "nothing was listed anew"


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
        api.say(NODE, "ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    eventually(lambda: answer(nodes, NODE, "one") == "none")
    assert api.asked(NODE, limit="500") == 2


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
    eventually(lambda: live.stores[NODE].state is State.REFUSED)
    assert answer(live, NODE, "one") == "unseen"
    api.token = "secret"
    eventually(lambda: answer(live, NODE, "one") == "there")


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
    api.put(CAPI_MACHINE, {**machine, "metadata": {"name": "n", "namespace": "shop"}}, version=older)
    eventually(lambda: answer(live, CAPI_MACHINE, "n", "shop") == "there")


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


def test_an_upgrade_of_the_api_server_is_noticed(api, nodes):
    eventually(lambda: nodes.cached(lambda cluster: cluster.server_version) == "v1.36.3")
    api.version = "v1.37.0"
    eventually(lambda: nodes.server_version == "v1.37.0")


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


@pytest.mark.parametrize("body", [b"", b"null", b'{"items": 3, "metadata": {}}', b'{"items": [{}]}', b'"text"'])
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


def test_a_namespace_that_this_cluster_does_not_have(api, follow):
    """Nobody can be given rights in it; there is nothing to see."""
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
    for failures, most in [(0, 0.0), (1, 0.2), (2, 0.4), (3, 0.8), (5, 3.2), (6, 5.0), (10_000, 5.0)]:
        pauses = {pause(failures) for _ in range(50)}
        assert most / 2 <= min(pauses) <= max(pauses) <= most
        assert failures == 0 or len(pauses) > 1, "not all replicas at once"


def test_a_server_that_hangs_up_at_once_is_not_asked_without_end(api, follow):
    follow(NODE, pace=dataclasses.replace(QUICK, watch=0, longest=5))
    time.sleep(1)
    assert api.asked(NODE, watch="true") < 6


def test_metrics(api, tmp_path):
    api.install(PVC, obj("a", "shop"), obj("b", "shop"))
    api.forbidden.add(path_of(KUBEVIRT))
    metrics = Metrics()
    live = LiveCluster.connect(looking_up(PVC, KUBEVIRT, VM, NODE), api.kubeconfig(tmp_path))
    metrics.follow_informers(live.informed)

    def series(name):
        families = text_string_to_metric_families(metrics.text().decode())
        samples = [sample for each in families if each.name == f"virt_admit_informer_{name}" for sample in each.samples]
        return {sample.labels["kind"]: sample.value for sample in samples}

    kinds = ["kubevirts.kubevirt.io", "nodes", "persistentvolumeclaims", "virtualmachines.kubevirt.io"]
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
    assert time.monotonic() - began < QUICK.silence / 2, "nobody waits for the end of a watch"
    assert not {"nodes", "version"} & {thread.name for thread in threading.enumerate()}
    assert answer(nodes, NODE, "one") == "there"


def test_without_any_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingError, match="no cluster is configured"):
        LiveCluster.connect(looking_up(NODE), str(tmp_path / "missing"))


def test_in_a_pod_its_own_api_server_is_asked_with_its_own_token(tmp_path, monkeypatch):
    for name, constant in (("token", "SERVICE_TOKEN_FILENAME"), ("ca.crt", "SERVICE_CERT_FILENAME")):
        (tmp_path / name).write_text(f"the {name}")
        monkeypatch.setattr(incluster_config, constant, str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    api = Api.connect()

    assert api._configuration.host == "https://[fd00::1]:443"
    assert api._configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert api._headers()["authorization"] == "bearer the token"


def test_an_unknown_context(api, tmp_path):
    with pytest.raises(SettingError, match="no cluster is configured"):
        LiveCluster.connect(looking_up(NODE), api.kubeconfig(tmp_path), "elsewhere")


# --- one sweep


@pytest.fixture
def sweep(api, tmp_path):
    def run(*reads, kinds=(NODE,), at_admission=True, whole=False, **options):
        room = stores(looking_up(*reads, kinds=kinds, at_admission=at_admission), whole=whole)
        return snapshot(Api.connect(api.kubeconfig(tmp_path)), room, **options)

    return run


def test_a_sweep_brings_home_what_is_judged_and_what_is_looked_up(api, sweep):
    api.install(PVC, *(obj(f"disk-{i:03}", "shop", spec={"resources": {}}) for i in range(700)))
    api.put(NODE, obj("one", status={"nodeInfo": {"kubeletVersion": "v1"}}))
    seen = []

    cluster = sweep(PVC, VM, progress=lambda kind, count: seen.append((str(kind), count)))

    assert cluster.server_version == "v1.36.3"
    assert [o.name for o in cluster.list(PVC)] == [f"disk-{i:03}" for i in range(700)]
    assert cluster.get(NODE, "", "one")["status"].present, "what is judged is whole"
    assert cluster.get(PVC, "shop", "disk-000")["spec"].value == {}, "what is only looked up is trimmed"
    assert list(cluster.list(VM)) == [], "it is not installed"
    claims = [("persistentvolumeclaims", count) for count in (0, 500, 700)]
    assert seen == [("nodes", 0), ("nodes", 1), *claims, ("virtualmachines.kubevirt.io", 0)]


def test_a_sweep_can_keep_everything(api, sweep):
    api.install(PVC, obj("disk", "shop", spec={"resources": {}}, status={"phase": "Bound"}))
    assert sweep(PVC, whole=True).get(PVC, "shop", "disk")["status"].present


def test_what_a_sweep_may_not_read(api, sweep):
    api.install(PVC)
    api.forbidden.add(path_of(PVC))
    cluster = sweep(PVC)
    assert cluster.stores[PVC].state is State.REFUSED
    assert answer(cluster, PVC, "disk", "shop") == "unseen"
    assert answer(cluster, NODE, "one") == "there"


def test_a_sweep_by_someone_who_may_read_one_namespace(api, sweep):
    api.install(PVC, obj("disk", "shop"), obj("disk", "other"))
    api.forbidden |= {path_of(PVC), path_of(NODE)}
    cluster = sweep(PVC, namespace="shop")
    assert answer(cluster, PVC, "disk", "shop") == "there"
    assert answer(cluster, PVC, "other", "shop") == "none"
    assert answer(cluster, PVC, "disk", "other") == "unseen"
    assert answer(cluster, NODE, "one") == "unseen"


def test_rules_of_the_sweep_look_everywhere(api, sweep):
    api.install(LEASE, obj("a", "kube-system"))
    assert answer(sweep(LEASE), LEASE, "a", "kube-system") == "unseen"
    assert answer(sweep(LEASE, at_admission=False), LEASE, "a", "kube-system") == "there"


def test_a_sweep_has_some_patience(api, sweep):
    api.broken[path_of(NODE)] = b"{"
    repair = threading.Timer(0.3, api.broken.clear)
    repair.start()
    assert answer(sweep(), NODE, "one") == "there"
    repair.join()


def test_a_sweep_of_nothing(api, sweep):
    api.stop()
    with pytest.raises(ApiError, match="does not answer"):
        sweep()


def test_a_sweep_by_nobody(api, sweep):
    api.token = "another"
    with pytest.raises(ApiError, match="Unauthorized"):
        sweep()


def test_a_list_that_fails_leaves_the_shelf_as_it_was(api, follow, tmp_path):
    live = follow(NODE)
    eventually(lambda: not live.missing)
    api.broken[path_of(NODE)] = json.dumps({"metadata": {}, "items": [obj("two")]}).encode()
    with pytest.raises(ApiError):
        read(Api.connect(api.kubeconfig(tmp_path)), live.stores[NODE])
    assert isinstance(live.get(NODE, "", "one"), Object)
    assert live.get(NODE, "", "two") is None
