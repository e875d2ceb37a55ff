"""Everything that KubeVirt, its operators and the Operator Lifecycle Manager say does not go on by
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain.control import component_states, kubevirt_updates, px_updates
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import operator_updates
from virt_admit.model.node_updates.operators import etcd_leftovers, paused_clusters

READS: Final[Reads] = union(
    component_states.READS,
    etcd_leftovers.READS,
    kubevirt_updates.READS,
    operator_updates.READS,
    paused_clusters.READS,
    px_updates.READS,
)


@dataclass(frozen=True, slots=True)
class StuckOperator:
    """One operator, or what it manages, that does not become ready."""

    kind: str
    namespace: str
    name: str
    reason: str
    remedy: str


def of_cluster(cluster: Cluster) -> Sequence[StuckOperator]:
    """Return what is held. It stops no update of nodes by itself."""
    update = kubevirt_updates.held(cluster)
    found = [
        (each.subscription, each.reason, each.remedy) for each in operator_updates.held(cluster)
    ]
    found += [(update.kubevirt, update.reason, update.remedy)] if update is not None else []
    found += [(each.obj, each.reason, each.remedy) for each in component_states.held(cluster)]
    found += [(each.obj, each.reason, each.remedy) for each in paused_clusters.held(cluster)]
    found += [(each.owner, each.reason, each.remedy) for each in etcd_leftovers.held(cluster)]
    storage = [
        StuckOperator(each.kind, each.namespace, each.name, each.reason, each.remedy)
        for each in px_updates.paused(cluster)
    ]
    return tuple(
        StuckOperator(own.kind, own.namespace, own.name, capital(reason), capital(remedy))
        for own, reason, remedy in found
    ) + tuple(storage)
