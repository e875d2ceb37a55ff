"""The read model of a cluster: what rules may look up.

*Unseen is not absent.* A look-up answers None only if the object is known not to exist. What could not be read,
or is not there yet, raises ``Unseen``, and no rule ever denies because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from virt_admit.model import kinds
from virt_admit.model.kinds import Kind
from virt_admit.model.objects import Object

T = TypeVar("T")


class Unseen(Exception):
    """Something that a rule needs could not be seen.

    Raised by look-ups. A rule may also *yield* it, when only one of several independent look-ups was blind.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Cluster(Protocol):
    """What a rule can ask. Answers come from memory and never wait for the API server."""

    @property
    def server_version(self) -> str | None:
        """The API server's version (``v1.36.3``), or None if it is not known."""

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None if it is known not to exist.

        Raises:
            Unseen: it cannot be told.
        """

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        """The objects of a kind, in one namespace or in all of them.

        First come all that are known, then ``Unseen`` is raised if there may be more: certain beats unknown.
        """

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        """The objects of a kind that are known, be they all or not. Never raises."""

    def cached(self, function: Callable[[Cluster], T]) -> T:
        """``function(self)``, computed once for as long as nothing in this cluster changes."""


def gather(items: Iterable[T]) -> tuple[list[T], str]:
    """What can be seen of some items, and what could not be seen in the end; empty: everything was."""
    found: list[T] = []
    try:
        found.extend(items)
    except Unseen as unseen:
        return found, unseen.what
    return found, ""


def more_may_exist(cluster: Cluster, kind: Kind) -> Iterator[Unseen]:
    """``Unseen`` if there may be more objects of the kind than are known; for a rule to yield after its findings."""
    try:
        for _ in cluster.list(kind):
            pass
    except Unseen as unseen:
        yield unseen


class Snapshot:
    """A cluster held in memory: objects from files, or from one sweep over a live cluster.

    ``complete`` names the kinds of which every object is here, as ``plural.group``; ``"*"`` stands for every kind.
    ``namespace/plural.group`` means every object in that namespace.
    ``unreadable`` names the kinds that could not be read, even where ``complete`` says ``"*"``.
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        complete: Iterable[str] = (),
        unreadable: Iterable[str] = (),
        server_version: str | None = None,
    ) -> None:
        self.complete = frozenset(complete)
        self.unreadable = frozenset(unreadable)
        self.server_version = server_version
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
        self._derived: dict[Callable[[Cluster], Any], Any] = {}
        for obj in objects:
            kind = kinds.of(obj)
            namespace = obj.namespace or ("default" if kind is not None and kind.namespaced else "")
            self._objects.setdefault((obj.group, obj.kind), {})[namespace, obj.name] = obj

    def sees_all(self, kind: Kind) -> bool:
        """Whether every object of the kind is here."""
        if kind.resource in self.unreadable:
            return False
        return "*" in self.complete or kind.resource in self.complete

    def _sees(self, kind: Kind, namespace: str | None) -> bool:
        """Whether every object of the kind is here that is in the namespace."""
        scope = f"{namespace}/{kind.resource}"
        return self.sees_all(kind) or (scope in self.complete and kind.resource not in self.unreadable)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        if not kind.namespaced:
            namespace = ""
        found = self._objects.get((kind.group, kind.kind), {}).get((namespace, name))
        if found is None and not self._sees(kind, namespace):
            raise Unseen(f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}")
        return found

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        objects = self._objects.get((kind.group, kind.kind), {})
        if namespace is None:
            return list(objects.values())
        return [obj for (object_namespace, _), obj in objects.items() if object_namespace == namespace]

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        yield from self.known(kind, namespace)
        if not self._sees(kind, namespace):
            raise Unseen(str(kind))

    def cached(self, function: Callable[[Cluster], T]) -> T:
        if function not in self._derived:
            self._derived[function] = function(self)
        value: T = self._derived[function]
        return value

    def __iter__(self) -> Iterator[Object]:
        for objects in self._objects.values():
            yield from objects.values()


NOTHING: Cluster = Snapshot()
"""The cluster of which nothing can be seen."""
