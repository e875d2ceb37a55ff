"""Keeps the ledger of a live cluster: the informers record each object that changes,
so that no review reads pods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from virt_admit.kube.cache import ByNamespace, ClusterCache, KindStore, StoreState, names_of
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.launcher.vm_ledger import Facts, VmLedger


def follow(cluster: ClusterCache) -> None:
    """Keep the ledger of a cluster, if its stores have all kinds of which it is made."""
    stores = [cluster.stores[kind] for kind in vm_ledger.KINDS if kind in cluster.stores]
    if len(stores) < len(vm_ledger.KINDS):
        return
    ledger, lock = VmLedger(), threading.Lock()
    for store in stores:
        store.observer = _Feed(ledger, store, lock)
    cluster.provide(vm_ledger.read, _reader(ledger, stores), vm_ledger.KINDS)


def _reader(ledger: VmLedger, stores: list[KindStore]) -> Callable[[], VmLedger | Unseen]:
    def read() -> VmLedger | Unseen:
        for store in stores:
            if store.state not in (StoreState.LISTED, StoreState.ABSENT):
                return Unseen(str(store.kind))
        return ledger

    return read


class _Feed:
    """Records the objects of one store. Several informers write the same ledger, one at a time."""

    def __init__(self, ledger: VmLedger, store: KindStore, lock: threading.Lock) -> None:
        self._ledger, self._store, self._lock = ledger, store, lock
        self._list: ByNamespace | None = None
        """The objects of the list that is being read. One that fails is never stored."""
        self._listed: list[tuple[str, str, Facts]] = []

    def listed(
        self, by_namespace: ByNamespace, obj: dict[str, Any], kept: dict[str, Any] | None
    ) -> None:
        if self._list is not by_namespace:
            self._list, self._listed = by_namespace, []
        self._listed.append((*names_of(obj), self._facts(obj, kept)))

    def replaced(self, by_namespace: ByNamespace) -> None:
        found = self._listed if self._list is by_namespace else []
        self._list, self._listed = None, []
        kind = self._store.kind
        with self._lock:
            for namespace, name in list(self._ledger.names(kind)):
                if name not in by_namespace.get(namespace, {}):
                    self._ledger.record(kind, namespace, name, None)
            for namespace, name, facts in found:
                self._ledger.record(kind, namespace, name, facts)
            self._ledger.ledger.keep_up()

    def upserted(self, obj: dict[str, Any], kept: dict[str, Any] | None) -> None:
        facts = self._facts(obj, kept)
        self._record(obj, facts)

    def deleted(self, obj: dict[str, Any]) -> None:
        self._record(obj, None)

    def _record(self, obj: dict[str, Any], facts: Facts) -> None:
        with self._lock:
            self._ledger.record(self._store.kind, *names_of(obj), facts)
            self._ledger.ledger.keep_up()

    def _facts(self, obj: dict[str, Any], kept: dict[str, Any] | None) -> Facts:
        if kept is None:
            return None
        return vm_ledger.facts_of(
            self._store.kind, Object(obj), kept if self._store.summarizes else None
        )
