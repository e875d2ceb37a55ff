"""Values computed from a cluster, each computed again only after something that it read has
changed.

A value is computed through a view of its own, which records the look-ups. Values that are made of
other values record that instead, so a value that is computed again and stays the same ends the
chain (Mokhov, Mitchell and Peyton Jones, "Build Systems à la Carte", 2018: early cutoff). What a
value rests on is never gone through as a whole: a change marks what is above it, and a value that
became another one marks those that used it, so the cost follows the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from virt_admit.engine.object_table import Name, ObjectTable
from virt_admit.engine.recorded_values import (
    Ambient,
    EachObject,
    MappingEntry,
    Read,
    Value,
    same,
    same_outcome,
    whole,
)
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, computed
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

K = TypeVar("K")
T = TypeVar("T")


Versions = Mapping[Callable[[Cluster], Any], Callable[[Any], Hashable]]
"""By function what tells two versions of a value apart that the cluster itself keeps up to date."""


class NamedCluster(Cluster, Protocol):
    """A cluster whose objects can be named without decoding them."""

    def names(self, kind: Kind, namespace: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of each known object, in the order of ``list``."""

    def unlisted(self, kind: Kind, namespace: str | None = None) -> str:
        """Return what could not be read if more objects of a kind may exist, else an empty text."""


_HUB: Final = 32
"""Users of a value from which it is a hub."""


