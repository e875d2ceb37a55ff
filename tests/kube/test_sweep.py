"""One read of the cluster, for scan and for check --live."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest

from tests.fake_api import path_of
from tests.kube.lookups import answer, looking_up, obj
from tests.waiting import eventually
from tests.work import measured
from virt_admit.kube import snapshots
from virt_admit.kube.cache import StoreState
from virt_admit.kube.client import ApiClient, ApiError
from virt_admit.kube.informers import read, snapshot
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import LEASE, NODE, PVC, VM
from virt_admit.model.kubernetes.objects import Object


@pytest.fixture
def sweep(api, tmp_path):
    def run(*reads, kinds=(NODE,), at_admission=True, whole=False, **options):
        room = stores(looking_up(*reads, kinds=kinds, at_admission=at_admission), whole=whole)
        return snapshot(ApiClient.connect(api.kubeconfig(tmp_path)), room, **options)

    return run


def test_a_sweep_brings_home_what_is_judged_and_what_is_looked_up(api, sweep):
    api.install(PVC, *(obj(f"disk-{i:03}", "shop", spec={"dataSource": {}}) for i in range(700)))
    api.put(NODE, obj("one", status={"nodeInfo": {"kubeletVersion": "v1"}}))
    seen = []

    cluster = sweep(PVC, VM, progress=lambda kind, count: seen.append((str(kind), count)))

    assert cluster.server_version == "v1.36.3"
    assert [o.name for o in cluster.list(PVC)] == [f"disk-{i:03}" for i in range(700)]
    assert cluster.get(NODE, "", "one")["status"].present, "what is judged is whole"
    assert cluster.get(PVC, "shop", "disk-000")["spec"].value == {}, (
        "what is only looked up is trimmed"
    )
    assert list(cluster.list(VM)) == [], "it is not installed"
    claims = [("persistentvolumeclaims", count) for count in (0, 500, 700)]
    assert seen == [("nodes", 0), ("nodes", 1), *claims, ("virtualmachines.kubevirt.io", 0)]


def test_a_sweep_has_the_time_of_the_api_server(api, sweep):
    api.install(NODE, obj("one"))
    before = datetime.now(UTC).replace(microsecond=0)
    time = clock.exact(sweep(NODE))
    assert time is not None
    assert before <= time <= datetime.now(UTC)


def test_a_sweep_can_keep_everything(api, sweep):
    api.install(PVC, obj("disk", "shop", spec={"resources": {}}, status={"phase": "Bound"}))
    assert sweep(PVC, whole=True).get(PVC, "shop", "disk")["status"].present


def test_what_a_sweep_may_not_read(api, sweep):
    api.install(PVC)
    api.forbidden.add(path_of(PVC))
    cluster = sweep(PVC)
    assert cluster.stores[PVC].state is StoreState.REFUSED
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

    def repair():
        # the first answer is broken for certain when the second is asked for
        eventually(lambda: api.asked(NODE, limit="500") > 1)
        api.broken.clear()

    repairing = threading.Thread(target=repair)
    repairing.start()
    assert answer(sweep(), NODE, "one") == "there"
    repairing.join()
    assert api.asked(NODE, limit="500") > 1


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
        read(ApiClient.connect(api.kubeconfig(tmp_path)), live.stores[NODE])
    assert isinstance(live.get(NODE, "", "one"), Object)
    assert live.get(NODE, "", "two") is None


@pytest.mark.parametrize("depth", [300, 900, 1_100, 9_900])
def test_an_object_that_is_nested_deeply_hides_no_other(api, sweep, tmp_path, depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    vms = [
        obj("deep", "shop", spec={"template": {"metadata": "DEEP"}, "running": True}),
        obj("other", "shop"),
    ]
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": vms}).replace('"DEEP"', deep)
    api.install(VM)
    api.broken[path_of(VM)] = page.encode()
    cluster = sweep(kinds=(VM,))
    assert [vm.name for vm in cluster.list(VM)] == ["deep", "other"]
    assert cluster.get(VM, "shop", "deep").at("spec", "running").boolean is True
    snapshots.save(cluster, tmp_path / "saved.json")
    assert len(list(snapshots.load(tmp_path / "saved.json"))) == 2


@pytest.mark.parametrize(
    ("count", "value", "smallest"),
    [(16, [[]] * 300_000, 1), (60, "x" * 1_000_000, 4)],
    ids=["many small values", "large texts"],
)
def test_large_objects_of_a_user_are_read_in_small_pages(api, sweep, count, value, smallest):
    spec = {"template": {"metadata": {"a": value}}}
    api.install(VM, *(obj(f"large-{number:02}", "shop", spec=spec) for number in range(count)))
    with measured() as work:
        cluster = sweep(VM)
    assert [vm.name for vm in cluster.list(VM)] == [f"large-{number:02}" for number in range(count)]
    assert (
        min(int(query["limit"]) for path, query in api.requests if path == path_of(VM)) == smallest
    )
    assert work.mib < 250, "the fake API server in this process takes half of it"
