"""The read model of a cluster: the objects that rules may look up.

*Unseen is not absent.* A look-up returns None only if the object is known not to exist. An object
that could not be read raises ``Unseen``, and so does one that may not exist yet. No rule ever
denies because of ``Unseen``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
T = TypeVar("T")


class AbsentObject(str):
    """What a rule needs and is known not to exist: it was read, and may be created later."""

    __slots__ = ()


class Unseen(Exception):
    """Data that a rule needs could not be read.

    Look-ups raise it. A rule may also *yield* it when only one of several independent look-ups
    failed. ``what`` is an ``AbsentObject`` where nothing is unread.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Cluster(Protocol):
    """The look-ups that rules may make.

    They answer from memory and never wait for the API server.
    """

    @property
    def server_version(self) -> str | None:
        """The API server's version (``v1.36.3``), or None if it is not known."""

    @property
    def time(self) -> str | None:
        """The API server's time at the end of the listing (RFC 3339); None: not recorded,
        or the cluster changes.
        """

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object, or None if it is known not to exist.

        Raises:
            Unseen: it cannot be determined whether the object exists.
        """

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        """Yield the objects of a kind, in one namespace or in all of them.

        The known objects come first, because certain beats unknown.

        Raises:
            Unseen: after the known objects, if more may exist.
        """

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        """Return the known objects of a kind, which may not be all of them. Never raises."""

    def cached(self, function: Callable[[Cluster], T]) -> T:
        """Return ``function(self)``, computed once as long as nothing in this cluster changes."""


class KeepingCluster(Cluster, Protocol):
    """A cluster that changes, and that keeps each value until something changes that its
    computation read.
    """

    def keep(self, key: Hashable, compute: Callable[[Cluster], T]) -> T:
        """Return ``compute(self)``, kept by the key."""

    def entry(self, function: Callable[[Cluster], Mapping[K, T]], key: K) -> T | None:
        """Return one entry of a mapping. Others may change without any effect."""

    def each(self, kind: Kind, function: Callable[[Object], T]) -> Sequence[T]:
        """Return ``function(obj)`` of each known object of a kind,
        computed again only for those that changed.
        """

    def unlisted(self, kind: Kind) -> str:
        """Return what could not be read if more objects of a kind may exist, else an empty text."""


def cached(find: Callable[[Cluster], T]) -> Callable[[Cluster], T]:
    """Let a function compute its value once as long as nothing changes in the cluster."""

    @functools.wraps(find)
    def found(cluster: Cluster) -> T:
        return cluster.cached(find)

    return found


def keeps(cluster: Cluster) -> bool:
    """Whether a cluster keeps values by key."""
    return hasattr(cluster, "keep")


def _keeping(cluster: Cluster) -> KeepingCluster | None:
    return cluster if keeps(cluster) else None  # type: ignore[return-value]


def keep(cluster: Cluster, key: Hashable, compute: Callable[[Cluster], T]) -> T:
    """Return ``compute(cluster)``: a value of one object,
    of which a cluster has so many that few clusters keep them.
    """
    keeping = _keeping(cluster)
    return compute(cluster) if keeping is None else keeping.keep(key, compute)


def entry(cluster: Cluster, function: Callable[[Cluster], Mapping[K, T]], key: K) -> T | None:
    """Return one entry of a mapping that is derived from a cluster.

    Other entries may change without any effect.
    """
    keeping = _keeping(cluster)
    return cluster.cached(function).get(key) if keeping is None else keeping.entry(function, key)


class Entries(Mapping[K, T]):
    """A mapping that is derived from a cluster. What looks up entries rests on these alone."""

    __slots__ = ("_cluster", "_function")

    def __init__(self, cluster: Cluster, function: Callable[[Cluster], Mapping[K, T]]) -> None:
        self._cluster, self._function = cluster, function

    def __getitem__(self, key: K) -> T:
        found = entry(self._cluster, self._function, key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self._cluster.cached(self._function))

    def __len__(self) -> int:
        return len(self._cluster.cached(self._function))


def each(cluster: Cluster, kind: Kind, function: Callable[[Object], T]) -> Sequence[T]:
    """Return ``function(obj)`` of each known object of a kind.

    The function reads nothing but the object.
    """
    keeping = _keeping(cluster)
    if keeping is None:
        return gather(map(function, cluster.list(kind)))[0]
    return keeping.each(kind, function)


def unlisted(cluster: Cluster, kind: Kind) -> str:
    """Return what could not be read if more objects of a kind may exist than are known,
    else an empty text.
    """
    keeping = _keeping(cluster)
    return cluster.cached(_unlisted(kind)) if keeping is None else keeping.unlisted(kind)


@functools.cache
def _unlisted(kind: Kind) -> Callable[[Cluster], str]:
    return lambda cluster: gather(cluster.list(kind))[1]


OUT_OF_TIME: Final = "the rest of the object: the time limit of the review"


class OutOfTime(Unseen):
    """The time limit of the review is over, so nothing more is looked up."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_TIME)


