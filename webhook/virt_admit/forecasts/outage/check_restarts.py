"""What becomes of the VMs of a node once a health check has confirmed that it is down:
the forecast of an outage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from virt_admit.forecasts.outage import lost_vms
from virt_admit.forecasts.outage.health_actors import Actor, NodeCoverage
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.lost_vms import LostVm
from virt_admit.forecasts.outage.restarts.fates import LossOutcome, fate
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis

_NOWHERE: Final = (LossOutcome.NODE, LossOutcome.ROOM)


class VmRestart(NamedTuple):
    """Whether a VM restarts after its failed node is confirmed down, and why."""

    vmi: Object
    comes: bool | None
    """None if it cannot be determined."""
    why: str
    nowhere: str = ""
    """Why no other node can run it just now, although it would restart; empty if one can,
    or if that is unknown.
    """


def fates(
    nodes: Iterable[str], cluster: Cluster, never: Mapping[str, str] = MappingProxyType({})
) -> Iterator[VmRestart | Unseen]:
    """Yield whether the VMs on these nodes restart after one of them is lost and confirmed down.

    Args:
        nodes: the names of the nodes.
        cluster: the cluster with the VMs.
        never: why a node is never confirmed down, by its name.
    """
    for node in nodes:
        loss = Loss((node,), cluster)
        if node in never:
            found = lost_vms.lost_vms(loss, {node: NodeCoverage((), ())}).vms
            yield from (_unconfirmed(vm, never[node]) for vm in found)
        elif loss.vmis(node):
            confirmed = NodeCoverage((Actor(node, "", ""),), ())
            yield from (
                _restart(vm, cluster) for vm in lost_vms.lost_vms(loss, {node: confirmed}).vms
            )
        try:
            for _ in vmis.on_node(cluster, node):
                pass
        except Unseen as unseen:
            yield unseen


def _unconfirmed(vm: LostVm, why: str) -> VmRestart:
    """Return what becomes of a VM whose node no check confirms down: KubeVirt may restart it."""
    comes = vm.outcome is LossOutcome.RESTARTS
    return VmRestart(vm.vmi, comes, vm.reason if comes else why)


def _runs_kubevirt(cluster: Cluster) -> bool:
    """Return whether any node has KubeVirt's label.

    Objects about health checks alone have nodes without it.
    """
    return any(SCHEDULABLE in node.labels for node in cluster.known(NODE))


def _restart(vm: LostVm, cluster: Cluster) -> VmRestart:
    after = fate(vm.vmi, cluster)
    if vm.outcome in _NOWHERE and cluster.cached(_runs_kubevirt):
        return VmRestart(
            vm.vmi, after.comes, f"{after.reason}, but only later: {vm.reason}", vm.reason
        )
    if vm.outcome is LossOutcome.NEVER:
        return VmRestart(vm.vmi, False, vm.reason)
    return VmRestart(vm.vmi, after.comes, after.reason)