class RecordedCluster:
    """Computes values from a cluster that changes between two rounds, and keeps them.

    For one thread.
    """

    def __init__(self, cluster: NamedCluster, versions: Versions = MappingProxyType({})) -> None:
        self.cluster = cluster
        self._server_version = cluster.server_version
        self._versions = {function: (version, object()) for function, version in versions.items()}
        self._values: dict[Hashable, Value] = {}
        self._readers: dict[Read, set[Hashable]] = {}
        self._users: dict[Hashable, set[Hashable]] = {}
        self._stale: set[Hashable] = set()
        """Values that read something that changed, or used a value that became another one."""
        self._due: set[Hashable] = set()
        """These, and all that use them, maybe over others.
        Between two rounds none of them is a hub.
        """
        self._hubs: set[Hashable] = set()
        """Values that are due and that many use. They are computed first: mostly they stay the
        same, and their users too.
        """
        self._entries: dict[Hashable, set[MappingEntry]] = {}
        """By mapping the entries that are used."""
        self._left: set[Hashable] = set()
        """Values and entries that another value used and that none used when it was left."""
        self._objects: WeakValueDictionary[tuple[Kind, str, str], Object] = WeakValueDictionary()
        """The decoded objects that any value holds."""
        self._tables: dict[Kind, dict[Callable[[Object], Any], ObjectTable[Any]]] = {}
        """By kind and function the value of each object."""
        self._names: dict[Kind, tuple[Name, ...]] = {}
        self._renamed: set[Kind] = set()
        """Kinds of which objects may have come or gone since ``_names`` was made."""
        self.computed = 0
        """A counter of computations."""
        self.view: Cluster = RecordedView(self, None)
        """The cluster with these values. What is read here is not recorded."""

    def __len__(self) -> int:
        """Return the number of values that are kept."""
        return len(self._values)

    @property
    def due(self) -> frozenset[Hashable]:
        """The keys of values that may have to be computed again."""
        return frozenset(self._due)

    def change(
        self,
        objects: Iterable[tuple[Kind, str, str]],
        reads: Iterable[Read],
        kinds: Collection[Kind] = (),
    ) -> bool:
        """Begin a round.

        Args:
            objects: the objects that changed.
            reads: what has to be read again because of that. A change of a field that nothing reads
                is none.
            kinds: the kinds of which every read has to be repeated.

        Returns:
            Whether any value may have to be computed again that had not to be before.
        """
        self._forget_unused()
        before = len(self._stale), len(self._due)
        changed = set(reads)
        if kinds:
            changed.update(
                read for read in self._readers if isinstance(read, tuple) and read[0] in kinds
            )
        for read in changed:
            self._mark(self._readers.get(read, ()))
        self._forget_objects(objects, kinds)
        if self._server_version != self.cluster.server_version:
            self._server_version = self.cluster.server_version
            self._mark(self._readers.get(Ambient.SERVER_VERSION, ()))
        self._mark(function for function in self._versions if self._has_other_version(function))
        self._follow_hubs()
        return (len(self._stale), len(self._due)) > before

    def _mark(self, stale: Iterable[Hashable]) -> None:
        """Note that values have to be computed again, and that what uses them may have to be."""
        pending = list(stale)
        self._stale.update(pending)
        while pending:
            key = pending.pop()
            if key in self._due:
                continue
            self._due.add(key)
            users = self._users.get(key, ())
            if len(users) > _HUB or key in self._entries:
                self._hubs.add(key)
            else:
                pending += users

    def _follow_hubs(self) -> None:
        """Compute again what many use, which marks its users if it is not the same."""
        while self._hubs:
            key = self._hubs.pop()
            if key in self._due and key in self._values:
                self._current(key, self._values[key].compute)

    def _mark_users(
        self, key: Hashable, before: Value | None = None, now: Value | None = None
    ) -> None:
        """Mark what used a value that became another one,
        but not what used an entry of it that is the same.
        """
        self._mark(self._users.get(key, ()))
        for entry in self._entries.get(key, ()):
            if (
                before is None
                or now is None
                or not same(before.entry(entry.key), now.entry(entry.key))
            ):
                self._mark(self._users.get(entry, ()))

    def _forget_unused(self) -> None:
        """Drop values that were left and that none has used since, and what they alone used."""
        while self._left:
            key = self._left.pop()
            if key in self._users or self._entries.get(key):
                continue
            if isinstance(key, MappingEntry):
                self._entries[key.function].discard(key)
                self._left.add(key.function)
            else:
                self._entries.pop(key, None)
                self.forget(key)

    def _forget_objects(
        self, objects: Iterable[tuple[Kind, str, str]], kinds: Collection[Kind]
    ) -> None:
        for key in [key for key in self._objects if key[0] in kinds] if kinds else ():
            self._objects.pop(key, None)
        for kind in kinds:
            self._tables.pop(kind, None)
        self._renamed.update(kinds)
        for kind, namespace, name in objects:
            self._renamed.add(kind)
            self._objects.pop((kind, namespace, name), None)
            for table in self._tables.get(kind, {}).values():
                table.due.add((namespace, name))

    def names(self, kind: Kind) -> tuple[Name, ...]:
        """Return namespace and name of each known object of a kind;
        the same tuple until one comes or goes.
        """
        known = self._names.get(kind)
        if known is None or kind in self._renamed:
            found = tuple(self.cluster.names(kind))
            known = self._names[kind] = found if found != known else known
            self._renamed.discard(kind)
        return known

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Look up an object, which is decoded once as long as any value holds it."""
        key = kind, namespace, name
        found = self._objects.get(key)
        if found is None:
            found = self.cluster.get(kind, namespace, name)
            if found is not None:
                self._objects[key] = found
        return found

    def known(self, kind: Kind, namespace: str | None) -> Iterator[Object]:
        """Yield the known objects of a kind, in one namespace or in all."""
        for name in self.cluster.names(kind, namespace):
            found = self.get(kind, *name)
            if found is not None:
                yield found

    def _has_other_version(self, function: Callable[[Cluster], Any]) -> bool:
        version, before = self._versions[function]
        now = version(self.cluster.cached(function))
        self._versions[function] = version, now
        return now != before

    def remember(self, key: Hashable, compute: Callable[[Cluster], T]) -> T:
        """Return ``compute(cluster)``, or raise what it raises;
        computed again only after what it read has changed.
        """
        value: T = self._current(key, compute).outcome()
        return value

    def forget(self, key: Hashable) -> None:
        """Drop a value that is not needed again. What used it nevertheless is computed again."""
        self._drop(key)
        self._mark_users(key)
        self._follow_hubs()

    def _drop(self, key: Hashable) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            _unlink(self._readers, value.reads, key)
            self._left.update(_unlink(self._users, value.uses, key))
        self._stale.discard(key)
        self._due.discard(key)

    def _current(self, key: Hashable, compute: Callable[[Cluster], Any]) -> Value:
        value = self._values.get(key)
        if value is None or (key in self._due and not self._holds(value)):
            return self._compute(key, compute)
        self._due.discard(key)
        return value

    def _holds(self, value: Value) -> bool:
        """Return whether what this value read, and all values that it uses, are what they were."""
        for key in sorted(value.uses.keys() & self._due, key=value.uses.__getitem__):
            if value.key in self._stale:
                break
            if key in self._due:
                self._current(key, self._values[key].compute)
        return value.key not in self._stale

    def _compute(self, key: Hashable, compute: Callable[[Cluster], Any]) -> Value:
        before = self._values.get(key)
        self._drop(key)
        value = self._values[key] = Value(key, compute)
        self.computed += 1
        if compute in self._versions:
            self._has_other_version(compute)  # notes the version
            value.value = self.cluster.cached(compute)
            self._mark_users(key)
            return value
        try:
            value.value = computed(compute, RecordedView(self, value))
        except Exception as error:  # the value of everything that lets it pass
            value.error = error
        except BaseException:
            self.forget(key)
            raise
        if before is not None and same_outcome(before, value):
            value.value, value.error = before.value, before.error
        else:
            self._mark_users(key, before, value)
        return value

    def read(self, reader: Value | None, read: Read) -> None:
        """Record that a value read something, perhaps after it was computed."""
        if reader is not None and read not in reader.reads:
            reader.reads.add(read)
            if self._values.get(reader.key) is reader:
                self._readers.setdefault(read, set()).add(reader.key)

    def use(self, user: Value | None, key: Hashable, compute: Callable[[Cluster], T]) -> T:
        """Return a value that others use too, and record who does."""
        used = self._current(key, compute)
        self._link(user, key)
        value: T = used.outcome()
        return value

    def entry(
        self, user: Value | None, function: Callable[[Cluster], Mapping[K, T]], key: K
    ) -> T | None:
        """Return one entry of a mapping that others use too, and record who does."""
        used, entry = self._current(function, function), MappingEntry(function, key)
        self._link(user, entry)
        self._entries.setdefault(function, set()).add(entry)
        found: Mapping[K, T] = used.outcome()
        return found.get(key)

    def _link(self, user: Value | None, key: Hashable) -> None:
        if user is not None and key not in user.uses:
            user.uses[key] = len(user.uses)
            if self._values.get(user.key) is user:
                self._users.setdefault(key, set()).add(user.key)

    def each(self, kind: Kind, function: Callable[[Object], T]) -> Sequence[T]:
        """Return the function's value of each known object of a kind."""

        def compute(name: Name) -> T:
            obj = self.get(kind, *name)
            if obj is None:
                raise LookupError(f"{kind} {name}, which the cluster names")
            return function(obj)

        return (
            self._tables.setdefault(kind, {})
            .setdefault(function, ObjectTable())
            .values(self.names(kind), compute)
        )