# a context manager; as a generator it would cost five times as much in each review
class time_limit:  # noqa: N801
    """Let ``check_time`` end the computations of the block when the time is over."""

    __slots__ = ("_token", "expired", "reached")

    def __init__(self, expired: Callable[[], bool]) -> None:
        self.expired = expired
        self.reached = False
        """Whether it ended a computation."""

    def __enter__(self) -> None:
        self._token = _limit.set(self)

    def __exit__(self, *_: object) -> None:
        _limit.reset(self._token)


_limit: ContextVar[time_limit | None] = ContextVar("limit", default=None)


def check_time() -> None:
    """End a loop whose length depends on other objects.

    Without a limit, as in ``check`` and ``scan``, do nothing.

    Raises:
        OutOfTime: the time of the review is over.
    """
    limit = _limit.get()
    if limit is not None and limit.expired():
        limit.reached = True
        raise OutOfTime


def computed(function: Callable[[Cluster], T], cluster: Cluster) -> T:
    """Return ``function(cluster)``, a value to remember.

    Raises:
        OutOfTime: the time limit ended a part of the computation, even if the function went on
            without that part.
    """
    limit = _limit.get()
    if limit is None:
        return function(cluster)
    before, limit.reached = limit.reached, False
    try:
        value = function(cluster)
        if limit.reached:
            raise OutOfTime
    finally:
        limit.reached = limit.reached or before
    return value


