"""What has to end before a running VM is restarted: else its new pod waits, and the guest is down.

A taint that came after the start of a VM, or a cordon, does nothing to its pod, but keeps the next
one off (kubernetes/kubernetes:pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go
#Filter). A kubelet that refuses Longhorn's new instance manager does nothing to the disks that are
attached either, but no disk is attached there again. A pod keeps the devices that its node has
ceased to report, but gets none again there
(:pkg/kubelet/cm/devicemanager/manager.go#GetCapacity).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components.drivers import shared_taints
from virt_admit.forecasts.placement.refusals import refused_managers
from virt_admit.model import node_bridges
from virt_admit.model.commands import virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of, names

READS: Final[Reads] = union(candidates.READS, refused_managers.READS, shared_taints.READS)
_BEFORE: Final = ", but not before "


def later(vmi: Object, cluster: Cluster) -> str:
    """Return the clause of a remedy that restarts a VM with the same demands; empty: a node takes
    its new pod, or that is not known.
    """
    if barring := _barring(vmi, cluster):
        return barring
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    target = candidates.target(vmi, cluster, moves=False)
    if node is None or target.placement.has_candidate or not target.placement.is_certain:
        return ""
    if why := refusal(node.name, target, cluster):
        return _clause(f"{node.name} takes it again ({why})")
    cordoned = node.at("spec", "unschedulable").boolean is True
    return _clause(f"{node.name} is uncordoned") if cordoned else ""


def guarded(remedy: str, vmi: Object, cluster: Cluster) -> str:
    """Return a remedy with what has to end before the restart that it types, whatever a VM demands
    then.
    """
    restart = virtctl("restart", vmi.name, vms.namespace_of(vmi))
    if restart not in remedy or _BEFORE in remedy:
        return remedy
    clause = _barring(vmi, cluster)
    if not clause:
        return remedy
    words, _, further = remedy.partition(f": {command_of(remedy)}")
    if command_of(remedy) and (restart in words or command_of(remedy) == restart):
        return f"{words}{clause}: {command_of(remedy)}{further}"
    return f"{remedy}{clause}"


def refusal(node: str, target: SchedulingTarget, cluster: Cluster) -> str:
    """Return why the own node of a VM would refuse a new pod of it, whatever room it has and
    whether it is cordoned; empty: it takes one, or that is not known.
    """
    again = candidates.scheduler(cluster).place(target.pod, gone=target.gone)
    passing = ("cordoned", f"taint {migration_limits.drain_taint(cluster)}")
    causes = again.refusals.get(node, "").split("; ")
    return "; ".join(
        each for each in causes if each not in passing and not each.endswith(" missing")
    )


def _barring(vmi: Object, cluster: Cluster) -> str:
    return _by_taint(vmi, cluster) or _by_storage(vmi, cluster) or _by_devices(vmi, cluster)


def _by_devices(vmi: Object, cluster: Cluster) -> str:
    """Return the clause about devices of the VM that its node reports no more, and that no other
    node has for it.
    """
    node, scheduler = vmi.at("status", "nodeName").text or "", candidates.scheduler(cluster)
    known = scheduler.state.nodes.get(node)
    offered = known.allocatable if known is not None else None
    if offered is None:
        return ""
    used = Counter[str]()
    for pod in scheduler.state.pods.get(node, ()):
        used.update({name: each for name, each in pod.requests.items() if "/" in name})
    short = {name for name, each in used.items() if each > offered.get(name, 0)}
    target = candidates.target(vmi, cluster, moves=False) if short else None
    if target is None or target.placement.has_candidate or not target.placement.is_certain:
        return ""
    again = scheduler.place(target.pod, gone=target.gone).refusals.get(node, "").split("; ")
    lost = sorted(
        name
        for name in short
        if not node_bridges.bridge(name)
        and any(each.startswith(f"{name}: ") and each.endswith(" missing") for each in again)
    )
    return _clause(f"{node} reports its {names(lost)} again") if lost else ""


def _by_taint(vmi: Object, cluster: Cluster) -> str:
    key = shared_taints.barring(vmi, cluster)
    return _clause(f"taint {key} is off the nodes") if key else ""


def _by_storage(vmi: Object, cluster: Cluster) -> str:
    if not refused_managers.any_refused(cluster):
        return ""
    target = candidates.target(vmi, cluster, moves=False)
    nodes = {*target.placement.candidates, vmi.at("status", "nodeName").text or ""} - {""}
    pod = target.pod
    if refused_managers.doubt(pod.namespace, pod.claims, nodes, cluster) is None:
        return ""
    return _clause("Longhorn's new instance managers run, which attach its disks")


def _clause(what: str) -> str:
    return f"{_BEFORE}{what}, as it would stay Pending"
