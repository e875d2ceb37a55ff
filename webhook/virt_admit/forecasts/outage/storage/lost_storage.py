"""The disks that a loss of nodes takes from VMs, of the lost nodes and of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.storage import ceph_monitors, disks, longhorn_volumes
from virt_admit.forecasts.outage.storage.disks import Disk, DiskLoss
from virt_admit.forecasts.placement.absent import larger_nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.volumes import Claim

READS: Final[Reads] = union(
    migrations.READS,
    disks.READS,
    ceph_monitors.READS,
    longhorn_volumes.READS,
    {KUBEVIRT: ("status.observedKubeVirtVersion",)},
)

Stranded = tuple[Disk, DiskLoss]


def of(vmi: Object, claims: Sequence[str], loss: Loss) -> DiskLoss | None:
    """Return why a VM of a lost node has no disk, what is certain first; None: nothing says so."""
    found = [
        each
        for disk in disks.of_claims(vmi, claims, loss.cluster)
        if (each := _lost(disk, loss)) is not None
    ]
    return min(found, key=lambda each: not each.certain, default=None)


def _lost(disk: Disk, loss: Loss) -> DiskLoss | None:
    if disk.driver == longhorn_volumes.DRIVER:
        return longhorn_volumes.lost(disk, loss)
    return ceph_monitors.lost(disk, loss) if ceph_monitors.is_of_ceph(disk) else None


def unfinished(vmi: Object, cluster: Cluster) -> str:
    """Return that a VM would not start with its data as its disks are being copied; empty: they
    are not.

    Since 1.4.1 KubeVirt does not start it; a release before starts it from the copy
    (kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncVolumeMigration).
    """
    words = migrations.copy_words(vmi)
    if not words:
        return ""
    copied = f"its disks are being copied ({words})"
    if recovers(cluster):
        return f"{copied}, and KubeVirt starts no VM from such a copy"
    release = versions.kubevirt_version(cluster)
    if release is None:
        return (
            f"{copied}, and KubeVirt before {_RECOVERS} starts it from the copy, which lacks data; "
            "a later one does not start it"
        )
    return f"{copied}, and KubeVirt {release} would start it from the copy, which lacks data"


_RECOVERS: Final = versions.Feature.MANUAL_RECOVERY.since


def recovers(cluster: Cluster) -> bool:
    """Return whether KubeVirt is known to keep a VM off whose volumes were copied in part."""
    release = versions.kubevirt_version(cluster)
    return release is not None and release >= _RECOVERS


def recovery(vmi: Object, cluster: Cluster) -> str:
    """Return what lets such a VM start again."""
    former = names(each.source for each in migrations.copies(vmi))
    if recovers(cluster):
        return f"name {former} in the VM again, which has the data, once a node can use it"
    return f"name {former} in the VM again, which has the data, before it stops or its node is lost"


def elsewhere(pod: Pod, loss: Loss) -> str:
    """Return what lets a node run a VM that no other node can run: one where its disk can be used,
    if that binds it, and that is large enough.
    """
    for name in pod.claims:
        try:
            claim = loss.scheduler.volumes.claim(pod.namespace, name)
        except Unseen:
            continue
        place = claim.place
        if place is not None and _reaches_none(claim, loss):
            another = (
                "" if place.is_node else f"add another node {place.words} ({place.label}), or "
            )
            return f"{another}move its disk to storage that other nodes reach"
    there = loss.scheduler.state.nodes.items()
    left = {name: node.allocatable for name, node in there if SCHEDULABLE in node.labels}
    if (short := larger_nodes.shortage(pod.requests, left)) is not None:
        return f"add another node with at least {short.needed}, or make the VM smaller"
    return "let other nodes run it"


def _reaches_none(claim: Claim, loss: Loss) -> bool:
    """Return whether no node that is left and runs KubeVirt can use a claim."""
    nodes = loss.scheduler.state.nodes.values()
    return all(
        claim.refusal(node.name, node.labels, moment=False)
        for node in nodes
        if SCHEDULABLE in node.labels
    )


def stranded(loss: Loss) -> tuple[Stranded, ...]:
    """Return the disks that VMs of nodes that go on lose, one for each VM."""
    found: dict[str, Stranded] = {}
    for disk in (*longhorn_volumes.touched(loss), *ceph_monitors.touched(loss)):
        lost = _lost(disk, loss) if disk.node and disk.node not in loss.lost else None
        if lost is not None and not lost.unseen:
            found.setdefault(disk.vmi.full_name, (disk, lost))
    return tuple(found.values())
