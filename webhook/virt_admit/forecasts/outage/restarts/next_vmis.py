"""When KubeVirt creates the next VMI of a lost VM,
where that is not at once after its pod was freed.

All of it is compared with KubeVirt's own controllers: ``tests/upstream/restarts.py``. Sources, in
kubevirt/kubevirt: pkg/virt-controller/watch/vm/vm.go#syncStartFailureStatus
#calculateStartBackoffTime, …/replicaset/replicaset.go #filterActiveVMIs,
…/node/node.go#alivePodsOnNode, …/vmi/lifecycle.go#deleteAllMatchingPods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.outage import machine_replacement
from virt_admit.forecasts.outage.health_actors import Actor, NodeCoverage
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import Detach, Part, detection
from virt_admit.forecasts.placement.components.drivers import storage_failovers
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import POD, VM, VMIRS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import migrations, vmis, vms

READS: Final = union(
    storage_failovers.READS,
    {
        VM: ("status.startFailure.consecutiveFailCount",),
        VMIRS: ("spec.paused",),
        POD: ("status.phase",),
    },
)

NOTICED: Final = 366
"""Seconds after the loss at which virt-controller has certainly marked the lost nodes: 5 minutes
after the last heartbeat, looked at every minute (pkg/virt-controller/watch/node/node.go).
"""
BACKOFF: Final = "start back-off"
MARKED: Final = "old pod marked for deletion"
ENDED: Final = "ended pod removed"
FAILED_OVER: Final = "failed over"
_INTERVAL: Final = 10
_LONGEST: Final = 300
_RETRIES: Final = ("Always", "RerunOnFailure")
"""The run strategies after whose failed starts KubeVirt waits."""


def waits(vmi: Object, detached: Part, cluster: Cluster) -> tuple[Part, ...]:
    """Return what a start waits for once the pod is gone: the back-off, and what is left of the
    wait for volumes then.
    """
    off = _backoff(vmi, cluster)
    if off is None or off.high is None:
        return (detached,)
    high = None if detached.high is None else max(0, detached.high - off.low)
    return off, Part(detached.what, max(0, detached.low - off.high), high)


def _backoff(vmi: Object, cluster: Cluster) -> Part | None:
    """Return the wait after a VMI lost before its guest ever ran: a failed start to KubeVirt."""
    if vmi.at("status", "phase").text == "Running" or migrations.entered(vmi, "Running"):
        return None
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return Part(BACKOFF, 0, _LONGEST)
    if vm is None or vms.run_strategy(vms.vm_spec(vm)) not in _RETRIES:
        return None
    failed = 1 + max(0, vm.at("status", "startFailure", "consecutiveFailCount").integer or 0)
    least = _INTERVAL * failed**2
    return Part(BACKOFF, min(least, _LONGEST), min(least + least // 2, _LONGEST))


def paused(vmi: Object, cluster: Cluster) -> str:
    """Return the paused replica set of a VMI, which makes no other; empty: it has none.

    Raises:
        Unseen: its replica set cannot be read.
    """
    name = vmis.owner(vmi, VMIRS.kind)
    found = cluster.get(VMIRS, vms.namespace_of(vmi), name) if name is not None else None
    return found.name if found is not None and found.at("spec", "paused").value is True else ""


def with_kubevirt(vmi: Object, coverage: NodeCoverage, detached: Part, loss: Loss) -> NodeCoverage:
    """Return who frees a VM: KubeVirt itself and the storage too, which need no health check.

    ``detached``: the wait for its volumes after its pod is gone. While the pod exists they stay
    attached.
    """
    node = vmi.at("status", "nodeName").text or ""
    actor = _replica_set(vmi, node, loss, held=detached.low > 0) or _ended(vmi, node, loss)
    more = tuple(filter(None, (actor, _failed_over(vmi, node, loss))))
    return NodeCoverage((*coverage.actors, *more), coverage.unseen) if more else coverage


def _failed_over(vmi: Object, node: str, loss: Loss) -> Actor | None:
    """The storage may free a pod whose volumes have copies with a quorum elsewhere.

    It evicts the pod while the node is Ready, and deletes it with its attachments afterwards.
    """
    found = storage_failovers.of_vmi(vmi, loss.cluster)
    if found is None:
        return None
    made = Actor(node, found.by, "", detach=Detach.AT_ONCE)
    if loss.stopped:
        return replace(made, refuses=loss.stopped)
    several = len(loss.lost) > 1  # which copies are where is known to the storage alone
    unsure = (found.unsure, "whether its volumes keep a quorum" if several else "")
    parts = detection(loss), Part(FAILED_OVER, *found.within)
    return replace(made, parts=parts, unseen=tuple(filter(None, unsure)))


def _replica_set(vmi: Object, node: str, loss: Loss, *, held: bool) -> Actor | None:
    """A replica set no longer counts a VMI whose pod is marked for deletion, and makes another."""
    name = vmis.owner(vmi, VMIRS.kind)
    delay = loss.taint_delay(node)
    tolerated = machine_replacement.tolerated(vmi, machine_replacement.TOLERATED)
    if name is None or held or delay is None or tolerated is None:
        return None
    parts = detection(loss), Part(MARKED, tolerated, tolerated + delay)
    begun = "it does once the old pod is marked for deletion"
    return Actor(node, f"{VMIRS.kind} {name}", "", parts, detach=Detach.AT_ONCE, begun=begun)


def _ended(vmi: Object, node: str, loss: Loss) -> Actor | None:
    """A VMI whose pod has ended fails once virt-handler is silent for long enough.

    Its VM then deletes it and the pod: the API server removes a pod that has ended at once, without
    its kubelet.
    """
    if not loss.cluster.cached(_ended_pods).get(vmi.metadata["uid"].text or ""):
        return None
    begun = "virt-controller removes its pod, which has ended"
    return Actor(node, "virt-controller", "", (Part(ENDED, 0, NOTICED),), begun=begun)


def _ended_pods(cluster: Cluster) -> Mapping[str, bool]:
    """Return whether all pods of a VMI have ended, by its UID; empty if more pods may exist."""
    found: dict[str, bool] = {}
    if unlisted(cluster, POD):
        return found
    for pod in cluster.known(POD):
        owner = pod.controller
        if (
            owner is not None
            and owner["kind"].text == "VirtualMachineInstance"
            and (uid := owner["uid"].text)
        ):
            found[uid] = found.get(uid, True) and pod.ended
    return found
