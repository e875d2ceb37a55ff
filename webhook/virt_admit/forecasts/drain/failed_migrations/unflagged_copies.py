"""Copies of volumes that libvirt refuses, as virt-launcher gives it disks to copy without the flag
that says so.

Before KubeVirt 1.4.0 the flag follows the access mode of the former claims alone: with
ReadWriteMany the VMI has ``status.migrationMethod`` LiveMigration, also while its volumes are to be
copied. Sources: kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go
#isBlockMigration (1.3), :staging/src/kubevirt.io/api/core/v1/types.go#IsBlockMigration (1.4.0),
:pkg/virt-controller/watch/volume-migration/volume-migration.go#VolumeMigrationCancel; issue 12811,
pull request 12818; libvirt/libvirt:src/qemu/qemu_migration.c.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    migrations.READS,
    {
        KUBEVIRT: ("status.observedKubeVirtVersion",),
        VMI: (f"metadata.labels.{vmis.OUTDATED}", "status.migratedVolumes"),
    },
)
_REFUSED: Final = "VIR_MIGRATE_PARAM_MIGRATE_DISKS"
_SHARED: Final = "LiveMigration"


def problem(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return that libvirt refuses each copy of the volumes of a VMI; None: a migration failed for
    another reason, or its volumes are no longer to be copied.
    """
    copied = migrations.copy_words(vmi)
    flagged = vmi.at("status", "migrationMethod").text != _SHARED
    since, release = versions.Feature.COPIES_FLAGGED.since, versions.kubevirt_version(cluster)
    old_pod = vmis.OUTDATED in vmi.labels
    if _REFUSED not in failure or not copied or flagged:
        return None
    if not old_pod and (release is None or release >= since):
        return None
    by = f"KubeVirt {release}" if release is not None and release < since else "its virt-launcher"
    reason = (
        f"{by} lets libvirt copy {copied} without the flag VIR_MIGRATE_NON_SHARED_DISK, as the "
        "former claim is ReadWriteMany (status.migrationMethod of the VMI is LiveMigration), so "
        "libvirt refuses it on every node"
    )
    return Problem(reason, _remedy(vmi, cluster), ProblemCause.MIGRATION_FAILS)


def _remedy(vmi: Object, cluster: Cluster) -> str:
    since = versions.Feature.COPIES_FLAGGED.since
    former = names(f"{each.source} for volume {each.volume}" for each in migrations.copies(vmi))
    update = (
        "" if versions.has_release(cluster, since) else f"update KubeVirt to {since} or later, "
    )
    owner = vmi.owned_by(VM.kind)
    return typed(
        f"name the former claim {former} in the VM again, which ends the copy",
        kubectl("edit", VM, owner, vms.namespace_of(vmi)) if owner else "",
        f"then {update}let the VM migrate or restart into a new virt-launcher, and change the "
        "volume again; or copy the disk while the VM is stopped",
    )
