"""A store that finds objects by keys, such as the node of a pod, without decoding all others
(client-go: Indexer).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from virt_admit.kube.cache import ByNamespace, KindStore, StoreState
from virt_admit.kube.field_filter import FieldSet
from virt_admit.model.kubernetes.kinds import Kind

Name = tuple[str, str]
"""Namespace and name of an object."""
KeysOf = Callable[[Mapping[str, Any]], Iterable[Hashable]]
"""Returns the keys by which an object is found."""


class _Index:
    """Names by key, and keys by name.

    One thread writes; readers take copies, which are atomic in CPython.
    """

    def __init__(self) -> None:
        self.names: dict[Hashable, dict[Name, None]] = {}
        self.keys: dict[Name, tuple[Hashable, ...]] = {}

    def set(self, name: Name, keys: Iterable[Hashable]) -> None:
        """Replace the keys of an object."""
        new, old = tuple(keys), self.keys.pop(name, ())
        for key in old:
            if key not in new:
                names = self.names[key]
                del names[name]
                if not names:
                    del self.names[key]
        for key in new:
            self.names.setdefault(key, {})[name] = None
        if new:
            self.keys[name] = new


class IndexedStore(KindStore):
    """The objects of one kind, with an index."""

    def __init__(self, kind: Kind, keys_of: KeysOf, fields: FieldSet) -> None:
        super().__init__(kind, fields=fields, packed=True)
        self._keys_of = keys_of
        self._index = _Index()
        self._listing: ByNamespace = {}
        self._listed_index = _Index()
        """The index of a listing that is not complete yet."""

    def named(self, key: Hashable) -> Collection[Name]:
        """Return the names of the objects that have a key."""
        return tuple(self._index.names.get(key, ()))

    def keys(self, name: Name) -> tuple[Hashable, ...]:
        """Return the keys of an object."""
        return self._index.keys.get(name, ())

    def add(self, by_namespace: ByNamespace, obj: dict[str, Any]) -> None:
        if by_namespace is not self._listing:  # the first object of another listing
            self._listing, self._listed_index = by_namespace, _Index()
        super().add(by_namespace, obj)
        self._listed_index.set(_name(obj), self._keys_of(obj))

    def replace(self, by_namespace: ByNamespace, state: StoreState) -> None:
        index = self._listed_index if by_namespace is self._listing else _Index()
        self._listing, self._listed_index = {}, _Index()
        self._index = index
        super().replace(by_namespace, state)

    def upsert(self, obj: dict[str, Any]) -> None:
        # first: a reader that sees the new generation sees the keys
        self._index.set(_name(obj), self._keys_of(obj))
        super().upsert(obj)

    def delete(self, obj: dict[str, Any]) -> None:
        super().delete(obj)
        self._index.set(_name(obj), ())


def _name(obj: Mapping[str, Any]) -> Name:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
