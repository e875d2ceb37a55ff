"""A large cluster as a live webhook keeps it: 500 nodes that are full of VMs and ordinary pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import Manifest
from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.cache import ClusterCache, KindStore, StoreState
from virt_admit.kube.stores import lookup_stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import Rules

NODES: Final = 500
VMS: Final = 45
"""On each node."""
MEMORY: Final = ("2Gi", "3Gi", "4Gi", "6Gi", "8Gi")
"""What the VMs request, in turn: 207Gi of a node."""


def objects(pods: int) -> Iterator[Manifest]:
    """Yield the nodes, their VMs, and so many pods in all."""
    yield losses.KUBEVIRT
    yield from losses.NAMESPACES
    for number in range(NODES):
        node = losses.node(f"node-{number:03}", "288Gi", zone=f"zone-{number % 3}")
        node["status"]["allocatable"] |= {"cpu": "128", "pods": "500", "ephemeral-storage": "1Ti"}
        yield node
        for vm in range(VMS):
            yield from losses.vm(
                f"vm-{number}-{vm}", node["metadata"]["name"], MEMORY[vm % len(MEMORY)]
            )
        for other in range(pods // NODES - VMS):
            yield losses.deployed(f"app-{number}-{other}", node["metadata"]["name"], "256Mi")


def saved(pods: int) -> Manifest:
    """Return a snapshot of the cluster, with a control plane and a health check of all workers."""
    masters = (losses.master(f"master-{number}", zone=f"zone-{number}") for number in range(3))
    return {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "serverVersion": "v1.36.3",
        "complete": ["*"],
        "items": [*objects(pods), *masters, *losses.nhc()],
    }


def store_of(cache: ClusterCache, obj: Manifest) -> KindStore:
    """Return where a live cluster keeps an object."""
    kind = kinds.of(Object(obj))
    assert kind is not None
    return cache.stores[kind]


def live(rules: Rules, pods: int) -> ClusterCache:
    """Return the cluster as the informers of the webhook keep it."""
    cache = ClusterCache(lookup_stores(rules), "v1.36.3")
    vm_ledger_feed.follow(cache)
    for store in cache.stores.values():
        store.replace({}, StoreState.LISTED)
    for obj in objects(pods):
        store_of(cache, obj).upsert(obj)
    return cache
