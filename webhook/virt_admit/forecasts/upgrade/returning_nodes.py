"""Nodes that are cordoned or not Ready only until their update ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from virt_admit.forecasts.upgrade.rollouts import Pool
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.node_updates import updaters
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, Phase
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.node_labels import is_transient
from virt_admit.model.scheduler.snapshot import Node


def returning(pools: Iterable[Pool], cluster: Cluster) -> frozenset[str]:
    """Return the nodes of these pools whose update is under way and has not failed: they take VMs when it ends."""
    found = updaters.of_nodes(cluster)
    left = {name for pool in pools for name in pool.to_do if name in found}
    return frozenset(name for name in left if found[name].phase in IN_FLIGHT - {Phase.FAILING})


def with_nodes_back(scheduler: FilterPipeline, nodes: Collection[str]) -> FilterPipeline:
    """Return the filters over the cluster as it is when these nodes are back."""
    if not nodes:
        return scheduler
    state = scheduler.state.fork()
    back = {name: _back(node) if name in nodes else node for name, node in state.nodes.items()}
    return FilterPipeline(
        replace(state, nodes=back),
        scheduler.volumes,
        scheduler.unseen,
        scheduler.complete,
        scheduler.most_terms,
        scheduler.unread_namespaces,
    )


def _back(node: Node) -> Node:
    """Return a node without its cordon, and with the label that virt-controller changes while it does not report."""
    served = {SCHEDULABLE: "true"} if SCHEDULABLE in node.labels else {}
    taints = tuple(taint for taint in node.taints if not is_transient(taint))
    return replace(node, cordoned=False, ready=True, taints=taints, labels={**node.labels, **served})
