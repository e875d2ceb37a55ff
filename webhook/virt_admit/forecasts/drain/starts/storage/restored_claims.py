"""VMs that Harvester has set to Halted for a restore that is not over, and restores that wait for a
claim which only a start of the VM would bind.

Harvester's restore replaces the claims of a stopped VM, and starts it once each new claim is Bound.
A StorageClass with WaitForFirstConsumer binds a claim when a pod that uses it is placed, and a VM
that is Halted has no pod. KubeVirt's own restore does not wait for such claims. Sources:
harvester/harvester:pkg/controller/master/backup/restore.go#reconcileVolumeRestores
#updateExistingVM (1.4 to 1.8), issue 10665; kubevirt/kubevirt:
pkg/storage/snapshot/restore.go#reconcileVolumeRestores.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.starts.storage import provisioners
from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_RESTORE, PVC, STORAGE_CLASS, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import down_vms, vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause

_SELECTED: Final = "volume.kubernetes.io/selected-node"
"""Where kube-scheduler writes the node of the first pod that uses a claim."""
READS: Final[Reads] = union(
    clock.READS,
    provisioners.READS,
    {
        VM: (
            *(f"metadata.annotations.{down_vms.RESTORED}", "spec.runStrategy"),
            "spec.template.spec.volumes",
        ),
        HARVESTER_RESTORE: (
            *("metadata.creationTimestamp", "spec.target.name", "status.complete"),
            *("status.restores", "status.conditions.message", *CONDITIONS),
        ),
        PVC: ("metadata.annotations", "spec.storageClassName", "spec.volumeName", "status.phase"),
        STORAGE_CLASS: ("volumeBindingMode",),
    },
)
_SETTLED: Final = timedelta(minutes=5)
"""So long a restore may work on its claims before it starts the VM."""
_LONGEST: Final = 120


def under_way(vm: Object, cluster: Cluster) -> Object | None:
    """Return the restore for which a VM is off; None: it has ended, or is not known."""
    restore = find(cluster, HARVESTER_RESTORE, vms.namespace_of(vm), down_vms.restored(vm))
    if restore is None or restore.deleted or restore.at("status", "complete").boolean is not False:
        return None
    return restore if restore.at("spec", "target", "name").text == vm.name else None


def words(restore: Object, cluster: Cluster) -> str:
    """Return that a restore keeps its VM off, and what it says itself."""
    age = clock.age(restore, cluster)
    lasts = f" for {clock.duration(age)}" if age is not None else ""
    conditions = (restore.condition(kind)["message"].words for kind in ("Error", "Ready"))
    said = cut_middle(next(filter(None, conditions), ""), _LONGEST)
    return (
        f"{restore.kind} {restore.name} of Harvester has set it to Halted, and is under "
        f"way{lasts}{f' ({said})' if said else ''}"
    )


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return that a claim of a restore is refused, or that a claim of its VM and it wait for each
    other; None: they do not, or that is not known.
    """
    restore = under_way(vm, cluster)
    age = clock.age(restore, cluster) if restore is not None else None
    if restore is None or age is None or age < _SETTLED:
        return None
    namespace = vms.namespace_of(vm)
    if (refused := provisioners.of_claims(namespace, _every(restore), cluster)) is not None:
        reason = f"it is off as {words(restore, cluster)}, and {refused.reason}"
        brief = f"{restore.kind} {restore.name} waits, as {refused.brief or refused.reason}"
        return refused._replace(reason=reason, brief=brief)
    waiting = {
        name: kind for name in _claims(vm, restore) if (kind := _mode(namespace, name, cluster))
    }
    if not waiting:
        return None
    name, storage_class = next(iter(waiting.items()))
    more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
    brief = f"{restore.kind} {restore.name} and claim {name} wait for each other"
    reason = (
        f"it is off as {words(restore, cluster)}: it starts the VM once claim {name}{more} is "
        f"Bound, but StorageClass {storage_class} (WaitForFirstConsumer) binds that when a pod "
        "uses it, so both wait for each other without end"
    )
    pod = kubectl("describe", PVC, name, namespace)
    further = (
        f"or let another pod use the claim until it is Bound ({pod}). A restore that replaces the "
        "claims of a VM needs a class with binding mode Immediate"
    )
    start = typed(
        "start it, so that its pod binds the claim and the restore goes on",
        virtctl("start", vm.name, namespace),
        further,
    )
    return Problem(reason, start, ProblemCause.NOT_REPORTED, brief=brief)


def _claims(vm: Object, restore: Object) -> Iterator[str]:
    """Return the claims of a restore that the VM has already: its start would use them."""
    volumes = vms.vmi_spec(vm)["volumes"].items()
    own = {claim for volume in volumes for claim in launcher_pod.claims_of(volume)}
    return (name for name in _every(restore) if name in own)


def _every(restore: Object) -> Iterator[str]:
    """Yield the claims that a restore makes."""
    for each in restore.at("status", "restores").items():
        if name := each.at("persistentVolumeClaimSpec", "metadata", "name").text:
            yield name


def _mode(namespace: str, name: str, cluster: Cluster) -> str:
    """Return the StorageClass of a claim that waits for its first pod; empty: it does not."""
    claim = find(cluster, PVC, namespace, name)
    if claim is None or claim.deleted or claim.at("status", "phase").text != "Pending":
        return ""
    if claim.at("spec", "volumeName").text or claim.annotations.get(_SELECTED):
        return ""
    named = claim.at("spec", "storageClassName").text or ""
    mode = fields(cluster, STORAGE_CLASS, "", named)["volumeBindingMode"].text
    return named if mode == "WaitForFirstConsumer" else ""
