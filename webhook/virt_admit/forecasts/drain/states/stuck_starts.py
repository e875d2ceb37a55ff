"""VMs that KubeVirt does not start, or starts without getting further: why, and what ends it.

Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus (Scheduled: the
pod is ready and handed over to virt-handler); pkg/virt-controller/watch/vm/vm.go#startVMI
#syncVolumeMigration; cmd/virt-launcher/virt-launcher.go#waitForDomainUUID; issues
kubevirt/kubevirt#17858, #3886.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.guests import held_disks, refused_devices
from virt_admit.forecasts.drain.states import (
    dying_pods,
    vm_states,
    vm_states_motion,
    vm_states_times,
)
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.states.vm_states_targets import LAUNCHER_TIMEOUT
from virt_admit.forecasts.placement import candidates, pod_networks, start_doubts, virt_handlers
from virt_admit.forecasts.placement.components import refused_owners, unattached_networks
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.launcher import libvirt_errors, pod_refusals
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    vm_states.READS,
    unattached_networks.READS,
    virt_handlers.READS,
    refused_owners.READS,
    held_disks.READS,
    refused_devices.READS,
    {
        VMI: ("status.conditions.message", "status.phaseTransitionTimestamps"),
        VM: ("status.conditions.message", "status.volumeUpdateState"),
    },
)

_POD_LATE: Final = timedelta(minutes=5)
_LONGEST: Final = 200
_BRIEF: Final = 80
_BRIEF_TEXT: Final = 130
_FORMER: Final = "name the former claims again"


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what keeps a VMI from starting; None: nothing is known, or it has just begun."""
    pod = starting_pod(vmi, cluster)
    return (_of_pod(vmi, pod, cluster) if pod is not None else None) or _of_guest(vmi, pod, cluster)


