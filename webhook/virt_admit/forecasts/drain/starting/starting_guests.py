"""VMs that start on a node: a drain waits for them, and then they leave it as any other VM.

KubeVirt writes the node of a VMI once its pod is ready, and refuses its eviction until it reports
that the VMI can migrate. Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go
#updateStatus; :pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go
#admitLauncherPod.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import launcher_pods
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.states import stuck_starts, vm_states
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, gather
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import expand, migratability, vmis
from virt_admit.model.kubevirt.instances.migratability import Migratable

READS: Final[Reads] = union(
    launcher_pods.READS,
    stuck_starts.READS,
    migratability.READS,
    expand.READS,
    expand.STRATEGY_READS,
)
_STARTED: Final = timedelta(minutes=10)
"""A pod has pulled its images, attached its volumes and started its guest by then."""
_REPORTED: Final = ("Ready", "LiveMigratable")


def on_node(cluster: Cluster, node: str) -> Iterator[Object]:
    """Yield the VMIs that run on a node, and those that have just begun to start there.

    Raises:
        Unseen: after the known ones, if more may exist.
    """
    yield from entry(cluster, vmis.by_node, node) or ()
    starting = (of_pod(pod, cluster) for pod in entry(cluster, evicted_pods.by_node, node) or ())
    yield from (vmi for vmi in starting if vmi is not None)
    if unread := vmis.unread(cluster):
        raise Unseen(unread)


def lost_with(cluster: Cluster, node: str) -> Iterator[Object]:
    """Yield the VMIs that ``on_node`` yields, and those whose pod waits on the node for whatever
    reason: after the loss of the node that pod has to end before another one starts, too.

    Raises:
        Unseen: after the known ones, if more may exist.
    """
    found, unread = gather(on_node(cluster, node))
    known = {(vmi.namespace, vmi.name) for vmi in found}
    yield from found
    for pod in entry(cluster, evicted_pods.by_node, node) or ():
        vmi = launcher_pods.waiting_guest(pod, cluster)
        if vmi is not None and (vmi.namespace, vmi.name) not in known:
            known.add((vmi.namespace, vmi.name))
            yield _placed(vmi, node)
    if unread:
        raise Unseen(unread)


def _placed(vmi: Object, node: str) -> Object:
    return Object({**vmi.data, "status": {**vmi["status"].map, "nodeName": node}}, vmi.namespace)


def of_pod(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI that has just begun to start in a pod, on the node of that; None: none, or it
    is not certain what a drain does to it.
    """
    node = pod.at("spec", "nodeName").text
    if not node or pod.deleted or pod.ended or not evicted_pods.is_of_vm(pod):
        return None
    vmi = launcher_pods.starting_guest(pod, cluster)
    if vmi is None or vmi.at("status", "phase").text not in ("Pending", "Scheduling"):
        return None
    placed = _placed(vmi, node)
    known = as_it_will_run(placed, cluster) is not None or _begins_again(placed, cluster)
    return placed if known else None


def _begins_again(vmi: Object, cluster: Cluster) -> bool:
    """Whether the pod of a VMI that has just begun to start is simply evicted."""
    age = clock.age(vmi, cluster)
    if age is None or age > _STARTED or stuck_starts.problem(vmi, cluster) is not None:
        return False
    try:
        return expand.strategy(vmi, cluster).value in ("None", "LiveMigrateIfPossible")
    except Unseen:
        return False


def as_it_will_run(vmi: Object, cluster: Cluster) -> Object | None:
    """Return a VMI that has just begun to start as it is once its guest runs; None: it runs
    already, does not start, a drain does not wait for it, or what becomes of it is not certain.
    """
    status = vmi["status"]
    if not _starts(vmi) or not status["nodeName"].text or not status["conditions"].is_list:
        return None
    age = clock.age(vmi, cluster)
    if age is None or age > _STARTED or stuck_starts.problem(vmi, cluster) is not None:
        return None
    migrates = migratability.assess(vmi, cluster).migratable is Migratable.YES
    try:
        strategy = expand.strategy(vmi, cluster).value
    except Unseen:
        return None
    if strategy != "External" and not (strategy == "LiveMigrate" and migrates):
        return None
    conditions = [each for each in status["conditions"].maps if each.get("type") not in _REPORTED]
    conditions.append({"type": "Ready", "status": "True"})
    if migrates:
        conditions.append({"type": "LiveMigratable", "status": "True"})
    runs = {**status.map, "phase": "Running", "conditions": conditions}
    return Object({**vmi.data, "status": runs}, vmi.namespace)


def told(reason: str, soon: Object | None, cluster: Cluster) -> str:
    """Return what becomes of a VMI, and before that for how long it has been starting.

    ``soon``: as it will run. None: it does not just start.
    """
    if soon is None:
        return reason
    lasts = clock.lasts(clock.age(soon, cluster))
    return f"has been starting{lasts}, for which a drain waits; {reason}"


def _starts(vmi: Object) -> bool:
    """Return whether the guest of a VMI does not run, or has not been reported on, yet."""
    phase = vmi.at("status", "phase").text
    if vmi.deleted or vmis.migratable(vmi) is False:
        return False
    reported = vmi.condition("LiveMigratable").present
    return phase in vm_states.STARTING_PHASES or (phase == "Running" and not reported)
