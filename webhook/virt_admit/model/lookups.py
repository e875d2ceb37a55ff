"""Looking up an object where what cannot be read counts as not known, and keeping a value of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, keep, keeps
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object

T = TypeVar("T")


def find(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Object | None:
    """Return an object that is known; None: it is not, or does not exist."""
    try:
        return cluster.get(kind, namespace, name)
    except Unseen:
        return None


def keep_of(cluster: Cluster, kind: Kind, obj: Object, key: Hashable, function: Callable[[Object, Cluster], T]) -> T:
    """Return ``function(obj, cluster)`` for an object of the cluster, kept by its names and a key for the function.

    A cluster that keeps values computes it from the object as it is then, which may be later than ``obj``.
    """
    if not keeps(cluster):
        return function(obj, cluster)
    namespace, name = obj.namespace, obj.name

    def of_current(cluster: Cluster) -> T:
        return function(cluster.get(kind, namespace, name) or obj, cluster)

    return keep(cluster, (key, kind, namespace, name), of_current)
