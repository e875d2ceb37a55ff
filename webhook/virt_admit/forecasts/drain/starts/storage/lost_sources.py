"""Claims that are not filled because what they copy is being deleted, does not exist, or is not
ready.

The provisioner refuses such a source, and is healthy itself. A snapshot that a claim names is kept
by a finalizer until that claim has its volume: each waits for the other. Sources:
kubernetes-csi/external-provisioner:pkg/controller/controller.go #getSnapshotSource #getPVCSource;
kubernetes-csi/external-snapshotter:pkg/common-controller/snapshot_controller.go
#ensurePVCFinalizer; kubevirt/kubevirt#10832, #10888 (in 1.2.0:
pkg/virt-controller/watch/clone/clone.go#verifyPVCBound).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence import status_errors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, VM, VOLUME_SNAPSHOT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.problems import Problem

_RESTORE: Final = "restore.kubevirt.io/name"
_SOURCE_VM: Final = "restore.kubevirt.io/source-vm-name"
_BACKUP: Final = "velero.io/backup-name"
_RESTORED: Final = "velero.io/restore-name"
READS: Final[Reads] = {
    PVC: (
        f"metadata.annotations.{_RESTORE}",
        f"metadata.labels.{_SOURCE_VM}",
        f"metadata.labels.{_BACKUP}",
        f"metadata.labels.{_RESTORED}",
        "metadata.ownerReferences",
        "spec.dataSource",
        "spec.dataSourceRef",
    ),
    VOLUME_SNAPSHOT: ("status.error.message",),
}
_KINDS: Final = {kind.kind: kind for kind in (PVC, VOLUME_SNAPSHOT)}
_DELETED: Final = re.compile(r"(?:snapshot|PVC DataSource) (\S+) is currently being deleted")
_MISSING: Final = re.compile(r"error getting (?:snapshot|PVC) (\S+) .*not found")
_NOT_READY: Final = re.compile(r"snapshot (\S+) (?:is not Ready|not bound)")
_KEEPS_UNTIL_BOUND: Final = Version(1, 2)
"""KubeVirt keeps the snapshot of a clone until its claims are bound from here on."""


def of(claim: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return why what a claim copies is refused; None: nothing, or for another cause.

    ``said``: the last error of the provisioner.
    """
    source = (
        claim.at("spec", "dataSourceRef")
        if claim.at("spec", "dataSourceRef").is_map
        else claim.at("spec", "dataSource")
    )
    kind, name = source["kind"].text or "", source["name"].text or ""
    if not name or kind not in _KINDS:
        return None
    namespace = source["namespace"].text or claim.namespace
    found, what = find(cluster, _KINDS[kind], namespace, name), f"its data source {kind} {name}"
    described = kubectl("describe", _KINDS[kind], name, namespace)
    if (found is not None and found.deleted) or _names(_DELETED, said, name):
        words = (
            f"{what} is being deleted{_kept(found, cluster)}. The provisioner refuses it, so "
            "this does not end by itself"
        )
        return Problem(words, typed(_again(claim, cluster), described))
    if _names(_MISSING, said, name):
        words = f"{what} does not exist, so this does not end by itself"
        claimed = kubectl("describe", PVC, claim.name, claim.namespace)
        return Problem(words, typed(_without(claim) or _again(claim, cluster), claimed))
    if _names(_NOT_READY, said, name):
        return Problem(f"{what} is not ready{_error(found)}", typed("see why it is not", described))
    return None


def _names(pattern: re.Pattern[str], said: str, name: str) -> bool:
    named = pattern.search(said)
    return named is not None and named[1] == name


def _kept(found: Object | None, cluster: Cluster) -> str:
    """Return since when an object is being deleted."""
    age = (
        clock.since(found.metadata["deletionTimestamp"].text, cluster)
        if found is not None
        else None
    )
    return f" (for {clock.duration(age)})" if age is not None else ""


def _error(found: Object | None) -> str:
    said = found.at("status", "error", "message").text if found is not None else ""
    return f" ({status_errors.plain(said)[:120]})" if said else ""


def _without(claim: Object) -> str:
    """Return how a claim that no other object makes is made again; empty: another one makes it.

    Velero restores a claim with the source that it had once, which CDI and restores delete when the
    claim has its data (kubevirt/kubevirt-velero-plugin#117, #213).
    """
    if claim.controller is not None or claim.annotations.get(_RESTORE):
        return ""
    fields, backup = "spec.dataSource and dataSourceRef", claim.labels.get(_BACKUP)
    gone = "stop its VM, delete the claim, which has no volume, and"
    if restored := claim.labels.get(_RESTORED):
        of = f" {backup}" if backup else ""
        return (
            f"{gone} restore it from Velero's Backup{of} again with a resource modifier that "
            f"removes {fields}, which Restore {restored} has written as they once were"
        )
    return (
        f"{gone} make it again from a source that exists, or without {fields} and then restore its "
        "data"
    )


def _again(claim: Object, cluster: Cluster) -> str:
    """Return how the disk is made again: a clone may meet the same cause again."""
    if not (claim.annotations.get(_RESTORE) or "").startswith("clone-"):
        return "create the disk again from a source that exists and stays"
    named = claim.labels.get(_SOURCE_VM)
    if named and is_absent(cluster, VM, claim.namespace, named):
        return (
            f"create the disk again from another copy, because VM {named}, which was cloned, does "
            "not exist any more"
        )
    again = f"delete the cloned VM and clone {f'VM {named}' if named else 'it'} again"
    release = versions.kubevirt_version(cluster)
    if release is None or release >= _KEEPS_UNTIL_BOUND:
        return again
    return (
        f"{again}, with KubeVirt {_KEEPS_UNTIL_BOUND} or later or in a class that binds "
        f"Immediate: KubeVirt {release} deletes "
        "the snapshot of a clone before a WaitForFirstConsumer claim is bound"
    )
