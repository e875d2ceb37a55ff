"""Pods of a VM that kubelets reject: each new one at once, so that the VM starts again and again,
or a running one.

Kube-scheduler knows nothing of it. A kubelet that restarts judges the pods of its node again, by
the labels and devices of that moment, and ends those that it rejects. Rejected pods are mostly gone
soon; their events are left, for an hour. Sources:
kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod,
:pkg/kubelet/cm/cpumanager/policy_static.go#SMTAlignmentError,
:pkg/kubelet/cm/topologymanager/scope.go#TopologyAffinityError, :pkg/kubelet/lifecycle/predicate.go
(OutOf…); kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#WithCPUPinning,
:pkg/virt-controller/watch/vm/vm.go; kubevirt/kubevirt:pkg/virt-handler/heartbeat/heartbeat.go,
issue kubevirt/kubevirt#12290.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.placement.refusals.kubelet_rejections import (
    Rejections,
    is_rejection,
    reason_of,
    way,
)
from virt_admit.model.commands import and_then, kubectl, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Object
from virt_admit.model.kubevirt.instances import down_vms, lifecycle, migrations, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.launcher.launcher_settings import EVEN_PARITY
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

_LAUNCHER: Final = "virt-launcher-"
_SMT: Final = re.compile(r"requested (\d{1,6}) cpus? not multiple cpus per core = (\d{1,3})")
_LONGEST: Final = 150
_PAIR: Final = 2
"""KubeVirt fills up to an even number."""


def of_vm(vm: Object, vmi: Object | None, cluster: Cluster) -> Rejections | None:
    """Return the rejections of the pods of a VM whose last start has failed; None:
    none are known.
    """
    failed = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not failed and (vmi is None or vmi.at("status", "phase").text != "Failed"):
        return None
    known = cluster.cached(_rejected).get((vms.namespace_of(vm), f"{_LAUNCHER}{vm.name}"), ())
    if not known:
        return None
    ago = vm_states_times.ago(events.time_of(known[0]), cluster)
    nodes = set(map(events.host, known))
    own = vm_states_motion.pods(vm, cluster)
    nodes |= {
        pod.at("spec", "nodeName").text or "" for pod in own if not vm_states_motion.lives(pod)
    }
    return Rejections(
        known[0]["reason"].text or "?",
        known[0]["message"].words,
        sum(each["count"].integer or 1 for each in known),
        ago,
        frozenset(nodes - {""}),
    )


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return why kubelets reject the pods of a VM, and what ends it; None: none do,
    as far as is known.
    """
    found = of_vm(vm, vmi, cluster)
    ran = vmi is not None and (vmi.at("status", "phase").text not in _NOT_RUNNING or _ran(vmi))
    strategy = vms.run_strategy(vms.vm_spec(vm)) or ""
    if found is None or ran or not _should_run(vm, vmi, strategy):
        return None
    begin = f"{_begin(found)}: {found.reason}"
    if cpus := _SMT.search(found.message):
        return _of_cores(vm, begin, int(cpus[1]), int(cpus[2]))
    again = (
        lifecycle.start_again(strategy, vm.name, vms.namespace_of(vm)) if vmi is not None else None
    )
    then = (
        "KubeVirt starts it again after 5 min at most"
        if again is None
        else f"{strategy} does not start it again"
    )
    reason = f"{begin}: {cut_middle(found.message, _LONGEST)}. {then}"
    described = kubectl("describe", VM, vm.name, vms.namespace_of(vm))
    if again is not None:
        return Problem(
            reason, and_then(typed(way(found), described), *again), ProblemCause.NOT_REPORTED
        )
    return Problem(reason, typed(way(found), described), ProblemCause.NOT_REPORTED)


def _should_run(vm: Object, vmi: Object | None, strategy: str) -> bool:
    """Return whether a VM is to run, so that its rejected pods matter: with a VMI by what a failure
    brings, else without.
    """
    outcomes = lifecycle.RUN_STRATEGY.get(strategy)
    if outcomes is None or vm.deleted:
        return False
    if vmi is not None:
        return outcomes.crash in (Then.RESTARTED, Then.OFF)
    return down_vms.should_run(vm) or outcomes.deleted is Then.RESTARTED


def _begin(found: Rejections) -> str:
    on = f" of {names(sorted(found.nodes))}" if found.nodes else ""
    if found.times > 1:
        return (
            f"the kubelet{on} rejects each new pod of it at once ({found.times} times, "
            f"last{found.last})"
        )
    return f"the kubelet{on} rejected its new pod{found.last}"


