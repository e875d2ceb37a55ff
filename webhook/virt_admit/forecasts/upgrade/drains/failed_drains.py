"""Nodes whose drain in an update has failed, and the nodes after them that the same holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.model.messages import names


def nodes(plan: Plan, pools: Sequence[Pool]) -> Iterator[NodePlan]:
    """Yield the nodes whose update has failed, often for its drain, or that another operator drains
    first. What blocks them names the later nodes of stopped pools that it blocks too.
    """
    stopped = [pool for pool in pools if pool.obstacle is not None]
    others = {name for pool in stopped if pool.obstacle for name in pool.obstacle.drained}
    failing = {each.node for pool in pools for each in pool.failing}
    later = {name for pool in stopped for name in pool.to_do} - failing - others
    waiting = [node for node in plan.nodes if node.name in later]
    for node in plan.nodes:
        if node.name in others or (node.name in failing and "cordoned" in node.state):
            blockers = tuple(_with_later(each, waiting) for each in node.pods.blockers)
            yield replace(node, pods=replace(node.pods, blockers=blockers))


def _with_later(blocker: Blocker, waiting: Sequence[NodePlan]) -> Blocker:
    also = [
        node.name for node in waiting if any(each.id == blocker.id for each in node.pods.lasting)
    ]
    if not also:
        return blocker
    return replace(blocker, reason=f"{blocker.reason}; it stops {names(also)} next")
