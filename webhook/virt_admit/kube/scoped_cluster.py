"""A part of a large cluster at one moment: the objects of some kinds that concern a question,
and all of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.indexed_store import Name
from virt_admit.model.kubernetes.cluster import Cluster, computed
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

T = TypeVar("T")

Scope = Mapping[Kind, Collection[Name]]
"""By kind the objects that a list of the whole cluster has.
Kinds that are missing here have all their objects.
"""


class ScopedCluster:
    """A cluster whose lists have only the objects of a scope.

    Look-ups by name or namespace have all objects.

    Values that need every object (``shared``) are passed in; all others are derived from the scope.
    """

    def __init__(
        self, whole: ClusterCache, scope: Scope, shared: Mapping[Callable[[Cluster], Any], Any]
    ) -> None:
        self._whole, self._scope = whole, scope
        self._derived: dict[Callable[[Cluster], Any], Any] = dict(shared)
        self._decoded: dict[Kind, tuple[Object, ...]] = {}

    @property
    def server_version(self) -> str | None:
        return self._whole.server_version

    @property
    def time(self) -> str | None:
        return self._whole.time

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._whole.get(kind, namespace, name)

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        if namespace is not None:
            return self._whole.known(kind, namespace)
        if kind not in self._decoded:
            self._decoded[kind] = self._decode(kind)
        return self._decoded[kind]

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        if namespace is not None or kind not in self._scope:
            yield from self._whole.list(kind, namespace)
            return
        yield from self.known(kind)
        self._whole.stores[kind].require_complete()

    def cached(self, function: Callable[[Cluster], T]) -> T:
        if function not in self._derived:
            self._derived[function] = computed(function, self)
        value: T = self._derived[function]
        return value

    def _decode(self, kind: Kind) -> tuple[Object, ...]:
        if kind not in self._scope:
            return tuple(self._whole.known(kind))
        found = (self._whole.stores[kind].find(*name) for name in sorted(self._scope[kind]))
        return tuple(obj for obj in found if obj is not None)
