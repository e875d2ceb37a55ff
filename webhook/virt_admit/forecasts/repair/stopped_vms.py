"""Whether a VM that a plan would stop starts again: other nodes, or its own, must take its pod.

kube-scheduler knows nothing of a virt-handler or a CSI driver that does not work, and a node may
have lost a device since the VM started there.
"""

from __future__ import annotations

from virt_admit.forecasts.placement import candidates, no_target, start_doubts
from virt_admit.forecasts.placement.components.drivers import driver_faults
from virt_admit.forecasts.placement.refusals.refusal_remedies import KEPT, is_gone_at_home
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import capital, names


def kept(vmi: Object, cluster: Cluster) -> str:
    """Return what ends the cause for which no node would take a VM that stops; empty: none would
    keep it off.
    """
    claims = launcher_pod.claims(vmi["spec"])
    if (fault := driver_faults.first(vms.namespace_of(vmi), claims, cluster)) is not None:
        return f"do not stop it before its volumes can be attached again. {capital(fault.remedy)}"
    moved = no_target.reason(candidates.target(vmi, cluster, moves=True), cluster, moves=True)
    if moved is not None and KEPT in moved.remedy:
        return moved.remedy
    fresh = candidates.target(vmi, cluster, moves=False)
    served = start_doubts.without_broken_nodes(fresh, cluster)
    if served.placement.candidates or not fresh.placement.candidates:
        return ""
    down = no_target.reason(served, cluster, moves=False, starts=True)
    if down is None:
        return ""
    return f"do not stop it before a node can start it. {capital(down.remedy)}"


def nowhere_to_start(vmi: Object, cluster: Cluster) -> str:
    """Return why a VM that is restarted while its node is cordoned stays down until another node
    has room; else empty.
    """
    target = candidates.target(vmi, cluster, moves=False)
    problem = no_target.reason(target, cluster, moves=False)
    if problem is not None and not no_target.is_lasting(target, vmi, cluster):
        return problem.reason
    return ""


def refused_at_home(vmi: Object, cluster: Cluster) -> str:
    """Return which devices the node of a VM no longer offers, so that it would not start there
    again; empty: none, or that is not known.
    """
    target = candidates.target(vmi, cluster, moves=False)
    return names(
        name
        for name in sorted(target.pod.requests)
        if "/" in name and is_gone_at_home(name, target, cluster)
    )
