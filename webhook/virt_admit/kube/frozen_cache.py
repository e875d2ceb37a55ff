"""The objects of a live cluster at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import eq, is_not
from typing import Any

from virt_admit.kube.cache import ByNamespace, ClusterCache, KindStore, View
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.json_codec import identical
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

Name = tuple[str, str]
"""Namespace and name of an object."""
Changes = Mapping[Kind, Mapping[Name, tuple[Object | None, Object | None]] | None]
"""By kind the objects that changed, before and after. None: the state of the kind changed too."""


class FrozenCache(ClusterCache):
    """The objects of another cache at one moment.

    A judgement of a whole cluster takes seconds. Over a cache that changes meanwhile it would mix
    several states, and each change would discard derived values that the rest of the judgement
    needs.
    """

    def __init__(self, live: ClusterCache) -> None:
        super().__init__(store.twin() for store in live.stores.values())
        self._live = live

    def refresh(self) -> Changes:
        """Take over the current objects, and return what changed.

        Values derived from kinds that did not change stay.
        """
        changes: dict[Kind, Mapping[Name, tuple[Object | None, Object | None]] | None] = {}
        for kind, store in self.stores.items():
            before = store.view
            store.follow(self._live.stores[kind])
            if store.view is before:
                continue
            found = dict(_differences(store, before)) if store.view.state is before.state else None
            if found is None or found:
                changes[kind] = found
            _tell(store, found)
        self.server_version, self.time = self._live.server_version, self._live.time
        return changes

    def names(self, kind: Kind, namespace: str | None = None) -> Iterator[Name]:
        """Yield namespace and name of each known object of a kind, in the order of ``list``,
        without decoding it.
        """
        store = self.stores.get(kind)
        objects: ByNamespace = store.view.by_namespace if store is not None else {}
        for each in objects if namespace is None else (namespace,):
            for name in objects.get(each, ()):
                yield each, name

    def unlisted(self, kind: Kind, namespace: str | None = None) -> str:
        """Return what could not be read if more objects of a kind may exist, else an empty text.

        It decodes none.
        """
        store = self.stores.get(kind)
        try:
            if store is None:
                return str(kind)
            store.require_complete(namespace)
        except Unseen as unseen:
            return unseen.what
        return ""


def _differences(
    store: KindStore, before: View
) -> Iterator[tuple[Name, tuple[Object | None, Object | None]]]:
    old_objects, new_objects = before.by_namespace, store.view.by_namespace
    for namespace in {**old_objects, **new_objects}:
        old, new = old_objects.get(namespace, {}), new_objects.get(namespace, {})
        for name in _replaced(old, new):
            was, is_now = old.get(name), new.get(name)
            if not identical(was, is_now):
                key = namespace, name
                yield key, (store.decode(was, key), store.decode(is_now, key))


def _replaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of the objects that came, went or were replaced."""
    # the usual case: without a step for each of thousands
    if len(old) == len(new) and all(map(eq, old, new)):
        return compress(old, map(is_not, old.values(), new.values()))
    return {**old, **new}


def _tell(
    store: KindStore, changes: Mapping[Name, tuple[Object | None, Object | None]] | None
) -> None:
    """Let the observer of a store follow what changed."""
    observer = store.observer
    if observer is None:
        return
    if changes is None:
        objects: ByNamespace = {}
        for each in store:
            observer.listed(objects, each.data, each.data)
            objects.setdefault(each.namespace, {})[each.name] = each.data
        observer.replaced(objects)
        return
    for (namespace, name), (_, obj) in changes.items():
        if obj is None:
            observer.deleted({"metadata": {"namespace": namespace, "name": name}})
        else:
            observer.upserted(obj.data, obj.data)
