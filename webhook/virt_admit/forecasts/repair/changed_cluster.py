"""A cluster in which some objects are replaced, as the steps of a plan would leave it.

The original stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, computed
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

T = TypeVar("T")
_Key = tuple[str, str]


class ChangedCluster:
    """The look-ups of a cluster with some objects replaced or added.

    What was not read stays unseen.
    """

    def __init__(self, base: Cluster, objects: Iterable[Object] = ()) -> None:
        changed: dict[Kind, dict[_Key, Object]] = {}
        if isinstance(base, ChangedCluster):
            changed = {kind: dict(found) for kind, found in base._changed.items()}
            base = base._base
        for obj in objects:
            kind = kinds.of(obj)
            if kind is not None:
                changed.setdefault(kind, {})[_key(kind, obj.namespace, obj.name)] = obj
        self._base: Cluster = base
        self._changed: Mapping[Kind, Mapping[_Key, Object]] = changed
        self._derived: dict[Callable[[Cluster], Any], Any] = {}

    @property
    def server_version(self) -> str | None:
        return self._base.server_version

    @property
    def time(self) -> str | None:
        return self._base.time

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        found = self._changed.get(kind, {}).get(_key(kind, namespace, name))
        return found if found is not None else self._base.get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        changed = self._changed.get(kind)
        if not changed:
            yield from self._base.list(kind, namespace)
            return
        yield from self.known(kind, namespace)
        for _ in self._base.list(kind, namespace):  # ``Unseen`` comes after the known objects
            pass

    def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
        changed = self._changed.get(kind)
        found = self._base.known(kind, namespace)
        if not changed:
            return found
        left = {key: obj for key, obj in changed.items() if namespace in (None, key[0])}
        result = [left.pop(_key(kind, obj.namespace, obj.name), obj) for obj in found]
        return [*result, *left.values()]

    def cached(self, function: Callable[[Cluster], T]) -> T:
        if function not in self._derived:
            self._derived[function] = computed(function, self)
        value: T = self._derived[function]
        return value


def _key(kind: Kind, namespace: str, name: str) -> _Key:
    return ((namespace or "default") if kind.namespaced else "", name)
