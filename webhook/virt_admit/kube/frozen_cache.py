"""The objects of a live cluster at one moment."""

from __future__ import annotations

from virt_admit.kube.cache import ClusterCache


class FrozenCache(ClusterCache):
    """The objects of another cache at one moment.

    A judgement of a whole cluster takes seconds. Over a cache that changes meanwhile it would mix several states, and
    each change would discard derived values that the rest of the judgement needs.
    """

    def __init__(self, live: ClusterCache) -> None:
        super().__init__(store.twin() for store in live.stores.values())
        self._live = live

    def refresh(self) -> None:
        """Take over the current objects. Values derived from kinds that did not change stay."""
        for kind, store in self.stores.items():
            store.follow(self._live.stores[kind])
        self.server_version, self.time = self._live.server_version, self._live.time
