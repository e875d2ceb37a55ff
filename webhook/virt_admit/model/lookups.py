"""Looking up an object where what cannot be read counts as not known,
and keeping values of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from virt_admit.model.kubernetes.cluster import Cluster, OutOfTime, Unseen, keep, keeps
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

S = TypeVar("S")
T = TypeVar("T")


def find(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Object | None:
    """Return an object that is known; None: it is not, or does not exist."""
    try:
        return cluster.get(kind, namespace, name)
    except Unseen:
        return None


def is_absent(cluster: Cluster, kind: Kind, namespace: str, name: str) -> bool:
    """Return whether an object is known not to exist."""
    try:
        return cluster.get(kind, namespace, name) is None
    except Unseen:
        return False


def keep_of(
    cluster: Cluster,
    kind: Kind,
    obj: Object,
    key: Hashable,
    function: Callable[[Object, Cluster], T],
) -> T:
    """Return ``function(obj, cluster)`` for an object of the cluster,
    kept by its names and a key for the function.

    A cluster that keeps values computes it from the object as it is then, which may be later than
    ``obj``.
    """
    if not keeps(cluster):
        return function(obj, cluster)
    namespace, name = obj.namespace, obj.name

    def of_current(cluster: Cluster) -> T:
        return function(cluster.get(kind, namespace, name) or obj, cluster)

    return keep(cluster, (key, kind, namespace, name), of_current)


class ReviewCache:
    """What is derived from objects and a cluster in one review: each value once for all rules."""

    __slots__ = ("_values", "cluster")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._values: dict[
            tuple[Callable[[Any, Cluster], Any], int], tuple[Any, Any, str | None]
        ] = {}

    def of(self, function: Callable[[S, Cluster], T], obj: S) -> T:
        """Return ``function(obj, cluster)``. ``obj`` is an object, or what was derived from one.

        Raises:
            Unseen: the function does, or did so before: what cannot be read is not searched again.
        """
        key = function, id(obj)
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = self._computed(function, obj)
        value, _, unseen = found
        if unseen is not None:
            raise Unseen(unseen)
        result: T = value
        return result

    def _computed(
        self, function: Callable[[S, Cluster], T], obj: S
    ) -> tuple[T | None, S, str | None]:
        """Return the value, the object (while it lives, no other one gets its id),
        and what could not be read.
        """
        try:
            return function(obj, self.cluster), obj, None
        except OutOfTime:
            raise
        except Unseen as unseen:
            return None, obj, unseen.what
