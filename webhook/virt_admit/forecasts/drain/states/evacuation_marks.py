"""The mark of an accepted eviction, ``status.evacuationNodeName``:
KubeVirt makes migrations as long as it stands.

Nothing takes it back when a drain is given up and its node is uncordoned, so migrations that fail
or are deleted are made again. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go; issues #5177, #9585;
pkg/virt-api/rest/evacuate_cancel.go (removes it by a JSON patch of the VMI, which has no
subresource for its status); pkg/virt-api/webhooks/mutating-webhook/mutators/vmi-mutator.go (takes
back what others than KubeVirt's accounts change there).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State, VmState
from virt_admit.forecasts.placement import running_launchers
from virt_admit.model import deschedulers
from virt_admit.model.commands import argument, json_patch, kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import KUBEVIRT, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.problems import Problem, ProblemCause


def words(vmi: Object, cluster: Cluster) -> str:
    """Return why a VM moves away from a node that is not drained."""
    if strategy := descheduled(vmi, cluster):
        return f"it moves away because a descheduler evicted it ({strategy})"
    return (
        "it is still marked for eviction (status.evacuationNodeName "
        f"{vmi.at('status', 'nodeName').text}), although that node is not cordoned: KubeVirt makes "
        "a new migration after each that fails or is deleted"
    )


def descheduled(vmi: Object, cluster: Cluster) -> str:
    """Return the strategy for which a descheduler evicted a VM from its node; empty: it did not,
    or no Event says so.
    """
    pod = running_launchers.launchers(cluster).on_node(vmi)
    return deschedulers.evicted(pod, cluster) if pod is not None else ""


def is_left_over(found: VmState) -> bool:
    """Whether a VM is marked for eviction, although its node is not drained,
    and can still stay there.
    """
    return Flag.LEFTOVER in found.flags and found.state is not State.POST_COPY


def way_to_stay(vmi: Object, found: VmState, cluster: Cluster) -> str:
    """Return how a VM stays that moves although its node is not drained; empty: it should not,
    or cannot.

    A descheduler evicts it on purpose, and without the mark it would do so again.
    """
    return (
        typed("if it is to stay", evacuate_cancel(vmi, cluster))
        if _may_stay(vmi, found, cluster)
        else ""
    )


def _may_stay(vmi: Object, found: VmState, cluster: Cluster) -> bool:
    return is_left_over(found) and not descheduled(vmi, cluster)


def evacuate_cancel(vmi: Object, cluster: Cluster) -> str:
    """Return the command that removes the mark of an evacuation.

    Before 1.7 only an account of KubeVirt itself may do that.
    """
    if versions.has_release(cluster, Feature.EVACUATE_CANCEL.since):
        return shell(
            "virtctl", "evacuate-cancel", "vmi", argument(vmi.name), "-n", vms.namespace_of(vmi)
        )
    mark = Path("status", "evacuationNodeName")
    steps = (Patch("test", mark, vmi.at(*mark).text), Patch("remove", mark))
    namespace = next((each.namespace for each in cluster.known(KUBEVIRT)), "") or "kubevirt"
    account = f"--as=system:serviceaccount:{namespace}:kubevirt-controller"
    return f"{json_patch(VMI, vmi.name, vms.namespace_of(vmi), steps)} {shell(account)}"


def mark_first(reason: str, vmi: Object, found: VmState, cluster: Cluster) -> str:
    """Return why a VMI that migrates stays: a mark that no drain needs comes before the cause.

    A descheduler would evict it again, so there the cause stays alone.
    """
    if not _may_stay(vmi, found, cluster):
        return reason
    mark = words(vmi, cluster)
    return f"{mark}. {reason.replace(f'; {mark}', '')}"


def or_stays(problem: Problem, vmi: Object, found: VmState, cluster: Cluster) -> Problem:
    """Return a problem whose remedy also says how the VMI stays until a drain: without the mark it
    needs no other node.

    The drain needs the remedy of the cause, which keeps the end with its command.
    """
    cause = problem.id.cause if problem.id is not None else problem.cause
    if cause not in _OF_TARGETS or not way_to_stay(vmi, found, cluster):
        return problem
    stays = f"if no drain is to come now, remove the mark ({evacuate_cancel(vmi, cluster)})"
    stays += _unstarted(found)
    return problem._replace(remedy=f"{stays}; for a drain, {problem.remedy}")


def _unstarted(found: VmState) -> str:
    """Return that the migration goes too which no node takes; empty: there is none."""
    foreign = Flag.FOREIGN in found.flags
    if found.migration is None or foreign or found.state not in _WAITING:
        return ""
    named = (VMIM, found.migration.name, found.migration.namespace)
    return f"; then delete {VMIM.kind} {found.migration.name} ({kubectl('delete', *named)})"


_WAITING: Final = frozenset((State.QUEUED, State.NO_TARGET, State.UNSCHEDULABLE))
"""No target pod has a node, so that nothing of the guest is copied yet."""

_OF_TARGETS: Final = frozenset(
    (
        ProblemCause.NO_OTHER_NODE,
        ProblemCause.NO_ROOM,
        ProblemCause.NO_TARGET,
        ProblemCause.HOST_MODEL,
    )
)
"""No node takes it, and none has to as long as it stays."""
