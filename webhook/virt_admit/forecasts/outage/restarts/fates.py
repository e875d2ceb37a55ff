"""What the run strategy and the owner of a VM say about it after its node was lost."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain import ending_namespaces
from virt_admit.forecasts.drain.guests import ending_guests
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.outage.restarts import next_vmis
from virt_admit.forecasts.outage.storage import lost_storage
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.lookups import once

READS: Final[Reads] = union(lost_storage.READS, next_vmis.READS, {VM: ("metadata.finalizers",)})
_ORPHAN: Final = "orphan"
"""The finalizer of an object that is deleted without those that it owns."""


class LossOutcome(enum.StrEnum):
    """What becomes of a VM after its node is lost, the worst first."""

    LOST = "lost"
    NEVER = "never restarts"
    NODE = "waits for its node"
    ROOM = "waits for room"
    UNKNOWN = "unknown"
    OFF = "stays off"
    RESTARTS = "restarts"


@dataclass(frozen=True, slots=True)
class Fate:
    """What the run strategy of a VM says."""

    comes: bool | None
    outcome: LossOutcome
    reason: str
    remedy: str = ""
    unseen: str = ""
    removed: bool = False
    """Whether the VM is being deleted, so that no loss takes it away."""


def fate(vmi: Object, cluster: Cluster) -> Fate:
    """Return whether the run strategy starts a VM again after its node was lost."""
    return once(_fate, vmi, cluster)


def _fate(vmi: Object, cluster: Cluster) -> Fate:
    if leaves := ending_guests.removal(vmi, cluster):
        return Fate(False, LossOutcome.OFF, leaves, removed=True)
    if (deleted := _of_deleted(vmi, cluster)) is not None:
        return deleted
    if vmi.deleted and vmi.controller is None:
        return Fate(False, LossOutcome.OFF, "it is being deleted, and no VM owns it", removed=True)
    try:
        after, paused = vmis.comes_back(vmi, cluster, lost=True), next_vmis.paused(vmi, cluster)
    except Unseen as unseen:
        return Fate(None, LossOutcome.UNKNOWN, f"cannot read {unseen.what}", unseen=unseen.what)
    if paused:
        why = f"its replica set {paused} is paused"
        return Fate(False, LossOutcome.OFF, why, "set its spec.paused to false")
    if after.comes and (removed := removed_operators.kubevirt(cluster)) is not None:
        return Fate(False, LossOutcome.OFF, removed.of_vms.reason, removed.of_vms.remedy)
    if after.comes and (copied := lost_storage.unfinished(vmi, cluster)):
        outcome = LossOutcome.NEVER if lost_storage.recovers(cluster) else LossOutcome.LOST
        return Fate(False, outcome, copied, lost_storage.recovery(vmi, cluster))
    if after.comes and (held := stuck_starts.after_loss(vmi, cluster)) is not None:
        return Fate(
            False, LossOutcome.OFF, f"it does not start now either: {held.reason}", held.remedy
        )
    if after.comes and (refused := stuck_starts.refused_again(vmi, cluster)) is not None:
        return Fate(False, LossOutcome.NEVER, refused.reason, refused.remedy)
    if after.comes and (ending := ending_namespaces.reason(vmi, cluster)):
        return Fate(False, LossOutcome.OFF, f"{ending}, so that no VM starts in it again")
    if after.comes:
        return Fate(True, LossOutcome.RESTARTS, after.why)
    strategy = after.why.startswith("runStrategy ")
    return Fate(False, LossOutcome.OFF if strategy else LossOutcome.LOST, after.why, after.remedy)


def _of_deleted(vmi: Object, cluster: Cluster) -> Fate | None:
    """Return what becomes of a VMI whose VM is being deleted; None: it is not, as far as is known.

    KubeVirt deletes the VMI with its VM, unless dependents are to stay
    (kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#sync).
    """
    vm = vmis.known_vm(vmi, cluster)
    if vm is None or not vm.deleted:
        return None
    if any(each.text == _ORPHAN for each in vm.metadata["finalizers"].items()):
        why = f"its VM is being deleted, and its VMI is to stay (finalizer {_ORPHAN})"
        return Fate(False, LossOutcome.LOST, why, vmis.made_durable(vmi))
    return Fate(False, LossOutcome.OFF, "its VM is being deleted", removed=True)
