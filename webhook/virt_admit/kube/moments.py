"""What a live cluster is at one moment, for judgements that are repeated: all of it,
or the part that concerns them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.kube.frozen_cache import FrozenCache
from virt_admit.kube.indexed_store import IndexedStore, Name
from virt_admit.kube.scoped_cluster import Scope, ScopedCluster
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

log = logging.getLogger(__name__)

QUICK: Final = 0.25
"""Seconds. Shared values that take less are computed for each moment."""
REST: Final = 10
"""Shared values that take longer are computed again after this many times their duration,
in a thread.
"""


Named = Callable[[Kind, Hashable], Collection[Name]]
"""Returns the objects of a kind that have a key."""
KeysOfName = Callable[[Kind, Name], tuple[Hashable, ...]]
"""Returns the keys of an object."""


class Moments(Protocol):
    """Moments of a live cluster."""

    def at(self, time: str | None) -> Cluster:
        """Return the cluster as it is now; ``time`` is the API server's time."""


class WholeMoments:
    """All objects. Values derived from kinds that did not change stay."""

    def __init__(self, live: ClusterCache) -> None:
        self._frozen = FrozenCache(live)

    def at(self, time: str | None) -> Cluster:
        self._frozen.refresh()
        self._frozen.time = time
        return self._frozen


class ScopedMoments:
    """The objects of a scope.

    What must be computed from all objects may be older, in a large cluster.
    """

    def __init__(
        self,
        live: ClusterCache,
        scope: Callable[[Named, KeysOfName], Scope],
        shared: tuple[Callable[[Cluster], Any], ...],
    ) -> None:
        """Take moments of a cluster.

        Args:
            live: the cluster.
            scope: returns which objects concern the question now, by the indexes of the stores.
            shared: functions whose values need all objects of the cluster.
        """
        self._live, self._scope, self._functions = live, scope, shared
        self._frozen = FrozenCache(live)
        self._shared: Mapping[Callable[[Cluster], Any], Any] = {}
        self._generation = -1
        self._cost, self._computed = 0.0, float("-inf")
        self._thread: threading.Thread | None = None

    def at(self, time: str | None) -> Cluster:
        scope = self._scope(
            self._named, self._keys
        )  # before the objects: one that is missing from an older index is seen at the next moment
        self._frozen.refresh()
        self._frozen.time = time
        self._refresh_shared()
        return ScopedCluster(self._frozen, scope, self._shared)

    def _named(self, kind: Kind, key: Hashable) -> Collection[Name]:
        store = self._live.stores[kind]
        return store.named(key) if isinstance(store, IndexedStore) else ()

    def _keys(self, kind: Kind, name: Name) -> tuple[Hashable, ...]:
        store = self._live.stores[kind]
        return store.keys(name) if isinstance(store, IndexedStore) else ()

    def _refresh_shared(self) -> None:
        generation = self._live.generation
        if generation == self._generation or (self._thread is not None and self._thread.is_alive()):
            return
        if self._cost < QUICK:
            self._generation = generation
            self._compute()
        elif time.monotonic() - self._computed > REST * self._cost:
            self._generation = generation
            self._thread = threading.Thread(target=self._compute, name="shared values", daemon=True)
            self._thread.start()

    def _compute(self) -> None:
        began = time.monotonic()
        frozen = FrozenCache(self._live)
        frozen.refresh()
        try:
            streamed = _Streamed(frozen)
            self._shared = {function: function(streamed) for function in self._functions}
            streamed.forget()  # what these values are made of takes much memory
        except Exception:
            if not self._shared:
                raise
            log.exception("values of the whole cluster could not be computed")
        self._computed = time.monotonic()
        self._cost = self._computed - began


class _Streamed(ScopedCluster):
    """A whole cluster that decodes an object only when it is reached,
    and can forget its derived values.
    """

    def __init__(self, whole: ClusterCache) -> None:
        super().__init__(whole, {}, {})

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        return _Lazy(self._whole.stores[kind], namespace) if kind in self._whole.stores else ()

    def forget(self) -> None:
        """Drop what was derived: the values that are kept need it no more."""
        self._derived.clear()


class _Lazy(Sequence[Object]):
    """The objects of a store, decoded one by one."""

    def __init__(self, store: KindStore, namespace: str | None) -> None:
        self._store, self._namespace = store, namespace

    def __iter__(self) -> Iterator[Object]:
        return self._store.known(self._namespace)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]
