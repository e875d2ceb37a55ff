"""Pods of a VM that each kubelet rejects at once, so that the VM starts again and again: what kube-scheduler does not know.

The pods are gone after that; their events are left, for an hour. Sources:
kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod, :pkg/kubelet/cm/cpumanager/policy_static.go#SMTAlignmentError,
:pkg/kubelet/cm/topologymanager/scope.go#TopologyAffinityError, :pkg/kubelet/lifecycle/predicate.go (OutOf…);
kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#WithCPUPinning, :pkg/virt-controller/watch/vm/vm.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.launcher.launcher_settings import EVEN_PARITY
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.model.messages import cut, names
from virt_admit.model.problems import Problem, ProblemCause

_REASONS: Final = frozenset(("NodeAffinity", "SMTAlignmentError", "TopologyAffinityError", "UnexpectedAdmissionError"))
_OUT_OF: Final = "OutOf"
_LAUNCHER: Final = "virt-launcher-"
_SMT: Final = re.compile(r"requested (\d{1,6}) cpus? not multiple cpus per core = (\d{1,3})")
_LONGEST: Final = 150
_PAIR: Final = 2
"""KubeVirt fills up to an even number."""


class Rejections(NamedTuple):
    """How often kubelets have rejected the pods of a VM."""

    reason: str
    message: str
    """Of the last one."""
    times: int
    last: str
    """`` 2 min ago``; empty: not known."""
    nodes: frozenset[str]
    """The nodes that did so, as far as they are known."""


def of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> Rejections | None:
    """Return the rejections of the pods of a VM whose last start has failed; None: none are known."""
    failed = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not failed and (vmi is None or vmi.at("status", "phase").text != "Failed"):
        return None
    known = cluster.cached(_rejected).get((vms.namespace_of(vm), f"{_LAUNCHER}{vm.name}"), ())
    if not known:
        return None
    last = events.time_of(known[0])
    ago = f" {vm_states_times.age(last, cluster)} ago" if last is not None and clock.now(cluster) is not None else ""
    nodes = {each.at("source", "host").text or each["reportingInstance"].text or "" for each in known}
    own = vm_states_motion.motion(cluster).pods.get((vms.namespace_of(vm), vm.name), ())
    nodes |= {pod.at("spec", "nodeName").text or "" for pod in own if not vm_states_motion.lives(pod)}
    return Rejections(
        known[0]["reason"].text or "?",
        " ".join((known[0]["message"].text or "").split()),
        sum(each["count"].integer or 1 for each in known),
        ago,
        frozenset(nodes - {""}),
    )


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return why kubelets reject the pods of a VM, and what ends it; None: none do, as far as is known."""
    found = of_vm(vm, vmi, cluster)
    if found is None or (vmi is not None and vmi.at("status", "phase").text not in _NOT_RUNNING):
        return None
    times = (
        f"{found.times} times, last{found.last}" if found.times > 1 else f"once,{found.last}" if found.last else "once"
    )
    on = f" of {names(sorted(found.nodes))}" if found.nodes else ""
    begin = f"the kubelet{on} rejects each new pod of it at once ({times}): {found.reason}"
    if cpus := _SMT.search(found.message):
        return _of_cores(vm, begin, int(cpus[1]), int(cpus[2]))
    reason = f"{begin}: {cut(found.message, _LONGEST)}. KubeVirt starts it again after 5 min at most"
    described = kubectl("describe", VM, vm.name, vms.namespace_of(vm))
    if found.reason == "TopologyAffinityError":
        words = "free CPUs, memory and devices of one NUMA node there, or let the VM ask for less"
        return Problem(reason, typed(words, described), ProblemCause.NOT_REPORTED)
    return Problem(reason, typed(_way(found), described), ProblemCause.NOT_REPORTED)


def _way(found: Rejections) -> str:
    """Return what lets a kubelet take the pod, by the reason of its rejection."""
    there = names(sorted(found.nodes)) or "that node"
    if found.reason == "NodeAffinity":
        return f"give {there} again the labels that the VM demands"
    if found.reason.startswith(_OUT_OF):
        return f"free {found.reason.removeprefix(_OUT_OF)} on {there}, or let the VM ask for less"
    return f"repair what gives out the devices on {there} (its device plugin)"


_NOT_RUNNING: Final = (None, "Pending", "Scheduling", *migrations.FINAL_PHASES)


def _of_cores(vm: Object, begin: str, asked: int, threads: int) -> Problem:
    """Return that a pod asks for a part of a core, which a kubelet with ``full-pcpus-only`` gives to none."""
    cpu = vms.vmi_spec(vm).at("domain", "cpu")
    isolated = cpu["isolateEmulatorThread"].boolean is True
    parts = f" ({asked - 1} for the guest and 1 for its emulator thread)" if isolated else ""
    reason = (
        f"{begin}: its pod asks for {asked} CPUs{parts}, and the kubelet gives whole cores of {threads} CPUs "
        "(full-pcpus-only). It does not end by itself: KubeVirt starts it again after 5 min at most"
    )
    single = all(cpu[field].integer in (None, 1) for field in ("sockets", "threads"))
    whole = asked // threads * threads if threads else 0
    guest = [number - isolated for number in (whole, whole + threads) if number > isolated]
    ways = [
        f"give it {' or '.join(map(str, guest))} cores" if single and guest else f"make that a multiple of {threads}"
    ]
    if isolated:
        ways.append("do without isolateEmulatorThread")
    if isolated and threads == _PAIR:
        gate = f"feature gate {Gate.ALIGN_CPUS.gate} and annotation {EVEN_PARITY} of the KubeVirt object"
        ways.append(f"let KubeVirt fill it up to an even number ({gate})")
    command = kubectl("edit", VM, vm.name, vms.namespace_of(vm))
    return Problem(reason, typed(", or ".join(ways), command), ProblemCause.NOT_REPORTED)


def _rejected(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the events of rejected pods by namespace and by the name without its random end, the newest first."""
    found: dict[tuple[str, str], list[Object]] = {}
    for event in events.newest_warnings(cluster):
        about, reason = event["involvedObject"], event["reason"].text or ""
        name = about["name"].text or ""
        if name.startswith(_LAUNCHER) and (reason in _REASONS or reason.startswith(_OUT_OF)):
            found.setdefault((about["namespace"].text or "default", name.rpartition("-")[0]), []).append(event)
    return found
