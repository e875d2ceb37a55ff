"""Volumes that Longhorn keeps attached to two nodes,
long after the migration of their VM has ended.

Longhorn ends the migration of a volume only when Kubernetes has removed the attachment of one of
both nodes, and its engine there keeps the budget. Sources:
longhorn/longhorn-manager:controller/volume_attachment_controller.go
#handleVolumeMigrationConfirmation, #handleVolumeMigrationRollback; longhorn/longhorn#11149;
longhorn/website:content/kb/troubleshooting-rwx-volume-migration-stuck.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, PodEviction, Way
from virt_admit.forecasts.drain.guests import changed_disks, paused_guests
from virt_admit.forecasts.placement import running_launchers
from virt_admit.forecasts.placement.components.longhorn import volume_users
from virt_admit.model.commands import kubectl, shell, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ENGINE,
    LONGHORN_VOLUME,
    POD,
    VMI,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import capital, names

READS: Final[Reads] = union(
    clock.READS,
    changed_disks.READS,
    migrations.READS,
    volume_users.READS,
    {
        LONGHORN_ENGINE: ("spec.volumeName", "status.instanceManagerName"),
        LONGHORN_VOLUME: (
            "status.currentNodeID",
            "status.currentMigrationNodeID",
            "status.kubernetesStatus",
        ),
        POD: ("metadata.labels", "metadata.ownerReferences", "spec.nodeName", "status.phase"),
        VMI: (
            *("spec.volumes", "spec.utilityVolumes", "status.conditions"),
            *("status.migrationState", "status.nodeName"),
        ),
    },
)

_DETACHED: Final = datetime.timedelta(minutes=10)
"""Kubernetes detaches a volume at the latest 6 minutes after its pod has ended
(``maxWaitForUnmountDuration``).
"""


def obstacle(manager: Object, eviction: PodEviction) -> OperatorAnswer | None:
    """Return which volumes stay attached to the node, although their VMs run on another one; None:
    none does.

    Raises:
        Unseen: the engines, their volumes or the migrations of the VMs cannot be read.
    """
    cluster, node = eviction.cluster, eviction.node
    moved = [(each, [*_moved(each, node, cluster)]) for each in _migrating(manager, eviction)]
    kept = {volume.name: volume for volume, users in moved if users}
    guests = [vmi for _, users in moved for vmi in users]
    if not kept:
        return None
    where = names(sorted({vmi.at("status", "nodeName").text or "" for vmi in guests}))
    attached = [name for volume in kept.values() for name in _attachments(volume, node, cluster)]
    paused = sorted({paused_guests.words(vmi, cluster) for vmi in guests} - {""})
    state = f" (its guest is {paused[0]})" if paused else ""
    reason = (
        f"Longhorn has not ended the migration of volume {names(sorted(kept), 80)}: its engine "
        f"still runs on {node}, though VM {names(sorted({vmi.full_name for vmi in guests}), 80)} "
        f"runs on {where} alone{state}"
    )
    if not attached and not unlisted(cluster, VOLUME_ATTACHMENT):
        reason += f". No VolumeAttachment names {node}, so Kubernetes has let go of it there"
        return OperatorAnswer(Way.NOW, reason, _off_and_on(guests, cluster))
    command = (
        shell("kubectl", "delete", "volumeattachments.storage.k8s.io", *attached)
        if attached
        else kubectl("get", VOLUME_ATTACHMENT)
    )
    return OperatorAnswer(
        Way.NOW,
        reason,
        typed(
            f"See that no container of the VM runs on {node}, then delete the VolumeAttachment of "
            f"{node}, not that of {where}",
            command,
        ),
    )


def _off_and_on(guests: Iterable[Object], cluster: Cluster) -> str:
    """Return that VMs stop, after which nothing needs a volume and Longhorn ends both engines.

    Without the attachment of the old node Longhorn ends a migration by itself, except while it
    finds the engine of the new node not ready (#handleVolumeMigrationConfirmation).
    """
    every = {each.full_name: each for each in guests}
    known = [every[name] for name in sorted(every)]
    differing = [vmi for vmi in known if changed_disks.remedy(vmi, cluster)]
    vmi = (differing or known)[0]
    stop, start = (virtctl(verb, vmi.name, vms.namespace_of(vmi)) for verb in ("stop", "start"))
    them = "it" if len(known) == 1 else "them"
    before = "".join(_named_again(each, cluster) for each in differing[1:])
    way = typed(
        f"{before}stop VM {names(sorted(every), 80)}, so that Longhorn detaches the volume from "
        "both nodes",
        stop,
        f"once the volume is detached, start {them} again: {start}",
    )
    return capital(changed_disks.safe(way, vmi, cluster))


def _named_again(vmi: Object, cluster: Cluster) -> str:
    """Return what comes before the stop of a further VM that would start with other disks."""
    command = changed_disks.command(vmi, cluster)
    if not command:
        return f"wait until KubeVirt has copied the disks of VM {vmi.full_name} too; then "
    return f"name the disks of its guest in VM {vmi.full_name} too ({command}); then "


def _migrating(manager: Object, eviction: PodEviction) -> Iterator[Object]:
    """Yield the volumes with an engine on the node that Longhorn migrates from it, or to it."""
    running = (
        each.name
        for each in eviction.cluster.known(LONGHORN_ENGINE)
        if each.at("status", "instanceManagerName").text == manager.name
    )
    for name in dict.fromkeys((*manager.at("status", "instanceEngines").map, *running)):
        engine = eviction.cluster.get(LONGHORN_ENGINE, manager.namespace, name)
        of = engine.at("spec", "volumeName").text if engine is not None else None
        volume = eviction.cluster.get(LONGHORN_VOLUME, manager.namespace, of) if of else None
        if volume is not None and _other_node(volume, eviction.node):
            yield volume


def _other_node(volume: Object, node: str) -> str:
    """Return the other node of a volume that migrates; empty: it does not migrate."""
    source = volume.at("status", "currentNodeID").text
    target = volume.at("status", "currentMigrationNodeID").text
    both = {source or "", target or ""} - {""}
    return next(iter(both - {node}), "") if node in both else ""


def uses(vmi: Object, volume: Object) -> bool:
    """Return whether a VMI has the claim of a volume."""
    namespace, claim = volume_users.claim_of(volume)
    spec = vmi["spec"]
    used = launcher_pod.all_claims(spec)
    return vmi.namespace == namespace and claim in used


def _moved(volume: Object, node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the VM that uses a volume, if it has long run on the other node and no longer
    migrates.
    """
    for vmi in entry(cluster, vmis.by_node, _other_node(volume, node)) or ():
        if not uses(vmi, volume):
            continue
        over = clock.since(vmi.at("status", "migrationState", "endTimestamp").text, cluster)
        pods = running_launchers.launchers(cluster).by_vmi.get(
            (vms.namespace_of(vmi), vmi.name), ()
        )
        here = any(pod.at("spec", "nodeName").text == node for pod in pods)
        if (
            over is not None
            and over > _DETACHED
            and not here
            and next(migrations.unfinished(vmi, cluster), None) is None
        ):
            yield vmi


def _attachments(volume: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the names of the attachments of a volume to a node, as far as they are known."""
    name = volume.at("status", "kubernetesStatus", "pvName").text or volume.name
    for each in volume_users.attachments(name, cluster):
        if each.at("spec", "nodeName").text == node:
            yield each.name
