"""Settings with which an upgrade would take less time."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.simulation import World, simulate
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE

_SAVINGS: Final = 3
"""Settings that are shown at most."""


@dataclass(frozen=True, slots=True)
class Saving:
    """A setting that would shorten the upgrade."""

    setting: str
    before: int
    after: int
    seconds: int


def faster(
    world: World, high: Outcome, one_by_one: Container[str] = (), in_order: InOrder = map
) -> Iterator[Saving]:
    """Yield the settings whose change saves time, the best first, tried in the longer run.

    Args:
        one_by_one: nodes that must not leave together: of the control plane, or with the data of a
            storage operator.
        in_order: does the runs.
    """
    found: list[Saving] = []
    limit = world.limits
    changes = (
        (
            PER_NODE,
            limit.node,
            limit.node * 2,
            replace(world, limits=replace(limit, node=limit.node * 2)),
        ),
        (
            PER_CLUSTER,
            limit.cluster,
            limit.cluster * 2,
            replace(world, limits=replace(limit, cluster=limit.cluster * 2)),
        ),
        *_more_nodes(world, one_by_one),
    )
    runs = in_order(simulate, [other for *_, other in changes])
    for (setting, before, after, _), tried in zip(changes, runs, strict=True):
        saved = high.seconds - tried.seconds
        if saved > 0 and not tried.stops and not tried.exhausted:
            found.append(Saving(setting, before, after, saved))
    yield from sorted(found, key=lambda saving: -saving.seconds)[:_SAVINGS]


def one_by_one(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Return the nodes of which two at once cost the quorum of etcd,
    or wait for an operator that lets one go.
    """
    masters = (
        node.name
        for node in cluster.known(NODE)
        if nodes.is_control_plane(node) or nodes.votes_in_etcd(node)
    )
    return frozenset((*masters, *(node.name for node in plan.nodes if node.pods.waits)))


def _more_nodes(world: World, one_by_one: Container[str]) -> Iterator[tuple[str, int, int, World]]:
    pools = world.pools
    free = (pool for pool in pools if not any(node in one_by_one for node in pool.nodes))
    largest = max(free, key=lambda pool: len(pool.to_do), default=None)
    if largest is not None and largest.capacity < len(largest.to_do):
        more = tuple(
            replace(pool, capacity=pool.capacity + 1) if pool is largest else pool for pool in pools
        )
        yield largest.limit, largest.capacity, largest.capacity + 1, replace(world, pools=more)