class TimedCluster:
    """The look-ups of a cluster until the time is over; then they raise ``OutOfTime``, at each
    object of a list too.

    A rule may compare each item of a large object with each object of a large cluster. Between two
    findings only its look-ups can end it. ``known`` never raises. What ``cached`` computes, it
    computes from the cluster itself: a value of half of the objects must not be remembered. Only
    ``check_time`` ends such a computation, and then nothing is remembered.
    """

    __slots__ = ("_cluster", "_expired")

    def __init__(self, cluster: Cluster, expired: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._expired = expired

    @property
    def server_version(self) -> str | None:
        return self._cluster.server_version

    @property
    def time(self) -> str | None:
        return self._cluster.time

    def _check(self) -> None:
        if self._expired():
            raise OutOfTime

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._check()
        return self._cluster.get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        self._check()
        for obj in self._cluster.list(kind, namespace):
            yield obj
            self._check()

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        return self._cluster.known(kind, namespace)

    def cached(self, function: Callable[[Cluster], T]) -> T:
        self._check()
        return self._cluster.cached(function)


def gather(items: Iterable[T]) -> tuple[list[T], str]:
    """Collect items until they end or raise ``Unseen``.

    Returns:
        The items, and what could not be read (empty if all items were read).
    """
    found: list[T] = []
    try:
        found.extend(items)
    except Unseen as unseen:
        return found, unseen.what
    return found, ""


def first_known(checks: Iterable[Callable[[], T | None]]) -> T | None:
    """Return the first result that is not None, whatever the other checks cannot read.

    None: no check has a result.

    Raises:
        Unseen: no check has a result, and one of them could not read what it needs.
    """
    blind: Unseen | None = None
    for check in checks:
        try:
            found = check()
        except Unseen as unseen:
            blind = blind or unseen
            continue
        if found is not None:
            return found
    if blind is not None:
        raise blind
    return None


def more_may_exist(cluster: Cluster, kind: Kind) -> Iterator[Unseen]:
    """Yield ``Unseen`` if more objects of the kind may exist than are known.

    Rules yield it after their findings.
    """
    yield from map(Unseen, filter(None, (unlisted(cluster, kind),)))


class Snapshot:
    """A cluster held in memory: objects from files, or from one read of a live cluster.

    Args:
        objects: the objects of the cluster.
        complete: the kinds whose objects are all present, as ``plural.group``; ``"*"`` means every
            kind, and ``namespace/plural.group`` means every object in that namespace.
        unreadable: the kinds that could not be read, even where ``complete`` has ``"*"``.
        server_version: the API server's version, if it is known.
        time: the API server's time at the end of the listing (RFC 3339), if it is known.
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        complete: Iterable[str] = (),
        unreadable: Iterable[str] = (),
        server_version: str | None = None,
        time: str | None = None,
    ) -> None:
        self.time = time
        self.complete = frozenset(complete)
        self.unreadable = frozenset(unreadable)
        self.server_version = server_version
        self._derived: dict[Callable[[Cluster], Any], Any] = {}
        found: dict[tuple[str, str], dict[str, dict[str, Object]]] = {}
        for obj in objects:
            namespace = obj.namespace or _namespace_of(kinds.of(obj))
            found.setdefault((obj.group, obj.kind), {}).setdefault(namespace, {})[obj.name] = obj
        self._objects = {
            kind: {
                namespace: dict(sorted(named.items()))
                for namespace, named in sorted(by_namespace.items())
            }
            for kind, by_namespace in found.items()
        }
        """By group and kind, then by namespace (empty for what has none), then by name: in the
        order of the API server.
        """

    def sees_all(self, kind: Kind) -> bool:
        """Whether every object of the kind is present."""
        resource = kind.resource
        return resource not in self.unreadable and (
            "*" in self.complete or resource in self.complete
        )

    def _sees(self, kind: Kind, namespace: str | None) -> bool:
        """Whether every object of the kind in the namespace is present."""
        scope = f"{namespace}/{kind.resource}"
        return self.sees_all(kind) or (
            scope in self.complete and kind.resource not in self.unreadable
        )

    def _of(self, kind: Kind) -> dict[str, dict[str, Object]]:
        return self._objects.get((kind.group, kind.kind), {})

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        if not kind.namespaced:
            namespace = ""
        found = self._of(kind).get(namespace, {}).get(name)
        if found is None and not self._sees(kind, namespace):
            raise Unseen(f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}")
        return found

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        by_namespace = self._of(kind)
        if namespace is None:
            return [obj for objects in by_namespace.values() for obj in objects.values()]
        return list(by_namespace.get(namespace, {}).values())

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        yield from self.known(kind, namespace)
        if not self._sees(kind, namespace):
            raise Unseen(str(kind))

    def cached(self, function: Callable[[Cluster], T]) -> T:
        if function not in self._derived:
            self._derived[function] = computed(function, self)
        value: T = self._derived[function]
        return value

    def provide(self, function: Callable[[Cluster], Any], value: Any) -> None:
        """Let ``cached(function)`` return this value."""
        self._derived[function] = value

    def __iter__(self) -> Iterator[Object]:
        for by_namespace in self._objects.values():
            for objects in by_namespace.values():
                yield from objects.values()


def _namespace_of(kind: Kind | None) -> str:
    """Return the namespace of an object of a kind that names none."""
    return "default" if kind is not None and kind.namespaced else ""


NOTHING: Cluster = Snapshot()
"""A cluster of which nothing is known."""
