"""Pools of nodes that are updated together: MachineConfigPools of OpenShift, MachineDeployments of Cluster API.

Source: openshift/machine-config-operator: pkg/controller/node/node_controller.go#maxUnavailable, #getPrimaryPoolForNode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {MACHINE_CONFIG_POOL: ("spec.nodeSelector", "spec.maxUnavailable"), NODE: ("metadata.labels",)}

_STANDARD: Final = {"master": 0, "worker": 2}
"""A node in several pools belongs to master, else to a custom pool, else to worker."""


_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
"""The label of a Machine with the name of its MachineDeployment."""


def members(pools: Iterable[Object], every: Iterable[Object]) -> list[tuple[Object, list[Object]]]:
    """Return each MachineConfigPool with the nodes that it updates, in the order in which pools claim nodes.

    A pool without a selector has no nodes.
    """
    ranked = sorted(pools, key=lambda pool: (_STANDARD.get(pool.name, 1), pool.name))
    found: list[tuple[Object, list[Object]]] = []
    left = list(every)
    for pool in ranked:
        selector = pool.at("spec", "nodeSelector")
        parsed = selectors.parse(selector.value) if selector.is_map else None
        own = [node for node in left if parsed is not None and parsed.matches(node.labels)]
        found.append((pool, own))
        taken = {node.name for node in own}
        left = [node for node in left if node.name not in taken]
    return found


def of_deployments(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return the names of the nodes of each MachineDeployment, as far as Machines are known."""
    found: dict[str, list[str]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name):
        node = machine.at("status", "nodeRef", "name").text
        if node:
            found.setdefault(machine.labels.get(_DEPLOYMENT, ""), []).append(node)
    return found


def draining_at_once(cluster: Cluster) -> int | None:
    """Return how many nodes that run VMs an OpenShift upgrade drains at once; None: there are no pools.

    Raises:
        Unseen: nodes or pools cannot be read.
    """
    pools = list(cluster.list(MACHINE_CONFIG_POOL))
    if not pools:
        return None
    return sum(_limit(pool, len(own)) for pool, own in members(pools, nodes.of_kubevirt(cluster)) if own) or None


def _limit(pool: Object, members: int) -> int:
    limit = pool.at("spec", "maxUnavailable")
    percent = (limit.text or "").removesuffix("%")
    if limit.integer is not None:
        allowed = limit.integer
    else:
        allowed = members * int(percent) // 100 if percent.isdecimal() and percent.isascii() else 1
    return max(1, min(allowed, members))