def starting_pod(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the pod in which a VMI starts; None: it is not known."""
    own = vm_states_motion.own_pods(vmi, cluster)
    return next(filter(vm_states_motion.lives, reversed(own)), None)


def of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return what keeps a VM that does not run from starting; None: nothing is known."""
    if vmi is None:
        return _recovery(vm) if vm.is_true("ManualRecoveryRequired") else None
    return _old_pod(vmi, cluster) if vmi.ended else problem(vmi, cluster)


def _recovery(vm: Object) -> Problem:
    """Return that a VM names a copy of its disk that was not completed:
    KubeVirt starts it with the former claim alone.
    """
    said = (
        vm.condition("ManualRecoveryRequired")["message"].text
        or "a migration of its volumes did not end"
    )
    former = list(unfinished_copies(vm))
    claims = names(f"{claim} for volume {volume}" for volume, claim in former)
    reason = f"KubeVirt does not start it (ManualRecoveryRequired): {cut_middle(said, _LONGEST)}"
    remedy = (
        f"name the former claim {claims} again, because the copy is not complete"
        if former
        else _FORMER
    )
    command = kubectl("edit", VM, vm.name, vms.namespace_of(vm))
    return Problem(reason, typed(remedy, command), ProblemCause.VOLUMES_DIFFER)


def unfinished_copies(vm: Object) -> Iterator[tuple[str, str]]:
    """Yield the volumes whose copy was not completed, each with the claim that has its data."""
    for moved in vm.at(
        "status", "volumeUpdateState", "volumeMigrationState", "migratedVolumes"
    ).items():
        volume, claim = moved["volumeName"].text, moved.at("sourcePVCInfo", "claimName").text
        if volume and claim:
            yield volume, claim


def _old_pod(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that KubeVirt waits for the end of the pod of a VMI that has ended,
    before it makes the next VMI.
    """
    for pod in vm_states_motion.own_pods(vmi, cluster):
        end = clock.instant(pod.metadata["deletionTimestamp"].text)
        if pod.deleted and vm_states_times.is_older(end, _POD_LATE, cluster):
            on = pod.at("spec", "nodeName").text or "its node"
            reason = (
                f"its VMI is {vmi.at('status', 'phase').text}, and no new one is made before its "
                f"pod on {on} is gone, which should have ended {vm_states_times.age(end, cluster)} "
                "ago"
            )
            dying = dying_pods.of_pod(pod, cluster)
            why = f": {dying.why}" if dying.said else ""
            return Problem(
                f"{reason}{why}", dying_pods.with_command(dying, pod), ProblemCause.POD_NOT_ENDING
            )
    return None


def elsewhere(vmi: Object, cluster: Cluster) -> tuple[str, ...] | None:
    """Return where a VMI could start whose pod does not start for a fault of its node; empty: that
    cannot be determined.

    None: it has none of these faults, or can start nowhere else.
    """
    pod = starting_pod(vmi, cluster)
    on = pod.at("spec", "nodeName").text if pod is not None else None
    fault = pod_starts.fault(pod, cluster) if pod is not None and on else None
    if fault is None or not fault.of_node:
        return None
    target = start_doubts.without_broken_nodes(
        candidates.target(vmi, cluster, moves=False), cluster
    )
    certain = target.placement.certain
    return (
        None
        if certain is not None and set(certain) <= {on}
        else tuple(name for name in certain or () if name != on)
    )


def after_loss(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return what keeps a VMI from starting also after the loss of its node; None:
    nothing known.
    """
    if vmi.at("status", "phase").text not in vm_states.STARTING_PHASES:
        return None
    held = held_disks.is_held_elsewhere(vmi, unsynchronized(vmi), cluster)
    return problem(vmi, cluster) if held else None


def refused_again(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that each new pod of a running VMI is refused, as the target pod of its migration is.

    None: nothing says so. Its old pod runs on whatever its namespace demands of new ones by now.
    """
    # as of most; a state takes longer
    if not events.last_warning(vmi, "FailedCreate", None, cluster):
        return None
    found = vm_states.of(vmi, cluster)
    if found.state is not State.NO_TARGET:
        return None
    said = events.last_warning(vmi, "FailedCreate", found.since, cluster)
    remedy = pod_refusals.remedy(vmi, said, cluster) if said else ""
    if not remedy or "admission webhook" in said:  # a webhook may refuse the target pod alone
        return None
    _, _, why = said.partition(" is forbidden: ")
    reason = f"its new pod is refused as its target pod is: {cut_middle(why or said, _LONGEST)}"
    return Problem(reason, remedy, ProblemCause.NOT_CREATED)


def fails(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VMI does not start, for a cause that is not known to be one of its node."""
    starts = vmi.at("status", "phase").text in vm_states.STARTING_PHASES
    return starts and problem(vmi, cluster) is not None and elsewhere(vmi, cluster) is None


def _of_pod(vmi: Object, pod: Object, cluster: Cluster) -> Problem | None:
    fault = pod_starts.fault(pod, cluster)
    if fault is None:
        return None
    on = pod.at("spec", "nodeName").text
    lasts = vm_states_times.lasting(clock.instant(pod.created), cluster)
    begin = f"its pod{f' on {on}' if on else ''} has not started {lasts}"
    now, mark, later = fault.remedy.partition(network_fences.NEXT_TIME)
    # two guests must not have one disk
    when = "on the same condition, to run the VM elsewhere," if mark else ""
    when = when or "to run the VM elsewhere without that,"
    again = (
        f"; or, {when} cordon {names(_without_network(on, cluster))}, then stop the VM and start "
        "it again"
        if elsewhere(vmi, cluster)
        else ""
    )
    shown = len(begin) + len(fault.brief) < _BRIEF_TEXT
    brief = f"{begin}: {fault.brief}" if shown else fault.brief
    remedy = f"{now}{again}{mark}{later}"
    return Problem(f"{begin}: {fault.words}", remedy, ProblemCause.NOT_REPORTED, brief=brief)


def _without_network(on: str | None, cluster: Cluster) -> Sequence[str]:
    """Return a node on which a pod does not start, and the others whose pod network takes none
    although kube-scheduler may choose them.
    """
    broken = cluster.cached(virt_handlers.broken)
    some = [name for name, why in broken.items() if why.startswith(pod_networks.BROKEN)]
    found = (find(cluster, NODE, "", name) for name in sorted(some) if name != on)
    free = (each for each in found if each is not None)
    away = (each.name for each in free if not each.at("spec", "unschedulable").boolean)
    return [on or "", *away]


def _of_guest(vmi: Object, pod: Object | None, cluster: Cluster) -> Problem | None:
    """Return why virt-handler does not start or report the guest."""
    if without := unattached_networks.of_start(vmi, pod, cluster):
        return without
    if said := unsynchronized(vmi):
        if held := held_disks.problem(vmi, said, cluster):
            return held
        if refused := refused_owners.of(vmi, said, cluster):
            reason = f"{synchronizer(vmi)}: {cut_middle(said, _LONGEST)}. {capital(refused.reason)}"
            short = f"{synchronizer(vmi)}: {refused.reason}"
            return Problem(reason, refused.remedy, ProblemCause.NOT_REPORTED, brief=short)
        if device := refused_devices.of(vmi, said, cluster):
            reason = f"{synchronizer(vmi)}: {device.reason}"
            return Problem(reason, device.remedy, ProblemCause.NOT_REPORTED)
        reason, brief = (
            f"{synchronizer(vmi)}: {cut_middle(said, length)}" for length in (_LONGEST, _BRIEF)
        )
        if device_named := refused_devices.named(vmi, said, cluster):
            reason = f"{reason}. This is {device_named}"
        return Problem(
            reason,
            _unsynchronized_remedy(vmi, pod, said, cluster),
            ProblemCause.NOT_REPORTED,
            brief=brief,
        )
    entered = clock.instant(migrations.entered(vmi, "Scheduled"))
    handed_over = vmi.at("status", "phase").text == "Scheduled"
    if not handed_over or not vm_states_times.is_older(entered, LAUNCHER_TIMEOUT, cluster):
        return None
    if pod is not None and not pod.is_true("Ready"):
        return None
    node = vmi.at("status", "nodeName").text or ""
    late = (
        f"virt-handler on {node} has had its pod for {vm_states_times.age(entered, cluster)} and "
        "reports no guest"
    )
    command = virt_handlers.logs(cluster, node) or kubectl(
        "describe", VMI, vmi.name, vms.namespace_of(vmi)
    )
    rejected = _rejected(vmi, cluster)
    reason, remedy = (f"{late}: {rejected}", _UPDATE) if rejected else (late, _SEE)
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED, command=command)


def _unsynchronized_remedy(vmi: Object, pod: Object | None, said: str, cluster: Cluster) -> str:
    """Return what ends that a controller cannot start a VMI:
    the log of the component that fails says more.
    """
    described = kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
    if not is_handed_over(vmi):
        known = pod_refusals.remedy(vmi, said, cluster)
        return known or typed("correct what this names, or stop the VM", described)
    node = vmi.at("status", "nodeName").text or ""
    if not said.startswith(_BY_LAUNCHER) and (logs := virt_handlers.logs(cluster, node)):
        return typed(
            f"see what virt-handler on {node}, which fails, logs about it, correct that, or stop "
            "the VM",
            logs,
        )
    logs = (
        shell("kubectl", "logs", argument(pod.name), "-c", "compute", "-n", pod.namespace)
        if pod
        else described
    )
    return typed("see what its launcher logs about it, correct that, or stop the VM", logs)


_BY_LAUNCHER: Final = "server error. command "
"""How an error begins that the launcher gave to virt-handler
(pkg/virt-handler/cmd-client/errors.go).
"""


def unsynchronized(vmi: Object) -> str:
    """Return why a controller cannot make of a VMI what its spec says; empty: nothing says so."""
    synchronized = vmi.condition("Synchronized")
    if synchronized["status"].text != "False":
        return ""
    said = synchronized["message"].words
    return libvirt_errors.legible(said) or "no reason is given"


def is_handed_over(vmi: Object) -> bool:
    """Return whether virt-handler writes the condition Synchronized: before, virt-controller does,
    for lack of a pod.

    Sources: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus,
    :pkg/virt-handler/vm.go.
    """
    reason = vmi.condition("Synchronized")["reason"].text or ""
    handed_over = vmi.at("status", "phase").text not in (None, "Pending", "Scheduling")
    return reason.startswith("Synchronizing") or (handed_over and not reason.startswith("Failed"))


def synchronizer(vmi: Object) -> str:
    """Return which controller fails with a VMI, and at what."""
    who = "virt-handler" if is_handed_over(vmi) else "virt-controller"
    if vmi.at("status", "phase").text not in vm_states.STARTING_PHASES:
        return f"{who} cannot apply its spec to the guest"
    if who == "virt-handler":
        return f"{who} cannot start its guest"
    created = vmi.condition("Synchronized")["reason"].text == "FailedCreate"
    return f"{who} cannot create its pod" if created else f"{who} cannot start it"


_STRICT: Final = Version(1, 36)
"""Kubernetes validates the format of numbers in custom resources from here on
(kubernetes/kubernetes#136582).
"""
_WIDER: Final = Version(1, 8, 4)
"""KubeVirt declares its checksums as int64 from here on; before,
half of all checksums are not a valid int32.
"""
_SEE: Final = "see what virt-handler logs about it"
_UPDATE: Final = f"{_SEE}, and update KubeVirt to {_WIDER} or a later release"


def _rejected(vmi: Object, cluster: Cluster) -> str:
    """Return why the API server rejects what virt-handler writes into the status; empty:
    nothing is known.
    """
    release = versions.kubevirt_version(cluster)
    server = versions.parse_version(cluster.server_version)
    if release is None or server is None or release >= _WIDER or server < _STRICT:
        return ""
    has_image = any(volume["containerDisk"].present for volume in vmi.at("spec", "volumes").items())
    if not has_image and not vmi.at("spec", "domain", "firmware", "kernelBoot").present:
        return ""
    return (
        f"the API server of Kubernetes {server.major}.{server.minor} rejects most likely the "
        f"checksum of its container disk, which KubeVirt {release} declares too narrow"
    )
