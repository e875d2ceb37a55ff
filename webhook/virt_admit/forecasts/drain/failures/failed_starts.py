"""Starts of VMs that failed before a guest ran, by what is left of them: a container of the pod
that could not be started, what virt-handler says of the VMI, or the events of either.

The pods are mostly gone soon; their events are left, for an hour. Where starts fail on one node
alone while guests run on others, that node is named with what it alone has. Sources:
kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_container.go#startContainer (Failed),
containerd/containerd:internal/cri/server/container_start.go (StartError);
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#vmiFailedEarly, :pkg/virt-handler/vm.go
(SyncFailed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.failures import start_errors
from virt_admit.forecasts.drain.failures.start_errors import KnownError
from virt_admit.forecasts.drain.guests import refused_devices
from virt_admit.forecasts.drain.states import stuck_starts, vm_states_motion
from virt_admit.forecasts.placement import start_candidates, start_doubts, virt_handlers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.commands import argument, kubectl, logs_of, shell, typed
from virt_admit.model.evidence import container_states, node_differences
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS
from virt_admit.model.kubevirt.instances import down_vms, migrations, vms
from virt_admit.model.kubevirt.launcher import libvirt_errors
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    start_errors.READS,
    refused_devices.READS,
    node_differences.READS,
    {
        POD: (
            *("metadata.labels", "status.phase", "status.reason"),
            *(f"status.{kind}.state.terminated" for kind in CONTAINERS),
        ),
        VM: ("status.startFailure",),
        VMI: (
            *("status.phase", "status.phaseTransitionTimestamps", "status.nodeName"),
            *("status.conditions", "status.migrationState.targetNode"),
        ),
    },
)

_NEVER_RAN: Final = frozenset(("StartError", "ContainerCannotRun", "CreateContainerError"))
"""Reasons of a container that ended and never ran, so that it has no log."""
_LAUNCHER: Final = "virt-launcher-"
_ERROR: Final = "Error: "
"""How the kubelet frames why a container does not start."""
_LONGEST, _BRIEF = 200, 90
_LAST: Final = timedelta(minutes=15)
"""An event that is longer before the next start is of an earlier one: KubeVirt waits 5 minutes at
most (kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#calculateStartBackoffTime)."""
_IN_A_ROW: Final = 3
"""Failed starts that are no accident."""
_MOST: Final = 3
"""Differences of a node that are told."""
_INFO: Final = ("osImage", "kernelVersion", "containerRuntimeVersion", "kubeletVersion")
"""What differs most tellingly, first."""


class FailedStart(NamedTuple):
    """How the last start of a VM failed, before its guest ran."""

    vm: str
    node: str
    """Empty: it is not known."""
    what: str
    """What failed, without why: ``container c of p on n could not be started``."""
    said: str
    time: datetime | None
    pod: Object | None = None
    """The launcher, if it is left."""
    container: str = ""
    """The container that has a log; empty: none has."""
    by_handler: bool = False


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return how the last start of a VM failed, and which object explains it; None: it did not, or
    nothing of it is left.
    """
    failures = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not (failures if vmi is None else _failed_early(vmi)):
        return None
    start = _of_vm(vm, vmi, cluster)
    if start is None:
        return None
    times = f"its last {failures} starts failed" if failures > 1 else "its last start failed"
    reason, brief = (
        f"{times}: {start.what}: {cut_middle(start.said, width)}" for width in (_LONGEST, _BRIEF)
    )
    known = start_errors.of(start.said, start.pod, start.node, cluster) or _of_device(
        vmi or vm, start.said, cluster
    )
    fault = _node_fault(start.node, cluster)
    told = ". ".join(filter(None, (known and known.why, fault and capital(fault.told))))
    remedy = known.remedy if known is not None else _see(start, cluster)
    command = known.command if known is not None else ""
    if fault is not None:
        remedy = _elsewhere(vm, start.node, typed(remedy, command), cluster)
    elif command:
        remedy = typed(remedy, command)
    last = f", the last on {start.node}" if failures > 1 and start.node else ""
    short = f"{times}{last}: {capital(told)}" if told else brief
    why = f"{reason.rstrip('.')}. {capital(told)}" if told else reason
    return Problem(why, remedy, ProblemCause.NOT_REPORTED, brief=short)


def _of_device(obj: Object, said: str, cluster: Cluster) -> KnownError | None:
    device = refused_devices.of(obj, said, cluster)
    return KnownError(device.reason, device.remedy) if device is not None else None


def bad_node(vm: Object, vmi: Object | None, cluster: Cluster) -> str:
    """Return the node on which the starts of a VM fail, as those of all VMs do there; empty: none
    is known.
    """
    if problem(vm, vmi, cluster) is None:
        return ""
    start = _of_vm(vm, vmi, cluster)
    return start.node if start is not None and _node_fault(start.node, cluster) else ""


def doubt(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return why the next pod of a VM may not start, as those of other VMs do not; None: no
    doubt.
    """
    chosen = target.placement.candidates
    for node, fault in cluster.cached(_faults).items():
        if node in chosen:
            cordon = shell("kubectl", "cordon", argument(node))
            reason = f"kube-scheduler may choose {node}, where each known start fails: {fault.told}"
            return Problem(reason, typed(f"cordon {node} until that is repaired", cordon))
    empty = cluster.cached(_empty_images)
    if not empty or not start_errors.needs_images(vmi, cluster):
        return None
    runtimes = cluster.cached(_runtimes)
    found = [empty.get(each) for each in dict.fromkeys(runtimes.get(node, "") for node in chosen)]
    first = next(iter(found), None)
    if first is None or not all(found):
        return None
    start, known = first
    reason = f"its next pod would fail as that of {start.vm} does. {known.why}"
    return Problem(reason, typed(known.remedy, known.command))


def _runtimes(cluster: Cluster) -> Mapping[str, str]:
    return {node.name: start_errors.runtime(node.name, cluster) for node in cluster.known(NODE)}


def _empty_images(cluster: Cluster) -> Mapping[str, tuple[FailedStart, KnownError]]:
    """Return a start that failed for an empty image volume, by the container runtime."""
    starts = filter(None, (_last(vm, cluster) for vm in cluster.known(VM)))
    return {
        runtime: (start, known)
        for start in starts
        if (runtime := start_errors.runtime(start.node, cluster))
        and (known := start_errors.of(start.said, start.pod, start.node, cluster)) is not None
        and known.of_images
    }


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that the starts of VMs fail on a node alone."""
    fault = _node_fault(node.name, cluster)
    if fault is not None:
        yield (
            f"Each known start of a VM fails here, that of {names(fault.vms, 120)}: "
            f"{cut_middle(fault.said, _LONGEST)}. {capital(fault.told)}."
        )


# --- what is left of a failed start ---------------------------------------------------------------


def _of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> FailedStart | None:
    """Return how the last start of a VM failed; None: nothing of it is left."""
    if vmi is not None:
        own = vm_states_motion.own_pods(vmi, cluster)
        return _of_pods(own, vm) or _of_handler(vm, vmi) or _of_events(vm, own, cluster)
    own = [*vm_states_motion.pods(vm, cluster)]
    return _of_pods(own, vm) or _of_events(vm, own, cluster)


def _of_pods(own: Sequence[Object], vm: Object) -> FailedStart | None:
    pod = next(reversed(own), None)
    found = _unstarted(pod) if pod is not None else None
    if pod is None or found is None:
        return None
    name, ended = found
    node = pod.at("spec", "nodeName").text or ""
    ran = ended["reason"].text not in _NEVER_RAN
    how = f"ended with exit code {ended['exitCode'].integer}" if ran else "could not be started"
    what = f"container {name} of {pod.name} on {node or 'its node'} {how}"
    said = _plain(ended["message"].words) or ended["reason"].text or "no reason is given"
    time = clock.instant(ended["finishedAt"].text)
    return FailedStart(vm.full_name, node, what, said, time, pod, name if ran else "")


def _unstarted(pod: Object) -> tuple[str, Field] | None:
    """Return the container of a failed pod that could not be started, or the init container that
    failed, with how: those after it never ran.
    """
    if pod.at("status", "phase").text != "Failed" or pod.at("status")["reason"].text:
        return None
    for kind in CONTAINERS:
        for status in pod.at("status", kind).items():
            ended = status.at("state", "terminated")
            failed = ended["reason"].text in _NEVER_RAN
            if kind == CONTAINERS[0]:
                failed = failed or bool(ended["exitCode"].integer)
            if failed:
                return status["name"].text or "?", ended
    return None


def _of_handler(vm: Object, vmi: Object) -> FailedStart | None:
    """Return that virt-handler could not start the guest of a VMI that has failed."""
    said, node = stuck_starts.unsynchronized(vmi), vmi.at("status", "nodeName").text or ""
    if not said or not node or not stuck_starts.is_handed_over(vmi):
        return None
    time = clock.instant(migrations.entered(vmi, "Failed"))
    what = f"virt-handler on {node} could not start its guest"
    return FailedStart(vm.full_name, node, what, said, time, by_handler=True)


def _of_events(vm: Object, own: Sequence[Object], cluster: Cluster) -> FailedStart | None:
    """Return why the last start of a VM failed of which only events are left."""
    known = cluster.cached(_failures).get((vms.namespace_of(vm), vm.name), ())
    left = {pod.name for pod in own}
    again = clock.instant(vm.at("status", "startFailure", "retryAfterTimestamp").text)
    for event in known:
        time, about = events.time_of(event), event["involvedObject"]
        old = again is None or time is None or time < again - _LAST
        if old or about["name"].text in left:
            continue
        node = events.host(event)
        by_handler = about["kind"].text == VMI.kind
        on = node or "its node"
        said = events.message(event).removeprefix(_ERROR)
        what = (
            f"virt-handler on {on} could not start its guest"
            if by_handler
            else f"a container of {about['name'].text} on {on}, which is gone, could not be started"
        )
        said = libvirt_errors.legible(said) if by_handler else _plain(said)
        return FailedStart(vm.full_name, node, what, said, time, by_handler=by_handler)
    return None


def _failures(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the events that say why a guest was not started, by namespace and name of the VM, the
    newest first.
    """
    found: dict[tuple[str, str], list[Object]] = {}
    for event in events.newest_warnings(cluster):
        about, reason = event["involvedObject"], event["reason"].text
        kind, name = about["kind"].text, about["name"].text or ""
        if kind == POD.kind and reason == "Failed" and name.startswith(_LAUNCHER):
            if not (event["message"].text or "").startswith(_ERROR) or _is_pull(event):
                continue
            name = name.removeprefix(_LAUNCHER).rpartition("-")[0]
        elif kind != VMI.kind or reason != "SyncFailed":
            continue
        found.setdefault((about["namespace"].text or "default", name), []).append(event)
    return found


def _is_pull(event: Object) -> bool:
    """Whether an event only repeats that an image is not there, which does not fail a pod."""
    said = (event["message"].text or "").removeprefix(_ERROR)
    return " " not in said.strip()


_FRAMES: Final = (
    "failed to create containerd task: ",
    "failed to create shim task: ",
    "OCI runtime create failed: ",
    "runc create failed: ",
    "unable to start container process: ",
    "error during container init: ",
)
"""How containerd and runc frame the error of each other: only the last part says why."""


def _plain(said: str) -> str:
    for frame in _FRAMES:
        said = said.removeprefix(frame)
    return said


def _failed_early(vmi: Object) -> bool:
    """Whether a VMI has certainly failed before its guest ran."""
    entered = (migrations.entered(vmi, each) is not None for each in ("Scheduling", "Scheduled"))
    failed = vmi.at("status", "phase").text == "Failed"
    return failed and any(entered) and migrations.entered(vmi, "Running") is None


# --- one node alone -------------------------------------------------------------------------------


class _NodeFault(NamedTuple):
    """A node on which the starts of VMs fail, while guests run on others."""

    vms: Sequence[str]
    said: str
    told: str


def _node_fault(node: str, cluster: Cluster) -> _NodeFault | None:
    """Return that a node is the only one on which starts fail; None: that is not certain."""
    return cluster.cached(_faults).get(node) if node else None


def _faults(cluster: Cluster) -> Mapping[str, _NodeFault]:
    """Return the node on which each known failed start was, if guests run on others and none has
    started there of late.
    """
    if any(unlisted(cluster, kind) for kind in (VM, VMI)):
        return {}
    every = [
        (start, vm.at("status", "startFailure", "consecutiveFailCount").integer or 0)
        for vm in cluster.known(VM)
        if (start := _last(vm, cluster)) is not None and down_vms.should_run(vm)
    ]
    nodes = {start.node for start, _ in every}
    if len(nodes) != 1 or "" in nodes or sum(times for _, times in every) < _IN_A_ROW:
        return {}
    (node,) = nodes
    running = [vmi for vmi in cluster.known(VMI) if vmi.at("status", "phase").text == "Running"]
    others = {vmi.at("status", "nodeName").text or "" for vmi in running} - {node, ""}
    first = min((start.time for start, _ in every if start.time is not None), default=None)
    if not others or first is None or any(_is_new_on(vmi, node, first) for vmi in running):
        return {}
    start = every[0][0]
    known = start_errors.of(start.said, start.pod, node, cluster)
    if len(every) == 1 and not (known is not None and known.of_node):
        return {}  # the VM may be the cause
    if len({start.by_handler for start, _ in every}) > 1:
        return {}
    differences = _differences(node, cluster)
    where = f"guests run on {names(sorted(others), 60)}, and starts fail on {node} alone"
    told = f"{where}, which alone has {differences}" if differences else where
    return {node: _NodeFault(sorted(start.vm for start, _ in every), start.said, told)}


def _last(vm: Object, cluster: Cluster) -> FailedStart | None:
    """Return how the last start of a VM failed that does not run; None: it runs, or starts well."""
    vmi = find(cluster, VMI, vms.namespace_of(vm), vm.name)
    failures = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not failures or (vmi is not None and not _failed_early(vmi)):
        return None
    return _of_vm(vm, vmi, cluster)


def _is_new_on(vmi: Object, node: str, failed: datetime) -> bool:
    """Whether a guest may have come to a node about when starts failed there, or later."""
    if vmi.at("status", "nodeName").text != node:
        return False
    began = clock.instant(migrations.entered(vmi, "Running"))
    moved = vmi.at("status", "migrationState", "targetNode").text == node
    return moved or began is None or began > failed - container_states.RECENT


def _differences(node: str, cluster: Cluster) -> str:
    found = {each.what: each for each in node_differences.of(node, cluster)}
    order = [*(each for each in _INFO if each in found), *(set(found) - set(_INFO))]
    return ", ".join(
        f"{each.what} {each.own} (the others {each.others})"
        for each in (found[what] for what in order[:_MOST])
        if each.own is not None and each.others is not None
    )


def _elsewhere(vm: Object, node: str, repair: str, cluster: Cluster) -> str:
    """Return how a VM starts on another node than that on which starts fail, then what repairs
    it.
    """
    try:
        target = start_candidates.start_target(vm, cluster)
        places = start_doubts.without_broken_nodes(target, cluster).placement.certain
    except Unseen:
        places = None
    others = sorted({*(places or ())} - {node})
    if places is not None and not others:
        return repair
    to = f"{names(others, 80)}" if others else "another node"
    cordon = shell("kubectl", "cordon", argument(node))
    return f"cordon {node}, so that it starts on {to}: {cordon}; then {repair}"


def _see(start: FailedStart, cluster: Cluster) -> str:
    """Return where more is said of a failed start: never the log of a container without one."""
    if start.pod is not None and start.container:
        words = "correct what the log of that container says"
        return typed(words, logs_of(start.pod, "-c", start.container))
    if start.pod is not None:
        words = "correct what this names, or the next start ends alike"
        return typed(words, kubectl("describe", POD, start.pod.name, start.pod.namespace))
    if start.by_handler and (logs := virt_handlers.logs(cluster, start.node)):
        return typed(f"see what virt-handler on {start.node} logs about it, and correct that", logs)
    name, namespace = start.vm.rpartition("/")[2], start.vm.partition("/")[0]
    return typed("correct what this names", kubectl("describe", VM, name, namespace))
