"""The objects that each health check watches, and checks that watch the same objects.

Work that is linear in the machines, nodes or health checks is done once per cluster state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks, machines, selected_nodes
from virt_admit.model.remediation.health_checks import HealthCheck


def selected_by(check: HealthCheck, cluster: Cluster) -> Selection:
    """Return the Machines of the namespace (and cluster) that a check watches; for a
    NodeHealthCheck, the Nodes.
    """
    if check.kind is kinds.NHC:
        return selected_nodes.select(cluster, check.selector)
    kind = kinds.CAPI_MACHINE if check.kind is kinds.CAPI_MHC else kinds.MACHINE
    return machines.select(cluster, kind, check.obj.namespace, check.selector, check.cluster_name)


def selected(obj: Object, cluster: Cluster) -> Selection:
    """Return the objects that the health check ``obj`` watches.

    Rules call it through ``Context.cached``.
    """
    return selected_by(health_checks.view(obj), cluster)


@dataclass(frozen=True, slots=True)
class WatchedNodes:
    """A health check of the cluster, and the objects that it watches."""

    check: HealthCheck
    selection: Selection


@dataclass(frozen=True, slots=True)
class Watches:
    """All health checks of one kind."""

    by_namespace: Mapping[str, tuple[WatchedNodes, ...]]
    unseen: str
    """The kinds that could not be read; empty if these are all checks."""

    def of(self, namespace: str) -> tuple[WatchedNodes, ...]:
        """Return the checks of a namespace.

        Cluster-scoped NodeHealthChecks have the empty namespace.
        """
        return self.by_namespace.get(namespace or "default", ())

    def demand_all(self) -> None:
        """Raise unless every check is known.

        Raises:
            Unseen: more checks may exist.
        """
        if self.unseen:
            raise Unseen(self.unseen)


def watches(cluster: Cluster, kind: Kind) -> Watches:
    """Return the health checks of a kind with the objects that they watch."""
    return cluster.cached(_WATCHES[kind])


def _watches(cluster: Cluster, kind: Kind) -> Watches:
    found, unseen = gather(cluster.list(kind))
    by_namespace: dict[str, list[WatchedNodes]] = {}
    for obj in found:
        check = health_checks.view(obj)
        by_namespace.setdefault(obj.namespace or "default", []).append(
            WatchedNodes(check, selected_by(check, cluster))
        )
    return Watches({namespace: tuple(checks) for namespace, checks in by_namespace.items()}, unseen)


_WATCHES: Final[Mapping[Kind, Callable[[Cluster], Watches]]] = {
    kind: functools.partial(_watches, kind=kind) for kind in (kinds.MHC, kinds.CAPI_MHC, kinds.NHC)
}


def rivals(check: HealthCheck, cluster: Cluster) -> Iterator[WatchedNodes]:
    """Yield the other checks of the same kind that watch an object of this check.

    If Machines cannot be read, checks with the same selector count. Termination handlers never
    conflict.

    Raises:
        Unseen: after the known checks, if more may exist.
    """
    if check.handler:
        return
    selection, all_checks = selected_by(check, cluster), watches(cluster, check.kind)
    for watch in all_checks.of(check.obj.namespace):
        other = watch.check
        if (
            other.handler
            or other.obj.name == check.obj.name
            or other.cluster_name != check.cluster_name
        ):
            continue
        if not selection.positions.isdisjoint(watch.selection.positions) or _must_overlap(
            selection, check, other
        ):
            yield watch
    selection.demand_all()
    all_checks.demand_all()


def _must_overlap(selection: Selection, check: HealthCheck, other: HealthCheck) -> bool:
    """Return whether two checks with unknown Machines select the same ones,
    because their selectors are equal.
    """
    unknown = bool(selection.unseen) and check.kind is not kinds.NHC
    return unknown and not check.selector.errors and check.selector == other.selector
