"""A cluster held in little memory: what informers keep up to date, and what one sweep brings home."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from virt_admit.kube.field_filter import WHOLE, FieldSet, lookup_namespace, retained_fields
from virt_admit.model import json_codec
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import Kind
from virt_admit.model.objects import Object
from virt_admit.rules import Rules

T = TypeVar("T")

ByNamespace = dict[str, dict[str, Any]]
"""By namespace (empty for what has none), then by name: objects as a shelf keeps them."""

_ALIKE: Final = 256
"""Bytes. Shorter texts are mostly alike, such as those of claims; they are kept once."""
_DIFFERENT: Final = 10_000
"""So many different short texts are remembered; then they are not so alike, and remembering begins anew."""
_DERIVED: Final = 1_000
"""So many derived values are remembered: far more than there are functions, unless somebody makes them as he goes."""


class State(enum.Enum):
    """What is known of the objects of a kind."""

    WAITING = "not listed yet"
    LISTED = "listed"
    ABSENT = "not installed"
    """There is no such kind, or no such namespace, so there are no such objects."""
    REFUSED = "forbidden"


class View(NamedTuple):
    """Objects, and whether they are all there: read together, or a look-up might mistake unseen for absent."""

    by_namespace: ByNamespace
    state: State


class KindStore:
    """The objects of one kind. One thread writes; any number read at the same time, without a lock.

    Readers see each object whole, old or new. They rely on what CPython promises: a get, a set and a copy of a dict
    are atomic.
    """

    def __init__(self, kind: Kind, namespace: str = "", fields: FieldSet = WHOLE, *, packed: bool = False) -> None:
        """Make an empty store.

        Args:
            namespace: the only one that is looked into; empty: all.
            fields: the fields that are retained.
            packed: keep objects as JSON text even where the kind is not numerous.
        """
        self.kind = kind
        self.namespace = namespace
        self.generation = 0
        """Grows with every change that a rule could see."""
        self._view = View({}, State.WAITING)
        self._fields = fields
        self._packed = packed or kind.numerous
        self._type = {"apiVersion": kind.api_version, "kind": kind.kind}  # lists leave them out of their items
        self._alike: dict[bytes, bytes] = {}

    # --- writing

    def add(self, by_namespace: ByNamespace, obj: dict[str, Any]) -> None:
        """Put an object among others that are not on the shelf yet."""
        namespace, name = _names(obj)
        by_namespace.setdefault(namespace, {})[name] = self._pack(obj)

    def replace(self, by_namespace: ByNamespace, state: State) -> None:
        """From now on these are all the objects, and this is what is known of the kind."""
        if self._view != (by_namespace, state):
            self._view = View(by_namespace, state)
            self.generation += 1

    def put(self, obj: dict[str, Any]) -> None:
        """An object is new, or has changed."""
        namespace, name = _names(obj)
        packed = self._pack(obj)
        home = self._view.by_namespace.setdefault(namespace, {})
        if home.get(name) != packed:
            home[name] = packed
            self.generation += 1  # last: who reads the generation first and the object then never misses a change

    def drop(self, obj: dict[str, Any]) -> None:
        """An object is gone."""
        namespace, name = _names(obj)
        home = self._view.by_namespace.get(namespace, {})
        if home.pop(name, None) is not None:
            if not home:
                del self._view.by_namespace[namespace]
            self.generation += 1

    def _pack(self, obj: dict[str, Any]) -> Any:
        small = {**self._type, **self._fields.filter(obj)}
        if not self._packed:
            return small
        metadata = _without(small["metadata"], "name", "namespace")
        own = {key: value for key, value in small.items() if value != self._type.get(key) and key != "metadata"}
        text = json_codec.dumps({**own, "metadata": metadata} if metadata else own)
        if len(text) > _ALIKE:
            return text
        if len(self._alike) > _DIFFERENT:
            self._alike.clear()
        return self._alike.setdefault(text, text)

    # --- reading

    @property
    def state(self) -> State:
        return self._view.state

    def __len__(self) -> int:
        return sum(len(home) for home in tuple(self._view.by_namespace.values()))

    def get(self, namespace: str, name: str) -> Object | None:
        """The object, or None if it is known not to exist.

        Raises:
            Unseen: it cannot be told.
        """
        view = self._view
        kept = view.by_namespace.get(namespace, {}).get(name)
        if kept is not None:
            return self._unpack(kept, namespace, name)
        if not self._complete(view, namespace):
            raise _unseen(self.kind, namespace, name)
        return None

    def known(self, namespace: str | None) -> Iterator[Object]:
        """The objects that are here now, in one namespace or in all."""
        return self._objects(self._view, namespace)

    def list(self, namespace: str | None) -> Iterator[Object]:
        """The same.

        Raises:
            Unseen: at the end, if there may be more.
        """
        view = self._view
        yield from self._objects(view, namespace)
        if not self._complete(view, namespace):
            raise Unseen(str(self.kind))

    @property
    def complete(self) -> tuple[str, ...]:
        """What a snapshot calls it, if every object is here, or every one in the namespace that is looked into."""
        name = f"{self.namespace}/{self.kind.resource}" if self.namespace else self.kind.resource
        return (name,) if self._complete(self._view, self.namespace) else ()

    def __iter__(self) -> Iterator[Object]:
        """The objects, sorted by namespace and name."""
        for namespace, home in sorted(self._view.by_namespace.items()):
            for name, kept in sorted(home.items()):
                yield self._unpack(kept, namespace, name)

    def _complete(self, view: View, namespace: str | None) -> bool:
        return view.state in (State.LISTED, State.ABSENT) and self.namespace in ("", namespace)

    def _objects(self, view: View, namespace: str | None) -> Iterator[Object]:
        for home in tuple(view.by_namespace) if namespace is None else (namespace,):
            for name, kept in tuple(view.by_namespace.get(home, {}).items()):
                yield self._unpack(kept, home, name)

    def _unpack(self, kept: Any, namespace: str, name: str) -> Object:
        if not self._packed:
            return Object(kept)
        data = json_codec.loads(kept)
        names = {"name": name, "namespace": namespace} if namespace else {"name": name}
        return Object({**self._type, **data, "metadata": {**names, **data.get("metadata", {})}})


def stores(rules: Rules, *, whole: bool = False) -> list[KindStore]:
    """Return stores for everything that these rules judge or look up.

    Of kinds that are only looked up the stores keep the fields that the rules read, or every field if ``whole``.
    """
    retained = retained_fields(rules)
    complete = {kind for kind in (*rules.kinds, *retained) if whole or kind in rules.by_kind}
    return [
        KindStore(
            kind,
            lookup_namespace(kind, rules),
            WHOLE if kind in complete else retained[kind],
            packed=kind in complete,
        )
        for kind in sorted({*rules.kinds, *retained})
    ]


def lookup_stores(rules: Rules) -> list[KindStore]:
    """Return stores for everything that these rules look up, with the fields that they read."""
    return [KindStore(kind, lookup_namespace(kind, rules), fields) for kind, fields in retained_fields(rules).items()]


def _without(fields: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in keys}


def _names(obj: Mapping[str, Any]) -> tuple[str, str]:
    metadata = obj["metadata"]
    return sys.intern(metadata.get("namespace") or ""), metadata["name"]


def _unseen(kind: Kind, namespace: str, name: str) -> Unseen:
    return Unseen(f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}")


class _Derived(NamedTuple):
    value: Any
    seen: Mapping[KindStore, int]
    """What it was made from: the shelves that were looked at, and their generations then."""
    server_version: str | None


class ClusterCache:
    """A ``Cluster`` of shelves."""

    def __init__(self, stores: Iterable[KindStore], server_version: str | None = None) -> None:
        self.stores = {store.kind: store for store in stores}
        self.server_version = server_version
        self._derived: dict[Callable[[Cluster], Any], _Derived] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        namespace = namespace if kind.namespaced else ""
        store = self.stores.get(kind)
        if store is None:
            raise _unseen(kind, namespace, name)
        return store.get(namespace, name)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        store = self.stores.get(kind)
        return () if store is None else tuple(store.known(namespace))

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        store = self.stores.get(kind)
        if store is None:
            raise Unseen(str(kind))
        yield from store.list(namespace)

    @property
    def complete(self) -> frozenset[str]:
        """As of a snapshot: the kinds of which every object is here, or every one in a namespace."""
        return frozenset(name for store in self.stores.values() for name in store.complete)

    @property
    def unreadable(self) -> frozenset[str]:
        """As of a snapshot: the kinds that could not be read."""
        return frozenset(kind.resource for kind, store in self.stores.items() if store.state is State.REFUSED)

    def __iter__(self) -> Iterator[Object]:
        """All objects, sorted by kind, namespace and name; made one by one."""
        for kind in sorted(self.stores, key=lambda kind: kind.resource):
            yield from self.stores[kind]

    def cached(self, function: Callable[[Cluster], T]) -> T:
        value: T = self._derive(function).value
        return value

    def _derive(self, function: Callable[[Cluster], Any]) -> _Derived:
        derived = self._derived.get(function)
        if derived is None or not self._holds(derived):
            watcher = _Watcher(self)
            derived = _Derived(function(watcher), watcher.seen, watcher.server_version)
            if len(self._derived) >= _DERIVED:
                self._derived.clear()
            self._derived[function] = derived
        return derived

    def _holds(self, derived: _Derived) -> bool:
        for store, then in derived.seen.items():  # a generator would take thrice as long
            if store.generation != then:
                return False
        return derived.server_version == self.server_version


class _Watcher:
    """A cluster that notes what is looked at: what is derived from it holds until that changes."""

    def __init__(self, cache: ClusterCache) -> None:
        self._inventory = cache
        self.server_version = cache.server_version
        self.seen: dict[KindStore, int] = {}

    def _note(self, kind: Kind) -> None:
        store = self._inventory.stores.get(kind)
        if store is not None:
            self.seen.setdefault(store, store.generation)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._note(kind)
        return self._inventory.get(kind, namespace, name)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        self._note(kind)
        return self._inventory.known(kind, namespace)

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        self._note(kind)
        return self._inventory.list(kind, namespace)

    def cached(self, function: Callable[[Cluster], T]) -> T:
        derived = self._inventory._derive(function)
        for store, then in derived.seen.items():
            self.seen.setdefault(store, then)
        value: T = derived.value
        return value


class Informed(NamedTuple):
    """The look-ups of one kind."""

    kind: str
    current: bool
    """Whether they are listed, or known to be none, and changes arrive."""
    objects: int
