"""MachineConfigPools of OpenShift: how many nodes that run VMs are drained at once.

Source: openshift/machine-config-operator: pkg/controller/node/node_controller.go#maxUnavailable, #getPrimaryPoolForNode.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {MACHINE_CONFIG_POOL: ("spec.nodeSelector", "spec.maxUnavailable"), NODE: ("metadata.labels",)}

_STANDARD: Final = {"master": 0, "worker": 2}
"""A node in several pools belongs to master, else to a custom pool, else to worker."""


def draining_at_once(cluster: Cluster) -> int | None:
    """Return how many nodes that run VMs an OpenShift upgrade drains at once; None: there are no pools.

    Raises:
        Unseen: nodes or pools cannot be read.
    """
    pools = sorted(cluster.list(MACHINE_CONFIG_POOL), key=lambda pool: (_STANDARD.get(pool.name, 1), pool.name))
    if not pools:
        return None
    chosen = [(pool, selectors.parse(pool.at("spec", "nodeSelector").value)) for pool in pools]
    members = Counter(
        next((pool.name for pool, selector in chosen if selector.matches(node.labels)), "")
        for node in nodes.of_kubevirt(cluster)
    )
    return sum(_limit(pool, members[pool.name]) for pool in pools if members[pool.name]) or None


def _limit(pool: Object, members: int) -> int:
    limit = pool.at("spec", "maxUnavailable")
    percent = (limit.text or "").removesuffix("%")
    if limit.integer is not None:
        allowed = limit.integer
    else:
        allowed = members * int(percent) // 100 if percent.isdecimal() and percent.isascii() else 1
    return max(1, min(allowed, members))
