"""A cache that shows one moment of another one."""

from __future__ import annotations

import pytest

from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.frozen_cache import FrozenCache
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import NODE, VM


def vm(name, **spec):
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}


@pytest.fixture(params=[False, True])
def live(request):
    cache = ClusterCache([KindStore(VM, packed=request.param), KindStore(NODE)], "v1.36.3")
    for store in cache.stores.values():
        store.replace({}, StoreState.LISTED)
    cache.stores[VM].upsert(vm("a"))
    return cache


def names(cache, kind=VM):
    return [obj.name for obj in cache.list(kind)]


def test_changes_show_after_a_refresh(live):
    frozen = FrozenCache(live)
    with pytest.raises(Unseen):
        names(frozen)
    frozen.refresh()
    assert (names(frozen), names(frozen, NODE), frozen.server_version) == (["a"], [], "v1.36.3")
    live.stores[VM].upsert(vm("b"))
    live.stores[VM].delete(vm("a"))
    assert names(frozen) == ["a"]
    frozen.refresh()
    assert names(frozen) == ["b"]


def test_a_kind_that_is_forbidden_becomes_unseen(live):
    frozen = FrozenCache(live)
    frozen.refresh()
    live.stores[VM].replace({}, StoreState.REFUSED)
    assert names(frozen) == ["a"]
    frozen.refresh()
    assert frozen.unreadable == {VM.resource}
    with pytest.raises(Unseen):
        frozen.get(VM, "shop", "a")


def test_derived_values_stay_until_their_kind_changes(live):
    counted = []

    def count(cluster):
        counted.append(len(list(cluster.list(VM))))
        return counted[-1]

    frozen = FrozenCache(live)
    for _ in range(2):
        frozen.refresh()
        live.stores[NODE].upsert({"metadata": {"name": f"n{len(counted)}"}})
        assert frozen.cached(count) == 1
    live.stores[VM].upsert(vm("b"))
    assert frozen.cached(count) == 1
    frozen.refresh()
    assert frozen.cached(count) == 2
    assert counted == [1, 2]
