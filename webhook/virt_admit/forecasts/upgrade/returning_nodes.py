"""Nodes that are cordoned or not Ready only until their update ends, and nodes whose virt-handler does not work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
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
    return _with_changed(scheduler, nodes, _back)


def without_virt_handler(scheduler: FilterPipeline, nodes: Collection[str]) -> FilterPipeline:
    """Return the filters over the cluster in which these nodes take no VM: their virt-handler does not work."""
    return _with_changed(scheduler, nodes, _unserved)


def _with_changed(scheduler: FilterPipeline, nodes: Collection[str], change: Callable[[Node], Node]) -> FilterPipeline:
    if not nodes:
        return scheduler
    state = scheduler.state.fork()
    changed = {name: change(node) if name in nodes else node for name, node in state.nodes.items()}
    return FilterPipeline(
        replace(state, nodes=changed),
        scheduler.volumes,
        scheduler.unseen,
        scheduler.complete,
        scheduler.most_terms,
        scheduler.unread_namespaces,
    )


def _unserved(node: Node) -> Node:
    served = {SCHEDULABLE: "false"} if SCHEDULABLE in node.labels else {}
    return replace(node, labels={**node.labels, **served})


def _back(node: Node) -> Node:
    """Return a node without its cordon, and with the label that virt-controller changes while it does not report."""
    served = {SCHEDULABLE: "true"} if SCHEDULABLE in node.labels else {}
    taints = tuple(taint for taint in node.taints if not is_transient(taint))
    return replace(node, cordoned=False, ready=True, taints=taints, labels={**node.labels, **served})
