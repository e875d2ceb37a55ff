"""What a migration creates in the namespace of its VMI: pods and a claim,
which LimitRanges and quotas can refuse.

Sources: kubevirt/kubevirt pkg/virt-controller/watch/migration/migration.go#createTargetPod,
#createAttachmentPod, #handleBackendStorage;
pkg/storage/backend-storage/backend-storage.go#CreatePVCForMigrationTarget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import storage, vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import (
    launcher_pod,
    launcher_resources,
    launcher_settings,
    limit_ranges,
    pod_refusals,
)
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.model.scheduler.resources import CPU, MEMORY

STATE_BYTES: Final = 10 * 2**20
"""The size of such a claim (backend-storage.go#PVCSize)."""

READS: Final = union(
    candidates.READS,
    limit_ranges.READS,
    {
        VMI: (
            "status.volumeStatus.name",
            "status.volumeStatus.persistentVolumeClaimInfo.accessModes",
        )
    },
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one migration creates, with the defaults of the LimitRanges of the namespace."""

    launcher: PodSize
    priority_class: str = ""
    """Of the launcher pod. The other one has none."""
    attachment: PodSize | None = None
    """The pod that attaches hotplugged volumes on the target node. None: the VMI has none."""
    state_bytes: int = 0
    """The size of a second claim for vTPM and EFI state. 0: none is created."""


def demand(vmi: Object, cluster: Cluster) -> Demand:
    """Return what a migration of a running VMI creates."""
    ranges = limit_ranges.of_namespace(cluster, vms.namespace_of(vmi))
    attaches = next(launcher_pod.attached_claims(vmi["spec"]), None) is not None
    attachment = PodSize((launcher_settings.settings(cluster).attachment,)) if attaches else None
    return Demand(
        limit_ranges.defaulted(_launcher(vmi, cluster), ranges),
        vmi.at("spec", "priorityClassName").text or "",
        limit_ranges.defaulted(attachment, ranges) if attachment else None,
        STATE_BYTES if _copies_state(vmi) else 0,
    )


def _launcher(vmi: Object, cluster: Cluster) -> PodSize:
    """Return the second launcher pod of a VMI: as the running one, which may be older than a quota
    on limits, for which KubeVirt gives limits to new pods.
    """
    running = candidates.new_pod(vmi, cluster)
    automatic = launcher_settings.automatic_limits(vms.namespace_of(vmi), cluster)
    demanded = (CPU,) * automatic.cpu + (MEMORY,) * (automatic.memory is not None)
    bare = any(name not in each.limits for each in running.every for name in demanded)
    if not bare or running.summed or not pod_refusals.sets_limits(cluster):
        return running
    given = expand(vmi, cluster)
    unknown = given.unseen or any(True for _ in launcher_resources.unseen(given, cluster))
    return running if unknown else launcher_resources.pod(given, cluster)


def _copies_state(vmi: Object) -> bool:
    """Return whether source and target need a claim each for vTPM and EFI state:
    the source's is not shared.
    """
    if not vms.keeps_state(vmi):
        return False
    for status in vmi.at("status", "volumeStatus").items():
        if (status["name"].text or "").startswith(storage.STATE):
            return status.at("persistentVolumeClaimInfo", "accessModes", 0).text not in (
                None,
                "ReadWriteMany",
            )
    return False
