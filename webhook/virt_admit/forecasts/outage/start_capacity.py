"""What can still start before a loss of nodes leaves VMs without room:
sums over the nodes that run VMs just now.

Wherever a VM starts, the room after a loss falls by its size: by what the lost nodes had free, and
by what their VMs need elsewhere. Fragmentation may leave less, so each figure is an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.restarts import fates
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.scheduler.resources import CPU, MEMORY, PODS
from virt_admit.model.scheduler.snapshot import Node

CAPACITY: Final = (MEMORY, CPU, PODS)
"""The resources of which sums are kept."""


@dataclass(frozen=True)
class HostSums:
    """What is free on each node that runs VMs, and what its VMs need elsewhere after its loss,
    by resource and node. Nodes on which no VM may start now have needs alone: one that is lost
    already leaves its VMs to the others, be it by hand.
    """

    free: Mapping[str, Mapping[str, int]]
    needs: Mapping[str, Mapping[str, int]]

    def _weights(self, resource: str) -> dict[str, int]:
        """Return what the loss of each node takes of the free room."""
        return {
            name: free + self.needs[resource][name] for name, free in self.free[resource].items()
        }

    def left(self, resource: str, nodes: Collection[str]) -> int:
        """Return what can still start at most before the loss of these nodes leaves VMs short;
        negative: it does now.
        """
        weights = {**self.needs[resource], **self._weights(resource)}
        return sum(self.free[resource].values()) - sum(weights.get(name, 0) for name in nodes)

    def left_after_worst(self, resource: str, number: int) -> int:
        """Return the same for the loss of any so many nodes."""
        heaviest = sorted(self._weights(resource).values(), reverse=True)[:number]
        return sum(self.free[resource].values()) - sum(heaviest)

    @property
    def spare_nodes(self) -> int:
        """How many nodes may be lost at most, whichever they are, before the sums are short."""
        number = 0
        while number + 1 < len(self.free[PODS]) and all(
            self.left_after_worst(resource, number + 1) >= 0 for resource in CAPACITY
        ):
            number += 1
        return number

    @property
    def largest(self) -> int:
        """The memory of the largest VM that finds a node now, in bytes."""
        pods, cpu = self.free[PODS], self.free[CPU]
        memory = self.free[MEMORY].items()
        return max((free for name, free in memory if pods[name] and cpu[name]), default=0)


@cached
def host_sums(cluster: Cluster) -> HostSums | None:
    """Return the sums over the nodes on which VMs may start now; None: a node reports no size."""
    state, needs = candidates.scheduler(cluster).state, _needs(cluster)
    hosts = {name: node for name, node in state.nodes.items() if _is_open(node, name in needs)}
    if any(node.allocatable is None for node in hosts.values()):
        return None
    free = {name: state.free(node) for name, node in hosts.items()}
    return HostSums(
        {key: {name: max(0, free[name].get(key, 0)) for name in hosts} for key in CAPACITY},
        {
            key: {name: needs.get(name, {}).get(key, 0) for name in (*hosts, *needs)}
            for key in CAPACITY
        },
    )


def _is_open(node: Node, runs_vms: bool) -> bool:
    """Return whether VMs may start on a node.

    One with lasting taints counts only if VMs that tolerate them run there.
    """
    serves = node.labels.get(SCHEDULABLE) == "true" and node.ready and not node.cordoned
    return serves and (not node.taints or runs_vms)


def _needs(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return what the VMs of each node need elsewhere after its loss."""
    found: dict[str, dict[str, int]] = {}
    for node in vmis.occupied(cluster):
        total = found.setdefault(node, dict.fromkeys(CAPACITY, 0))
        for vmi in Loss((node,), cluster).vmis(node):
            if fates.fate(vmi, cluster).comes is not False:
                requests = candidates.requests(vmi, cluster)
                for resource in CAPACITY:
                    total[resource] += 1 if resource == PODS else requests.get(resource, 0)
    return found
