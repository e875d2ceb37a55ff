"""Longhorn volumes whose healthy copies are all on lost nodes:
they are faulted until one of these nodes is back.

Longhorn salvages a copy by itself only on a node that is up. A copy that failed earlier is one too,
and is older. Source: longhorn/longhorn-manager:controller/volume_controller.go#ReconcileVolumeState
(isAutoSalvageNeeded).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.storage import disks
from virt_admit.forecasts.outage.storage.disks import Disk, DiskLoss
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies
from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_REPLICA, LONGHORN_VOLUME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    longhorn_copies.READS, {LONGHORN_VOLUME: ("spec.dataLocality", "spec.numberOfReplicas")}
)
DRIVER: Final = "driver.longhorn.io"


def lost(disk: Disk, loss: Loss) -> DiskLoss | None:
    """Return why a volume cannot be used after a loss; None: nothing says that."""
    copies = loss.cluster.cached(longhorn_copies.by_volume).get(disk.handle, ())
    healthy = [each for each in copies if longhorn_copies.is_healthy(each)]
    if any(_node(each) not in loss.lost for each in healthy):
        return None
    unseen = unlisted(loss.cluster, LONGHORN_REPLICA)
    title = f"Longhorn volume {disk.handle} (claim {disk.claim})"
    if unseen:
        return DiskLoss(
            f"where the copies of {title} are cannot be read", "", certain=False, unseen=unseen
        )
    if not healthy:
        return None
    where = names(sorted({_node(each) for each in healthy}))
    copy, are = (
        (f"all {len(healthy)} healthy copies", "are")
        if len(healthy) > 1
        else ("the only healthy copy", "is")
    )
    reason = f"{copy} of {title} {are} on {where}"
    old = [each for each in copies if each not in healthy and each.at("spec", "healthyAt").text]
    left = [each for each in old if _node(each) not in loss.lost]
    if left:
        failed = left[0].at("spec", "failedAt").text
        reason += (
            f", and Longhorn may start it with the copy on {_node(left[0])}, which failed at "
            f"{failed} and is older"
        )
    return DiskLoss(reason, _remedy(disk, healthy, loss.cluster), certain=not left)


def touched(loss: Loss) -> Iterator[Disk]:
    """Yield the disks of all VMs with a healthy copy on a lost node."""
    here = loss.cluster.cached(longhorn_copies.volumes_by_node)
    volumes = {volume for node in loss.nodes for volume in here.get(node, ())}
    for volume in sorted(volumes):
        yield from loss.cluster.cached(disks.by_volume).get((DRIVER, volume), ())


def _node(replica: Object) -> str:
    return replica.at("spec", "nodeID").text or ""


def _remedy(disk: Disk, healthy: Sequence[Object], cluster: Cluster) -> str:
    namespace = healthy[0].namespace
    volume = find(cluster, LONGHORN_VOLUME, namespace, disk.handle)
    spec = volume["spec"] if volume is not None else None
    wanted = (spec["numberOfReplicas"].integer if spec is not None else None) or 1
    if wanted > len(healthy):
        return (
            "wait until Longhorn has rebuilt a copy on another node, or repair what keeps it from "
            "doing so"
        )
    if spec is not None and spec["dataLocality"].text == "strict-local":
        return (
            "stop the VM, then set dataLocality: best-effort and a larger numberOfReplicas in the "
            "Longhorn volume, because strict-local allows one copy"
        )
    changes: dict[str, object] = {"numberOfReplicas": wanted + 1}
    if len(healthy) > 1:
        changes["replicaSoftAntiAffinity"] = "disabled"
    command = merge_patch(LONGHORN_VOLUME, disk.handle, namespace, {"spec": changes})
    return typed("add a copy on another node, and wait until it is rebuilt", command)
