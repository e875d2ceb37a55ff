"""The loss of one node as ``explain`` needs it: the forecast of ``outage``,
and what it means for one VM.
"""

from __future__ import annotations

from virt_admit.forecasts.drain.vm_events import EventForecast, VmEvent
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.outage.lost_vms import LostVm
from virt_admit.forecasts.outage.outages import Outage
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.time_parts import Seconds
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model import certificate_requests
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.reports.outage.text import period


def of_node(node: str, cluster: Cluster) -> Outage:
    """Return what the loss of a node costs."""
    return outages.outage((node,), cluster)


def of_vm(vmi: Object, outage: Outage) -> LostVm:
    """Return what becomes of a VM of the node."""
    return next(vm for vm in outage.vms if vm.vmi.full_name == vmi.full_name)


def event(vm: LostVm, outage: Outage, cluster: Cluster) -> EventForecast:
    """Return the loss as one of the events of a VM."""
    doubts = vm.unseen or (outage.unseen if vm.outcome is LossOutcome.UNKNOWN else ())
    when = f"; it runs again {_when(vm, vm.at, cluster)}" if vm.at is not None else ""
    by_hand = vm.by_hand if vm.at is None else None
    hand = f"; freed by hand, it runs {period(by_hand)} later" if by_hand is not None else ""
    since = _now(vm.node, cluster)
    return EventForecast(
        VmEvent.LOSS, str(vm.outcome), f"{since}{vm.reason}{when}{hand}", vm.remedy, names(doubts)
    )


def _now(node: str, cluster: Cluster) -> str:
    """Return what is known of a node that does not report at this moment; empty: it reports."""
    if certificate_requests.of_node(node, cluster) is not None:
        return "its node runs and only cannot report; after a loss: "
    return "its node is lost already: " if virt_handlers.is_lost(cluster, node) else ""


def _when(vm: LostVm, at: Seconds, cluster: Cluster) -> str:
    """Return when a VM runs again: after a loss that may come, after one that has come,
    or from now.
    """
    if vm.from_now:
        return f"after {period(at)} from now"
    silent = node_health.silent_for(vm.node, cluster)
    return f"{period(at)} after that loss ({vm.node} {silent})" if silent else f"after {period(at)}"
