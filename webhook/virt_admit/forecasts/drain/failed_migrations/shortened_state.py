"""Guests whose claim of vTPM and EFI state has a name that Kubernetes has cut: KubeVirt does not
find it again, and creates no target pod.

KubeVirt makes that claim with generateName ``persistent-state-for-NAME-``, of which Kubernetes
keeps 58 characters. Before each migration it looks in the status of the VMI for a volume whose name
has the whole. Since 1.6.5, 1.7.3, 1.8.2 and 1.9 the beginning is enough. Sources:
kubevirt/kubevirt:pkg/storage/backend-storage/backend-storage.go#CurrentPVCName,
:pkg/virt-controller/watch/migration/migration.go#handleBackendStorage, issue 16760, pull requests
16853, 17396, 17412; kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/storage/names/
generate.go.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, storage, vms
from virt_admit.model.kubevirt.settings.versions import Version, kubevirt_version
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    migrations.READS,
    {
        KUBEVIRT: (),
        VMI: (
            *("spec.domain", "status.volumeStatus", "metadata.ownerReferences"),
            *("status.migrationState.completed", "status.migrationState.failed"),
        ),
    },
)
_SINCE: Final = Version(1, 4)
"""Before, such state did not move, or lay on shared storage."""
_FIXED: Final = (Version(1, 6, 5), Version(1, 7, 3), Version(1, 8, 2))
_KEPT: Final = 58
_LONGEST: Final = 37
"""Characters of the longest name of a VM that stays whole."""


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why KubeVirt creates no target pod for a VMI; None: it finds the claim, or that is not
    known. One that has migrated has a build with the correction.
    """
    release = kubevirt_version(cluster)
    fixed = _fixed(release) if release is not None else None
    if fixed is None or not vms.keeps_state(vmi) or _has_migrated(vmi, cluster):
        return None
    whole = f"{storage.STATE}-{vmi.name}"
    volumes = [each["name"].text or "" for each in vmi.at("status", "volumeStatus").items()]
    cut = next((each for each in volumes if each.startswith(f"{storage.STATE}-")), "")
    if not cut or any(whole in each for each in volumes) or not whole.startswith(cut[:_KEPT]):
        return None
    reason = (
        f"each of its migrations stays Pending: KubeVirt {release} looks for its claim {whole}-… "
        f"and does not find {cut}, whose name Kubernetes has cut after {_KEPT} characters"
    )
    owner = vmi.owned_by(VM.kind)
    stop = virtctl("stop", owner, vms.namespace_of(vmi)) if owner else ""
    lasting = (
        f"update KubeVirt to {fixed} or later. Names of up to {_LONGEST} characters are not cut, "
        "but a VM that is made again under another one loses the keys of its vTPM (BitLocker)"
    )
    if not stop:
        return Problem(reason, lasting, ProblemCause.MIGRATION_FAILS)
    words = "shut the VM down for the drain, which keeps its vTPM, and start it on another node"
    remedy = typed(words, stop, f"or {lasting}")
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS, command=stop)


def _has_migrated(vmi: Object, cluster: Cluster) -> bool:
    state = vmi.at("status", "migrationState")
    if state["completed"].boolean and not state["failed"].boolean:
        return True
    own = migrations.own(vmi, cluster)
    return any(each.at("status", "phase").text == "Succeeded" for each in own)


def _fixed(release: Version) -> Version | None:
    """Return the first release that finds such a claim; None: this one does."""
    if release < _SINCE:
        return None
    later = (each for each in _FIXED if release[:2] <= each[:2])
    fixed = next(later, None)
    return fixed if fixed is not None and release < fixed else None
