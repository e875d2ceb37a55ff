"""Settings with which an upgrade would take less time."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.budgets import evicted_pods, pod_budgets
from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.simulation import World, simulate
from virt_admit.model import machine_nodes
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE
from virt_admit.model.remediation import bare_metal
from virt_admit.model.scheduler import pods as scheduled_pods

_SAVINGS: Final = 3
"""Settings that are shown at most."""


@dataclass(frozen=True, slots=True)
class FasterSetting:
    """A setting with which the upgrade would take so many seconds less."""

    setting: str
    from_: int
    to: int
    saves: int


def faster(
    world: World, high: Outcome, one_by_one: Container[str] = (), in_order: InOrder = map
) -> Iterator[FasterSetting]:
    """Yield the settings whose change saves time, the best first, tried in the longer run.

    One with which VMs wait for room is not worth a hint: the nodes that are drained together leave
    too little.

    Args:
        one_by_one: nodes that must not leave together: of the control plane, or with the data of a
            storage operator.
        in_order: does the runs.
    """
    found: list[FasterSetting] = []
    limits = world.limits
    node, total = limits.node, limits.cluster
    changes = (
        (PER_NODE, node, node * 2, replace(world, limits=replace(limits, node=node * 2))),
        (PER_CLUSTER, total, total * 2, replace(world, limits=replace(limits, cluster=total * 2))),
        *_more_nodes(world, one_by_one),
    )
    runs = in_order(simulate, [other for *_, other in changes])
    for (setting, before, after, _), tried in zip(changes, runs, strict=True):
        saved = high.seconds - tried.seconds
        if saved > 0 and not (tried.stops or tried.exhausted or tried.crowded):
            found.append(FasterSetting(setting, before, after, saved))
    yield from sorted(found, key=lambda faster: -faster.saves)[:_SAVINGS]


def one_by_one(plan: Plan, cluster: Cluster) -> frozenset[str]:
    """Return the nodes of which two at once cost the quorum of etcd, wait for each other's pods or
    for an operator that lets one go, or need a second host that is free.
    """
    servers = (node.name for node in cluster.known(NODE) if nodes.is_server(node))
    waiting = (node.name for node in plan.nodes if node.pods.waits)
    return frozenset((*servers, *waiting, *_apart(cluster), *_without_host(cluster)))


def _apart(cluster: Cluster) -> Iterator[str]:
    """Yield the nodes with a pod whose budget lets one go, while no other node takes it."""
    homes: dict[str, dict[str, Object]] = {}
    for node in cluster.known(NODE):
        pods = entry(cluster, evicted_pods.by_node, node.name) or ()
        for pod in filter(evicted_pods.is_evicted, pods):
            for budget in () if evicted_pods.is_of_vm(pod) else pod_budgets.selecting(pod, cluster):
                if budget.at("status", "disruptionsAllowed").integer in (0, 1):
                    homes.setdefault(budget.full_name, {})[node.name] = pod
    filters = candidates.scheduler(cluster)
    for on in homes.values():
        home, first = next(iter(on.items()))
        fresh = replace(scheduled_pods.read(first), node="")
        others = (name for name in filters.state.nodes if name != home)
        if len(on) > 1 and not any(filters.accepts(fresh, name) for name in others):
            yield from on


def _without_host(cluster: Cluster) -> Iterator[str]:
    """Yield the nodes of Machines whose hosts are known, if fewer than two of these are free."""
    free = bare_metal.free_hosts(cluster)
    if free is not None and free < 2:
        yield from (machine_nodes.node_name(each, cluster) for each in cluster.known(CAPI_MACHINE))


def _more_nodes(world: World, one_by_one: Container[str]) -> Iterator[tuple[str, int, int, World]]:
    pools = world.pools
    free = (pool for pool in pools if not any(node in one_by_one for node in pool.nodes))
    largest = max(free, key=lambda pool: len(pool.to_do), default=None)
    if largest is not None and largest.limit and largest.capacity < len(largest.to_do):
        more = tuple(
            replace(pool, capacity=pool.capacity + 1) if pool is largest else pool for pool in pools
        )
        yield largest.limit, largest.capacity, largest.capacity + 1, replace(world, pools=more)
