"""Looking up an object where what cannot be read counts as not known,
and keeping values of objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from virt_admit.model.kubernetes.cluster import Cluster, OutOfTime, Unseen, entry, keep, keeps
from virt_admit.model.kubernetes.kinds import PV, REPLICA_SET, Kind
from virt_admit.model.kubernetes.objects import Field, Object

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
T = TypeVar("T")


def find(cluster: Cluster, kind: Kind, namespace: str, name: str | None) -> Object | None:
    """Return an object that is known; None: it is not, does not exist, or no name is given."""
    try:
        return cluster.get(kind, namespace, name) if name else None
    except Unseen:
        return None


def fields(cluster: Cluster, kind: Kind, namespace: str, name: str | None) -> Field:
    """Return an object that is known, for a look at its fields: they are absent if it is not, does
    not exist, or no name is given.
    """
    found = find(cluster, kind, namespace, name)
    return found.root if found is not None else Field(None)


def volume_of(claim: Object | None, cluster: Cluster) -> Object | None:
    """Return the known volume to which a claim is bound; None: none, or no claim is given."""
    return find(cluster, PV, "", claim.at("spec", "volumeName").text) if claim is not None else None


def csi_of(claim: Object | None, cluster: Cluster) -> Field:
    """Return the driver and the handle of the volume of a claim; absent: it has none, or that could
    not be read.
    """
    volume = volume_of(claim, cluster)
    return volume.at("spec", "csi") if volume is not None else Field(None)


def find_named(cluster: Cluster, kind: Kind, name: str | None) -> Object | None:
    """Return the known object of a kind with this name, whatever its namespace; None: none has it,
    or no name is given."""
    return entry(cluster, _by_name(kind), name) if name else None


@functools.cache
def _by_name(kind: Kind) -> Callable[[Cluster], Mapping[str, Object]]:
    """Return what finds the objects of a kind by name, the first namespace first."""
    return lambda cluster: {each.name: each for each in reversed(cluster.known(kind))}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by a key, those of each key in their order."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def next_unlike(keys: Sequence[object]) -> Sequence[int]:
    """Return for each place the next one with another key; the length: there is none."""
    found = [len(keys)] * len(keys)
    for place in range(len(keys) - 2, -1, -1):
        alike = keys[place] == keys[place + 1]
        found[place] = found[place + 1] if alike else place + 1
    return found


def is_absent(cluster: Cluster, kind: Kind, namespace: str, name: str) -> bool:
    """Return whether an object is known not to exist."""
    try:
        return cluster.get(kind, namespace, name) is None
    except Unseen:
        return False


def maker_of(pod: Object, cluster: Cluster) -> Field | None:
    """Return the reference to what makes a pod again: the owner of its ReplicaSet, where that is
    known, else its controller; None: it has none.
    """
    made = find(cluster, REPLICA_SET, pod.namespace, pod.owned_by(REPLICA_SET.kind))
    above = made.controller if made is not None else None
    return above if above is not None else pod.controller


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


def once(function: Callable[[S, Cluster], T], obj: S, cluster: Cluster) -> T:
    """Return ``function(obj, cluster)``, computed once for each object
    as long as nothing changes in the cluster.

    A cluster that changes computes it each time: most values of so many objects are not worth what
    it takes to follow them. ``keep_of`` is for the others.
    """
    if keeps(cluster):
        return function(obj, cluster)
    return cluster.cached(ReviewCache).of(function, obj)
