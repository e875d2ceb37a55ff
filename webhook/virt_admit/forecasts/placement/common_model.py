"""The CPU model that all nodes with KubeVirt offer, for VMs that ``host-model`` binds to one kind of processor."""

from __future__ import annotations

from collections.abc import Mapping

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubevirt.instances.cpu_models import HOST, OFFERED
from virt_admit.model.kubevirt.settings import configuration


def common_model(cluster: Cluster) -> str:
    """Return a model that every node with KubeVirt offers; empty: none, or that is unknown.

    The host model of the oldest processors comes first: it has the most features of those that all nodes offer.
    """
    try:
        configuration.demand_obsolete_models(cluster)
    except Unseen:
        return ""
    return cluster.cached(_common_model)


def _common_model(cluster: Cluster) -> str:
    nodes, unseen = gather(cluster.list(NODE))
    labels = [node.labels for node in nodes if SCHEDULABLE in node.labels]
    if unseen or not labels:
        return ""
    offered = [_values(each, OFFERED) for each in labels]
    everywhere = frozenset.intersection(*offered) - configuration.obsolete_models(cluster)
    hosts = {model for each in labels for model in _values(each, HOST)}
    return min(everywhere, key=lambda model: (model not in hosts, model), default="")


def _values(labels: Mapping[str, str], prefix: str) -> frozenset[str]:
    return frozenset(
        key.removeprefix(prefix) for key, value in labels.items() if key.startswith(prefix) and value == "true"
    )
