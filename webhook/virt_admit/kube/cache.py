"""The looked-up objects of a cluster in memory, filled by informers or by one sweep."""

from __future__ import annotations

import copy
import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from virt_admit.kube.field_filter import WHOLE, FieldSet
from virt_admit.kube.observer import Observer
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, computed
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

T = TypeVar("T")


class Summary(NamedTuple):
    """How objects of a kind are kept in less than the fields that rules read."""

    summarize: Callable[[dict[str, Any]], dict[str, Any] | None]
    """None: the object is not kept."""
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]


ByNamespace = dict[str, dict[str, Any]]
"""By namespace (empty for what has none), then by name: objects as a store keeps them."""

_NAMES: Final = ("name", "namespace")
_ALIKE: Final = 256
"""Bytes. Shorter texts are mostly equal, such as those of claims, so equal ones are stored once."""
_DIFFERENT: Final = 10_000
"""The number of different short texts to remember. Beyond it they are not similar enough;
start again.
"""
_DERIVED: Final = 1_000
"""The number of derived values to remember: far more than functions, unless a caller creates
functions on the fly.
"""


class StoreState(enum.Enum):
    """What is known of the objects of a kind."""

    WAITING = "not listed yet"
    LISTED = "listed"
    ABSENT = "not installed"
    """The kind or namespace does not exist, so the list is known to be empty."""
    REFUSED = "forbidden"


class View(NamedTuple):
    """Objects and their state.

    They are read together, or a look-up could mistake unseen for absent.
    """

    by_namespace: ByNamespace
    state: StoreState


