"""What each health check watches, and which checks watch the same.

What is linear in the machines, nodes or health checks of a cluster is computed once per cluster state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.model import kinds, nodes
from virt_admit.model.cluster import Cluster, Unseen, gather
from virt_admit.model.kinds import Kind
from virt_admit.model.labels import Selection
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.model.remediation.health_checks import HealthCheck


def selected_by(check: HealthCheck, cluster: Cluster) -> Selection:
    """The Machines of its namespace (and cluster), or for a NodeHealthCheck the Nodes, that a check watches."""
    if check.kind is kinds.NHC:
        return nodes.select(cluster, check.selector)
    kind = kinds.CAPI_MACHINE if check.kind is kinds.CAPI_MHC else kinds.MACHINE
    return machines.select(cluster, kind, check.obj.namespace, check.selector, check.cluster_name)


def selected(obj: Object, cluster: Cluster) -> Selection:
    """What the health check ``obj`` watches: a fact for rules."""
    return selected_by(health_checks.view(obj), cluster)


@dataclass(frozen=True, slots=True)
class Watch:
    """A health check of the cluster, and what it watches."""

    check: HealthCheck
    selection: Selection


@dataclass(frozen=True, slots=True)
class Watches:
    """All health checks of one kind."""

    homes: Mapping[str, tuple[Watch, ...]]
    unseen: str
    """What could not be seen; empty if these are all."""

    def of(self, namespace: str) -> tuple[Watch, ...]:
        """Those of a namespace; NodeHealthChecks have none."""
        return self.homes.get(namespace or "default", ())

    def demand_all(self) -> None:
        """Go on only if every check is seen.

        Raises:
            Unseen: there may be more.
        """
        if self.unseen:
            raise Unseen(self.unseen)


def watches(cluster: Cluster, kind: Kind) -> Watches:
    """The health checks of that kind, with what they watch."""
    return cluster.cached(_WATCHES[kind])


def _watches(cluster: Cluster, kind: Kind) -> Watches:
    found, unseen = gather(cluster.list(kind))
    homes: dict[str, list[Watch]] = {}
    for obj in found:
        check = health_checks.view(obj)
        homes.setdefault(obj.namespace or "default", []).append(Watch(check, selected_by(check, cluster)))
    return Watches({home: tuple(some) for home, some in homes.items()}, unseen)


_WATCHES: Final[Mapping[Kind, Callable[[Cluster], Watches]]] = {
    kind: functools.partial(_watches, kind=kind) for kind in (kinds.MHC, kinds.CAPI_MHC, kinds.NHC)
}


def rivals(check: HealthCheck, cluster: Cluster) -> Iterator[Watch]:
    """The other checks of the same kind that watch some of the same, or have the same selector where Machines cannot
    be seen. Checks that only replace machines which the cloud takes away are in nobody's way.

    Raises:
        Unseen: at the end, where there may be more.
    """
    if check.handler:
        return
    mine, everybody = selected_by(check, cluster), watches(cluster, check.kind)
    for watch in everybody.of(check.obj.namespace):
        other = watch.check
        if other.handler or other.obj.name == check.obj.name or other.cluster_name != check.cluster_name:
            continue
        if not mine.positions.isdisjoint(watch.selection.positions) or _look_alike(mine, check, other):
            yield watch
    mine.demand_all()
    everybody.demand_all()


def _look_alike(mine: Selection, check: HealthCheck, other: HealthCheck) -> bool:
    """Whether two checks whose Machines cannot be seen must select the same."""
    blind = bool(mine.unseen) and check.kind is not kinds.NHC
    return blind and not check.selector.errors and check.selector == other.selector