def _unlink(index: dict[Any, set[Hashable]], keys: Iterable[Any], reader: Hashable) -> list[Any]:
    """Remove a reader of these keys, and return those that have none left."""
    left = []
    for key in keys:
        linked = index.get(key)
        if linked is not None:
            linked.discard(reader)
            if not linked:
                del index[key]
                left.append(key)
    return left


class RecordedView:
    """The look-ups of a cluster, recorded for one value,
    also those that the value itself makes later.
    """

    __slots__ = ("_reader", "_recorded")

    def __init__(self, recorded: RecordedCluster, reader: Value | None) -> None:
        self._recorded, self._reader = recorded, reader

    def _cluster(self, read: Read) -> NamedCluster:
        self._recorded.read(self._reader, read)
        return self._recorded.cluster

    @property
    def server_version(self) -> str | None:
        return self._cluster(Ambient.SERVER_VERSION).server_version

    @property
    def time(self) -> str | None:
        return self._cluster(Ambient.TIME).time

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        namespace = namespace if kind.namespaced else ""
        self._recorded.read(self._reader, (kind, namespace, name))
        return self._recorded.get(kind, namespace, name)

    def whole(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object of which every field may be read."""
        self._recorded.read(self._reader, whole(kind, namespace, name))
        return self._recorded.get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        self._recorded.read(self._reader, (kind, namespace, None))
        yield from self._recorded.known(kind, namespace)
        unseen = self._recorded.cluster.unlisted(kind, namespace)
        if unseen:
            raise Unseen(unseen)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        self._recorded.read(self._reader, (kind, namespace, None))
        return tuple(self._recorded.known(kind, namespace))

    def each_now(self, kind: Kind, function: Callable[[Object], T]) -> Sequence[T]:
        """Return a value of each object, and record that all objects of the kind were read."""
        self._recorded.read(self._reader, (kind, None, None))
        return self._recorded.each(kind, function)

    def cached(self, function: Callable[[Cluster], T]) -> T:
        return self._recorded.use(self._reader, function, function)

    def keep(self, key: Hashable, compute: Callable[[Cluster], T]) -> T:
        return self._recorded.use(self._reader, key, compute)

    def entry(self, function: Callable[[Cluster], Mapping[K, T]], key: K) -> T | None:
        return self._recorded.entry(self._reader, function, key)

    def unlisted(self, kind: Kind) -> str:
        return self._cluster((kind, None, "state")).unlisted(kind)

    def each(self, kind: Kind, function: Callable[[Object], T]) -> Sequence[T]:
        """Return a value of each object.

        Most changes of an object leave it as it was, and what uses the values, too.
        """
        return self._recorded.use(
            self._reader, EachObject(function, kind), partial(_each, kind, function)
        )


def _each(kind: Kind, function: Callable[[Object], T], view: Any) -> Sequence[T]:
    values: Sequence[T] = view.each_now(kind, function)
    return values