class KindStore:
    """The objects of one kind. One thread writes; any number read at the same time, without a lock.

    Readers see a whole object, old or new, because in CPython a get, a set and a copy of a dict are
    atomic.
    """

    def __init__(
        self,
        kind: Kind,
        namespace: str = "",
        fields: FieldSet = WHOLE,
        *,
        packed: bool = False,
        summary: Summary | None = None,
    ) -> None:
        """Make an empty store.

        Args:
            namespace: the only one that is looked into; empty: all.
            fields: the fields that are retained.
            packed: keep objects as JSON text even where the kind is not numerous.
            summary: makes objects smaller after their fields were filtered; only for numerous
                kinds.
        """
        self.kind = kind
        self.namespace = namespace
        self.generation = 0
        """A counter of the changes that a rule can see."""
        self._view = View({}, StoreState.WAITING)
        self._fields = fields
        self._summary = summary
        self._packed = packed or kind.numerous
        # lists leave them out of their items
        self._type = {"apiVersion": kind.api_version, "kind": kind.kind}
        self._alike: dict[bytes, bytes] = {}
        self.observer: Observer | None = None

    # --- writing

    def add(self, by_namespace: ByNamespace, obj: dict[str, Any]) -> None:
        """Add an object to objects that ``replace`` will store later."""
        namespace, name = names_of(obj)
        small = self._small(obj)
        if small is not None:
            by_namespace.setdefault(namespace, {})[name] = self._pack(small)
        if self.observer is not None:
            self.observer.listed(by_namespace, obj, small)

    def replace(self, by_namespace: ByNamespace, state: StoreState) -> None:
        """Replace all objects and the state of the kind."""
        if self._view != (by_namespace, state):
            self._view = View(by_namespace, state)
            if self.observer is not None:
                self.observer.replaced(by_namespace)
            self.generation += 1

    def upsert(self, obj: dict[str, Any]) -> None:
        """Add an object, or replace it."""
        namespace, name = names_of(obj)
        small = self._small(obj)
        if small is None:
            self.delete(obj)
            return
        packed = self._pack(small)
        objects = self._view.by_namespace.setdefault(namespace, {})
        if objects.get(name) != packed:
            objects[name] = packed
            if self.observer is not None:
                self.observer.upserted(obj, small)
            # last: a reader that takes the generation before the object never misses a change
            self.generation += 1

    def delete(self, obj: dict[str, Any]) -> None:
        """Remove an object."""
        namespace, name = names_of(obj)
        objects = self._view.by_namespace.get(namespace, {})
        if objects.pop(name, None) is not None:
            if not objects:
                del self._view.by_namespace[namespace]
            if self.observer is not None:
                self.observer.deleted(obj)
            self.generation += 1

    def twin(self) -> KindStore:
        """Return an empty store that ``follow`` fills from this one."""
        twin = copy.copy(self)
        twin._view, twin.generation, twin.observer = View({}, StoreState.WAITING), -1, None
        return twin

    def follow(self, other: KindStore) -> None:
        """Take over the objects and the state of the store that this one is a twin of,
        if they changed.
        """
        # generation first: the next call sees a change meanwhile
        generation, view = other.generation, other._view
        if generation != self.generation:
            objects = {
                namespace: dict(found) for namespace, found in view.by_namespace.copy().items()
            }
            self._view, self.generation = View(objects, view.state), generation

    def _small(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        """Return the fields that are stored of an object; None if it is not kept."""
        small: dict[str, Any] = {**self._type, **self._fields.filter(obj)}
        return self._summary.summarize(small) if self._summary is not None else small

    def _pack(self, small: dict[str, Any]) -> Any:
        """Return these fields as they are stored."""
        if not self._packed:
            return small
        metadata = {key: value for key, value in small["metadata"].items() if key not in _NAMES}
        own = {
            key: value
            for key, value in small.items()
            if value != self._type.get(key) and key != "metadata"
        }
        # A copy: what orjson 3.13 returns keeps its buffer of 4 KiB alive (measured: 4125 bytes for
        # a text of 80).
        text = bytes(
            memoryview(json_codec.dumps_bounded({**own, "metadata": metadata} if metadata else own))
        )
        if self._summary is not None:
            text = self._summary.compress(text)
        if len(text) > _ALIKE:
            return text
        if len(self._alike) > _DIFFERENT:
            self._alike.clear()
        return self._alike.setdefault(text, text)

    # --- reading

    @property
    def state(self) -> StoreState:
        return self._view.state

    @property
    def summarizes(self) -> bool:
        """Whether less is kept of an object than the fields that are read."""
        return self._summary is not None

    def __len__(self) -> int:
        return sum(len(objects) for objects in tuple(self._view.by_namespace.values()))

    def get(self, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it is known not to exist.

        Raises:
            Unseen: neither can be determined.
        """
        found = self.find(namespace, name)
        if found is None and not self._complete(self._view, namespace):
            raise _unseen(self.kind, namespace, name)
        return found

    def find(self, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it is not stored."""
        kept = self._view.by_namespace.get(namespace, {}).get(name)
        return self._unpack(kept, namespace, name) if kept is not None else None

    def require_complete(self, namespace: str | None = None) -> None:
        """Check that all objects are stored, of one namespace or of all.

        Raises:
            Unseen: there may be more.
        """
        if not self._complete(self._view, namespace):
            raise Unseen(str(self.kind))

    def known(self, namespace: str | None) -> Iterator[Object]:
        """Yield the objects that are stored now, in one namespace or in all."""
        return self._objects(self._view, namespace)

    def list(self, namespace: str | None) -> Iterator[Object]:
        """Yield the same objects.

        Raises:
            Unseen: at the end, if there may be more.
        """
        view = self._view
        yield from self._objects(view, namespace)
        if not self._complete(view, namespace):
            raise Unseen(str(self.kind))

    @property
    def view(self) -> View:
        """The objects as they are stored now, and their state."""
        return self._view

    def decode(self, kept: Any, name: tuple[str, str]) -> Object | None:
        """Return an object of a view; None: the view has none of this namespace and name."""
        return self._unpack(kept, *name) if kept is not None else None

    @property
    def complete(self) -> tuple[str, ...]:
        """The entry in ``complete`` of a snapshot, if all objects are stored;
        empty if some may be missing.
        """
        name = f"{self.namespace}/{self.kind.resource}" if self.namespace else self.kind.resource
        return (name,) if self._complete(self._view, self.namespace) else ()

    def __iter__(self) -> Iterator[Object]:
        """The objects, sorted by namespace and name."""
        for namespace, objects in sorted(self._view.by_namespace.items()):
            for name, kept in sorted(objects.items()):
                yield self._unpack(kept, namespace, name)

    def _complete(self, view: View, namespace: str | None) -> bool:
        return view.state in (StoreState.LISTED, StoreState.ABSENT) and self.namespace in (
            "",
            namespace,
        )

    def _objects(self, view: View, namespace: str | None) -> Iterator[Object]:
        for each in tuple(view.by_namespace) if namespace is None else (namespace,):
            for name, kept in tuple(view.by_namespace.get(each, {}).items()):
                yield self._unpack(kept, each, name)

    def _unpack(self, kept: Any, namespace: str, name: str) -> Object:
        if not self._packed:
            return Object(kept)
        data = json_codec.loads(
            self._summary.decompress(kept) if self._summary is not None else kept
        )
        names = {"name": name, "namespace": namespace} if namespace else {"name": name}
        return Object({**self._type, **data, "metadata": {**names, **data.get("metadata", {})}})


def names_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return the namespace (empty for what has none) and the name of an object."""
    return sys.intern(obj["metadata"].get("namespace") or ""), obj["metadata"]["name"]


def _unseen(kind: Kind, namespace: str, name: str) -> Unseen:
    return Unseen(f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}")


class _Derived(NamedTuple):
    value: Any
    seen: Mapping[KindStore, int]
    """The stores that were read, with their generations at that time."""
    server_version: str | None
    time: str | None
    """The time of the listing, if it was read."""


class ClusterCache:
    """A ``Cluster`` of stores, one for each kind."""

    def __init__(self, stores: Iterable[KindStore], server_version: str | None = None) -> None:
        self.stores = {store.kind: store for store in stores}
        self.find_other: Callable[[Kind], KindStore | None] = lambda _: None  # as ``store_of``
        self.server_version = server_version
        self.time: str | None = None
        self._derived: dict[Callable[[Cluster], Any], _Derived] = {}
        self._provided: dict[
            Callable[[Cluster], Any], tuple[Callable[[], Any], tuple[KindStore, ...]]
        ] = {}

    @property
    def generation(self) -> int:
        """A counter of the changes of all kinds."""
        return sum(store.generation for store in self.stores.values())

    def store_of(self, kind: Kind) -> KindStore | None:
        """Return the store of a kind; None: nothing is known of it."""
        return found if (found := self.stores.get(kind)) is not None else self.find_other(kind)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        namespace = namespace if kind.namespaced else ""
        store = self.store_of(kind)
        if store is None:
            raise _unseen(kind, namespace, name)
        return store.get(namespace, name)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        store = self.store_of(kind)
        return () if store is None else tuple(store.known(namespace))

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        store = self.store_of(kind)
        if store is None:
            raise Unseen(str(kind))
        yield from store.list(namespace)

    @property
    def complete(self) -> frozenset[str]:
        """As of a snapshot: the kinds of which every object is here,
        or every one in a namespace.
        """
        return frozenset(name for store in self.stores.values() for name in store.complete)

    @property
    def unreadable(self) -> frozenset[str]:
        """As of a snapshot: the kinds that could not be read."""
        return frozenset(
            kind.resource
            for kind, store in self.stores.items()
            if store.state is StoreState.REFUSED
        )

    def __iter__(self) -> Iterator[Object]:
        """All objects, sorted by kind, namespace and name; made one by one."""
        for kind in sorted(self.stores, key=lambda kind: kind.resource):
            yield from self.stores[kind]

    def cached(self, function: Callable[[Cluster], T]) -> T:
        provided = self._provided.get(function)
        value: T = provided[0]() if provided is not None else self._derive(function).value
        return value

    def provide(
        self, function: Callable[[Cluster], T], value: Callable[[], T], rests_on: Iterable[Kind]
    ) -> None:
        """Let ``cached(function)`` return this value,
        which follows the objects of some kinds by itself.
        """
        self._provided[function] = value, tuple(self.stores[kind] for kind in rests_on)

    def _derive(self, function: Callable[[Cluster], Any]) -> _Derived:
        if function in self._provided:
            value, stores = self._provided[function]
            return _Derived(
                value(), {store: store.generation for store in stores}, self.server_version, None
            )
        derived = self._derived.get(function)
        if derived is None or not self._holds(derived):
            watcher = _Watcher(self)
            derived = _Derived(
                computed(function, watcher), watcher.seen, watcher.server_version, watcher.time_read
            )
            if len(self._derived) >= _DERIVED:
                self._derived.clear()
            self._derived[function] = derived
        return derived

    def _holds(self, derived: _Derived) -> bool:
        for store, then in derived.seen.items():  # a generator takes three times as long
            if store.generation != then:
                return False
        return derived.server_version == self.server_version and derived.time in (None, self.time)


class _Watcher:
    """A cluster that records which stores are read:
    a derived value is valid until one of them changes.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self.server_version = cache.server_version
        self.seen: dict[KindStore, int] = {}
        self.time_read: str | None = None

    @property
    def time(self) -> str | None:
        self.time_read = self._cache.time
        return self.time_read

    def _note(self, kind: Kind) -> None:
        store = self._cache.store_of(kind)
        if store is not None:
            self.seen.setdefault(store, store.generation)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._note(kind)
        return self._cache.get(kind, namespace, name)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        self._note(kind)
        return self._cache.known(kind, namespace)

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        self._note(kind)
        return self._cache.list(kind, namespace)

    def cached(self, function: Callable[[Cluster], T]) -> T:
        derived = self._cache._derive(function)
        for store, then in derived.seen.items():
            self.seen.setdefault(store, then)
        self.time_read = derived.time or self.time_read
        value: T = derived.value
        return value