def of_running(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a kubelet rejected the pod of a VMI which ran, as it may when it restarts; None:
    none is known to have.

    The remedy is for the next time.
    """
    if vmi.at("status", "phase").text != "Failed" or not _ran(vmi):
        return None
    node = vmi.at("status", "nodeName").text or ""
    ended = clock.instant(migrations.entered(vmi, "Failed"))
    own = vm_states_motion.own_pods(vmi, cluster)
    here = (each for each in own if each.at("spec", "nodeName").text == node)
    why = next((reason_of(each) for each in here if is_rejection(reason_of(each))), "")
    if not why and ended is not None and node:
        known = cluster.cached(_rejected).get((vms.namespace_of(vmi), f"{_LAUNCHER}{vmi.name}"), ())
        near = (
            each
            for each in known
            if events.host(each) == node and _is_near(events.time_of(each), ended)
        )
        why = next((each["reason"].text or "" for each in near), "")
    if not why:
        return None
    ago = vm_states_times.ago(ended, cluster)
    on = f" of {node}" if node else ""
    reason = (
        f"the kubelet{on} rejected its running pod{ago}, as it may when it restarts: "
        f"{why}{_MEANS.get(why, '')}"
    )
    return Problem(reason, LATER, ProblemCause.NOT_REPORTED)


def _is_near(time: datetime | None, other: datetime) -> bool:
    """Return whether an event is of the moment when a VMI failed.

    Another one is of a target pod, or of an earlier start.
    """
    return time is not None and abs(time - other) <= _NEAR


_NEAR: Final = timedelta(minutes=5)


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which VMs are down since the kubelet of a node rejected their running pods."""
    down = cluster.cached(_down).get(node.name)
    if down:
        yield (
            "The kubelet of this node rejected running pods, as it may when it restarts: "
            f"{names(down, 120)} {'are' if len(down) > 1 else 'is'} down. {capital(LATER)}."
        )


def _down(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for vmi in cluster.known(VMI):
        if of_running(vmi, cluster) is not None:
            found.setdefault(vmi.at("status", "nodeName").text or "", []).append(vmi.full_name)
    return {node: sorted(own) for node, own in found.items()}


LATER: Final = "drain a node before its kubelet is restarted"
"""What avoids that a kubelet rejects running pods."""
_MEANS: Final = {
    "NodeAffinity": (
        ", as the labels of the node did not match at that moment (kubevirt.io/schedulable is "
        "false until KubeVirt's devices are there again)"
    ),
    "UnexpectedAdmissionError": ", as a device of it was not registered at that moment",
}


def _ran(vmi: Object) -> bool:
    """Return whether the guest of a VMI has run, so that its pod was not new when it ended."""
    return migrations.entered(vmi, "Running") is not None


_NOT_RUNNING: Final = (None, "Pending", "Scheduling", *FINAL_PHASES)


def _of_cores(vm: Object, begin: str, asked: int, threads: int) -> Problem:
    """Return that a pod asks for a part of a core,
    which a kubelet with ``full-pcpus-only`` gives to none.
    """
    cpu = vms.vmi_spec(vm).at("domain", "cpu")
    isolated = cpu["isolateEmulatorThread"].boolean is True
    parts = f" ({asked - 1} for the guest and 1 for its emulator thread)" if isolated else ""
    reason = (
        f"{begin}: its pod asks for {asked} CPUs{parts}, and the kubelet gives whole cores of "
        f"{threads} CPUs (full-pcpus-only). It does not end by itself: KubeVirt starts it again "
        "after 5 min at most"
    )
    single = all(cpu[field].integer in (None, 1) for field in ("sockets", "threads"))
    whole = asked // threads * threads if threads else 0
    guest = [number - isolated for number in (whole, whole + threads) if number > isolated]
    ways = [
        f"give it {' or '.join(map(str, guest))} cores"
        if single and guest
        else f"make that a multiple of {threads}"
    ]
    if isolated:
        ways.append("do without isolateEmulatorThread")
    if isolated and threads == _PAIR:
        gate = (
            f"feature gate {Gate.ALIGN_CPUS.gate} and annotation {EVEN_PARITY} of the KubeVirt "
            "object"
        )
        ways.append(f"let KubeVirt fill it up to an even number ({gate})")
    command = kubectl("edit", VM, vm.name, vms.namespace_of(vm))
    return Problem(reason, typed("; or ".join(ways), command), ProblemCause.NOT_REPORTED)


def _rejected(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the events of rejected pods by namespace and by the name without its random end,
    the newest first.
    """
    found: dict[tuple[str, str], list[Object]] = {}
    for event in events.newest_warnings(cluster):
        about, reason = event["involvedObject"], event["reason"].text or ""
        name = about["name"].text or ""
        if name.startswith(_LAUNCHER) and is_rejection(reason):
            found.setdefault(
                (about["namespace"].text or "default", name.rpartition("-")[0]), []
            ).append(event)
    return found
