"""What keeps a VM that should run from starting, from everything that is known of it:
the nearest cause first.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.starts import (
    crashed_launchers,
    evicted_launchers,
    failed_creations,
    faulted_volumes,
    hotplug_phases,
    memory_kills,
    next_starts,
    refused_pods,
    rejected_pods,
    unfinished_disks,
    unfinished_resizes,
    unplaced,
)
from virt_admit.forecasts.drain.starts.storage import awaited_claims, provisioners, restored_claims
from virt_admit.forecasts.drain.states import stuck_starts, vm_states, vm_states_times
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import missing_networks
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model.commands import and_then, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import down_vms, lifecycle, migrations, vms
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    stuck_starts.READS,
    refused_pods.READS,
    faulted_volumes.READS,
    unfinished_disks.READS,
    unfinished_resizes.READS,
    unplaced.READS,
    awaited_claims.READS,
    restored_claims.READS,
    failed_creations.READS,
    evicted_launchers.READS,
    hotplug_phases.READS,
    crashed_launchers.READS,
    failed_starts.READS,
    priority_classes.READS,
    {POD: ("status.podIP",), VMI: ("spec.domain", "status")},
)


def of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return what keeps a VM that does not run from starting; None: nothing is known."""
    if vmi is None:
        return (
            refused_pods.halted(vm, cluster)
            or restored_claims.problem(vm, cluster)
            or stuck_starts.of_vm(vm, None, cluster)
            or rejected_pods.problem(vm, None, cluster)
            or _ended_again(vm, cluster)
            or _without_vmi(vm, cluster)
            or (crashed_launchers.of_loop(vm, cluster) if down_vms.should_run(vm) else None)
        )
    phase = vmi.at("status", "phase").text
    if phase not in vm_states.STARTING_PHASES:
        return (
            stuck_starts.of_vm(vm, vmi, cluster)
            or rejected_pods.problem(vm, vmi, cluster)
            or _restarts(vm, vmi, cluster)
        )
    return (
        _without_network(vmi, cluster)
        or refused_pods.problem(vmi, cluster)
        or faulted_volumes.problem(vmi, cluster)
        or unfinished_resizes.problem(vmi, cluster)
        or stuck_starts.of_vm(vm, vmi, cluster)
        or rejected_pods.problem(vm, vmi, cluster)
        or _unfilled(vmi, cluster)
    )


def _without_vmi(vm: Object, cluster: Cluster) -> Problem | None:
    """Return the same of a VM without a VMI, which KubeVirt makes when its disks are filled."""
    if (awaited := awaited_claims.waiting(vm, cluster)) is not None:
        return awaited.of_vm
    return (
        unfinished_disks.problem(vm, cluster)
        or faulted_volumes.problem(vm, cluster)
        or failed_creations.problem(vm, cluster)
    )


