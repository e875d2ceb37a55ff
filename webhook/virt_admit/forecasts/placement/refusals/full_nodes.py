"""A pod that only one node may take, and for which that node lacks room.

kube-scheduler counts the causes without the nodes. A monitor of Ceph on a host path, a pod with a
local volume and one with a nodeSelector wait for this node alone. Source:
kubernetes/kubernetes:pkg/scheduler/framework/types.go#FitError.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import candidates, running_launchers
from virt_admit.forecasts.placement.components.drivers import rook_monitors
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, gather, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.messages import capital, names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import pods as scheduled_pods
from virt_admit.model.scheduler.resources import Resources, missing

READS: Final[Reads] = union(candidates.READS, rook_monitors.READS, vmis.READS, clock.READS)
_MISSING: Final = " missing"
_REPLACED: Final = timedelta(minutes=20)
"""Rook has replaced a monitor by then."""
_TRIED: Final = 8
"""VMs of a node for which another one is looked for."""


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return which node alone may take a pod without a node, and what is missing there; None:
    several may, or something else than room keeps it off, or that cannot be determined.
    """
    own, filters = scheduled_pods.read(pod), candidates.scheduler(cluster)
    placement = filters.place(own)
    if unlisted(cluster, NODE) or unlisted(cluster, POD):
        return None
    if placement.has_candidate or not placement.is_certain:
        return None
    causes = {name: why.split("; ") for name, why in placement.refusals.items()}
    lasting = {name: [each for each in some if _lasts(each)] for name, some in causes.items()}
    homes = [name for name, some in lasting.items() if not some]
    if len(homes) != 1 or not all(each.endswith(_MISSING) for each in causes[homes[0]]):
        return None
    (home,) = homes
    others = [some for some in lasting.values() if some]
    shared = [each for each in others[0] if all(each in some for some in others)] if others else []
    why = f" ({names(shared, 100)})" if shared else ""
    lacks = ", ".join(each.removesuffix(_MISSING) for each in causes[home])
    since = clock.lasts(clock.age(pod, cluster))
    stays = "has been Pending" if since else "is Pending"
    reason = f"pod {pod.name} {stays}{since}: only node {home} may take it{why}, but lacks {lacks}"
    words = f"Free that on {home}"
    requests = missing(own.requests, filters.state.free(filters.state.nodes[home]))
    vmi = next(_movable(home, dict(requests), cluster), None)
    if vmi is not None:
        away = virtctl("migrate", vmi.name, vms.namespace_of(vmi))
        words = typed(f"{words}, for example migrate VM {vmi.full_name} away", away)
    return _of_monitor(pod, Problem(reason, words), cluster)


def _lasts(cause: str) -> bool:
    return not cause.endswith(_MISSING)


def _movable(node: str, lacks: Resources, cluster: Cluster) -> Iterator[Object]:
    """Yield VMs of a node that free enough of what is missing and that another node takes now."""
    known = gather(vmis.on_node(cluster, node))[0]
    pods = ((running_launchers.launchers(cluster).on_node(vmi), vmi) for vmi in known)
    sized = [
        (read.requests, vmi)
        for pod, vmi in pods
        if pod is not None and not vmi.deleted and vmis.migratable(vmi)
        for read in (scheduled_pods.read(pod),)
        if all(read.requests.get(name, 0) >= lack for name, lack in lacks.items())
    ]
    sized.sort(key=lambda each: (sorted(each[0].get(name, 0) for name in lacks), each[1].full_name))
    for _, vmi in sized[:_TRIED]:
        if candidates.target(vmi, cluster, moves=True).placement.has_candidate:
            yield vmi


def _of_monitor(pod: Object, full: Problem, cluster: Cluster) -> Problem:
    """Return the same with why Rook does not move a monitor of Ceph to another node."""
    age = clock.age(pod, cluster)
    found = rook_monitors.of_pod(pod, cluster) if age is not None and age >= _REPLACED else None
    if found is None or not found.reason.startswith(rook_monitors.NO_NODE):
        return full
    other = capital(found.remedy)
    return Problem(
        f"{full.reason}. {found.reason}", f"{full.remedy}; or, {other[:1].lower()}{other[1:]}"
    )