def _unfilled(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what keeps the disks of a VMI from it, or all nodes from its pod; None: nothing is
    known, or another controller fills a disk, which ends by itself.
    """
    if (awaited := awaited_claims.waiting(vmi, cluster)) is not None:
        return (_unplaced(vmi, cluster) if awaited.awaits_node else None) or awaited.of_vm
    return (
        provisioners.of_vm(vmi, cluster)
        or _stateless(vmi, cluster)
        or _unplaced(vmi, cluster)
        or unfinished_disks.problem(vmi, cluster)
        or hotplug_phases.of_start(vmi, cluster)
    )


def ended(vm: Object, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what ended the pod of a VMI that has failed: the kubelet, or a lack of memory; None:
    nothing says so.
    """
    if vmi.at("status", "phase").text != "Failed":
        return None
    return rejected_pods.of_running(vmi, cluster) or _killed(vm, vmi, cluster)


def stays_off(vm: Object, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a VM is down as its VMI has failed, and what starts it; None: KubeVirt does,
    or it has not failed.
    """
    strategy = vms.run_strategy(vms.vm_spec(vm)) or ""
    again = lifecycle.start_again(strategy, vm.name, vms.namespace_of(vm))
    failed = vmi.at("status", "phase").text == "Failed" and not vmi.deleted
    if (
        again is None
        or vm.deleted
        or not failed
        or any(vm.at("status", "stateChangeRequests").items())
    ):
        return None
    words, command = again
    rejected = rejected_pods.of_running(vmi, cluster)
    entered = clock.instant(migrations.entered(vmi, "Failed"))
    if rejected is not None:
        reason = (
            f"it is not running: {rejected.reason}. Its VMI is Failed, and {strategy} does not "
            "start it again"
        )
        return rejected._replace(reason=reason, remedy=typed(words, command, rejected.remedy))
    if (killed := _killed(vm, vmi, cluster)) is None:
        crashed = _crashed(vm, vmi, cluster)
        if crashed is not None:
            return _with_reason(crashed, f"{strategy} does not start it again")
    known = entered is not None and clock.now(cluster) is not None
    failing = (
        f"has been Failed for {vm_states_times.clock_words(entered, cluster)}"
        if known
        else "is Failed"
    )
    stays = (
        f", because {killed.reason}. {strategy}"
        if killed is not None
        else f"{_why(vmi)}, and {strategy}"
    )
    reason = f"it is not running: its VMI {failing}{stays} does not start it again"
    remedy = and_then(killed.remedy, words, command) if killed else typed(words, command)
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


def _with_reason(crashed: Problem, then: str) -> Problem:
    """Return that the VMI of a VM has failed in a crash, and what follows."""
    reason = f"it is not running: {crashed.reason}. Its VMI is Failed, and {then}"
    return crashed._replace(reason=reason)


def _why(vmi: Object) -> str:
    """Return in brackets what a VMI that has failed says of it; empty: nothing.

    Not each one had a guest with an error.
    """
    said = vmi.at("status", "reason").text
    if said == _UNRESPONSIVE:
        return f" ({said}: virt-handler on its node no longer reported)"
    if said:
        return f" ({said})"
    reboots = vmi.at("spec", "domain", "rebootPolicy").text == "Terminate"
    return " (a reboot of its guest ends it, too: rebootPolicy is Terminate)" if reboots else ""


_UNRESPONSIVE: Final = "NodeUnresponsive"
"""kubevirt/kubevirt:pkg/virt-controller/watch/node/node.go#NodeUnresponsiveReason."""


def _killed(vm: Object, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what ended the pod of a VMI and would end the next one; None: nothing says so."""
    return evicted_launchers.problem(vm, vmi, cluster) or memory_kills.problem(vmi, cluster)


def _restarts(vm: Object, vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what ended the pod of a VM that KubeVirt starts again; None: it does not,
    or nothing says so.
    """
    failed = (
        vmi.at("status", "phase").text == "Failed"
        and rejected_pods.of_running(vmi, cluster) is None
    )
    if not failed or not down_vms.should_run(vm):
        return None
    found = _killed(vm, vmi, cluster)
    if found is None:
        crashed = _crashed(vm, vmi, cluster)
        return _with_reason(crashed, "KubeVirt starts it again") if crashed is not None else None
    phase = vmi.at("status", "phase").text
    return found._replace(
        reason=(
            f"{found.reason}. Its VMI is {phase}, and KubeVirt starts it again, into the same end"
        )
    )


def _ended_again(vm: Object, cluster: Cluster) -> Problem | None:
    """Return what ended the pods of a VM that waits for its next start after failures; None:
    nothing says so.
    """
    if not vm.at(
        "status", "startFailure", "consecutiveFailCount"
    ).integer or not down_vms.should_run(vm):
        return None
    return (
        evicted_launchers.problem(vm, None, cluster)
        or memory_kills.problem(vm, cluster)
        or _crashed(vm, None, cluster)
    )


def _crashed(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return how the last start of a VM failed before its guest ran; None: it did not, or nothing
    says so.
    """
    return failed_starts.problem(vm, vmi, cluster) or crashed_launchers.problem(vm, vmi, cluster)


def _without_network(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a network which a VMI names does not exist; None: its pod has its networks
    already, or nothing says so.
    """
    pod = stuck_starts.starting_pod(vmi, cluster)
    return (
        missing_networks.of_start(vmi, cluster)
        if pod is None or not pod.at("status", "podIP").text
        else None
    )


def _stateless(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the pod of a VMI waits for the claim of its vTPM or EFI state; None: it does not,
    or nothing says so.
    """
    pod = _pod_without_node(vmi, cluster)
    return provisioners.of_state(pod, cluster) if pod is not None else None


def _unplaced(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what keeps the pod of a VMI off all nodes; None: it has a node, or nothing says so."""
    pod = _pod_without_node(vmi, cluster)
    if pod is None:
        return None
    try:
        target = candidates.target(vmi, cluster, moves=False)
        return unplaced.problem(vmi, target, cluster, pod)
    except Unseen:
        return None


def _pod_without_node(vmi: Object, cluster: Cluster) -> Object | None:
    pod = stuck_starts.starting_pod(vmi, cluster)
    return pod if pod is not None and not pod.at("spec", "nodeName").text else None


def of_stopped(vm: Object, cluster: Cluster) -> Problem | None:
    """Return what a VM that is stopped would meet if it were started now; None: nothing that is
    known.
    """
    return (
        missing_networks.of_start(vm, cluster)
        or crashed_launchers.of_stopped(vm, cluster)
        or next_starts.problem(vm, cluster)
    )
