"""Guests that were told to shut down and still run, within the time that their VMI gives them.

virt-handler asks libvirt for a shutdown (power button, or the guest agent), and ends the domain
only when ``terminationGracePeriodSeconds`` of the VMI has passed. virt-api writes a shorter time
there for ``virtctl stop --force``. With run strategy Always or Once the same command sets the VM to
Halted, and it replaces a start that a restart asked for. The deletion of a launcher pod, as by an
eviction without a migration, asks the guest in the same way: its VMI is not being deleted then.
Sources: kubevirt/kubevirt: pkg/virt-handler/vm.go#hasGracePeriodExpired #helperVmShutdown
#hasGracefulShutdownTrigger, cmd/virt-launcher/virt-launcher.go (gracefulShutdownCallback),
pkg/virt-launcher/virtwrap/manager.go#SignalShutdownVMI,
pkg/virt-api/rest/lifecycle.go#StopVMRequestHandler #getChangeRequestJson.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import ending_namespaces, harvester_maintenance
from virt_admit.forecasts.drain.external import external_movers
from virt_admit.forecasts.drain.guests import changed_disks, guest_screens, paused_guests
from virt_admit.forecasts.placement import running_launchers, virt_handlers
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import capital
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    clock.READS,
    external_movers.READS,
    guest_screens.READS,
    virt_handlers.READS,
    vmis.OWNER_READS,
    harvester_maintenance.READS,
    {
        VM: CONDITIONS,
        NAMESPACE: ("status.conditions",),
        POD: (
            *("metadata.deletionGracePeriodSeconds", "metadata.labels", "metadata.ownerReferences"),
            *("spec.nodeName", "status.phase"),
        ),
        VMI: (
            *("metadata.ownerReferences", "spec.evictionStrategy"),
            "spec.terminationGracePeriodSeconds",
            *("spec.domain.features.acpi.enabled", "status.nodeName", "status.phase", *CONDITIONS),
        ),
    },
)
_USUAL: Final = timedelta(minutes=5)
"""Most guests shut down in less."""
_LONG: Final = timedelta(minutes=10)
"""What lasts for less is not told as something that lasts."""
_FIELD: Final = "terminationGracePeriodSeconds"
_STRATEGY: Final = "evictionStrategy"
_KEEPING: Final = frozenset(("Halted", "Manual", "RerunOnFailure"))
"""Run strategies that ``virtctl stop --force`` leaves as they are, and that start no VM again."""


class _Request(NamedTuple):
    """That a guest was told to shut down."""

    time: datetime
    grace: timedelta
    """For how long it may take."""
    by: str
    """What else than the deletion of its VMI asked it, as an insertion; else empty."""
    killer: str
    """Who ends it then, and by which field."""
    limit: str


def _request(vmi: Object, cluster: Cluster) -> _Request | None:
    """Return when a guest was told to shut down; None: it was not, or that is not known."""
    seconds = vmis.grace_seconds(vmi)
    grace, limit = timedelta(seconds=seconds), f"{_FIELD} is {seconds}"
    if deleted := vmi.metadata["deletionTimestamp"].text:
        asked = clock.instant(deleted)
        return _Request(asked, grace, "", "KubeVirt", limit) if asked is not None else None
    pod = running_launchers.launchers(cluster).on_node(vmi)
    asked = clock.end_asked(pod) if pod is not None else None
    given = pod.metadata["deletionGracePeriodSeconds"].integer if pod is not None else None
    if pod is None or asked is None or given is None:
        return None
    own, by = timedelta(seconds=clock.bounded(given)), f" by the deletion of its pod {pod.name}"
    if own >= grace:
        return _Request(asked, grace, by, "KubeVirt", limit)
    limit = f"deletionGracePeriodSeconds of that pod is {given}"
    return _Request(asked, own, by, "Its kubelet", limit)


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a guest has not shut down for long, until when KubeVirt waits, and what ends it;
    None: it has ended, its time is over, or what would stop it does not work.
    """
    request = _request(vmi, cluster) if vmi.at("status", "phase").text == "Running" else None
    node = vmi.at("status", "nodeName").text or ""
    asked = clock.since(clock.stamp(request.time), cluster) if request is not None else None
    if request is None or asked is None or not _USUAL <= asked < request.grace:
        return None
    if node_health.silence_now(node, cluster) or virt_handlers.problem(cluster, node):
        return None
    reason = (
        f"its guest was told to shut down {clock.duration(asked)} ago{request.by} and still runs"
        f"{_why(vmi)}. {request.killer} kills it only at "
        f"{clock.stamp(request.time + request.grace)}, in {clock.duration(request.grace - asked)}, "
        f"as {request.limit}"
    )
    return Problem(reason, _remedy(vmi, cluster), ProblemCause.STOP_OVERDUE)


def late(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return the same of a guest that most likely takes the rest of its time too."""
    found = problem(vmi, cluster)
    return found if found is not None and _is_late(vmi, cluster) else None


def of_stopped(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a VMI is being stopped, with what keeps its guest if that is known; None: it is
    not.

    virt-controller deletes a VMI whose VM is Halted. While it cannot, the VM has the condition
    Failure, and the guest runs on
    (kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy
    #processFailureCondition).
    """
    vm = vmis.known_vm(vmi, cluster)
    if not vmi.deleted:
        fails = vm is not None and vm.is_true("Failure")
        halted = not fails and vmis.running(vmi) and is_by_owner(vmi, cluster)
        if halted:
            return Problem("its VM is Halted, so KubeVirt stops it", "")
        if (evicted := problem(vmi, cluster)) is not None:
            return evicted
        return Problem(leaves, "") if (leaves := removal(vmi, cluster)) else None
    gone = removal(vmi, cluster)
    found, words = (
        problem(vmi, cluster),
        f"it is being stopped already{f'; {gone}' if gone else ''}",
    )
    if found is not None:
        return found._replace(reason=f"{words}: {found.reason}")
    strategy = vms.run_strategy(vms.vm_spec(vm)) if vm is not None else None
    remedy = ""
    if strategy in _KEEPING and harvester_maintenance.may_have_stopped(vmi, cluster):
        start = virtctl("start", vmi.name, vms.namespace_of(vmi))
        remedy = typed("if Harvester stopped it for this drain, start it afterwards", start)
    return Problem(words, remedy)


def is_by_owner(vmi: Object, cluster: Cluster) -> bool:
    """Return whether the owner of a VM stops it for good, so that no drain takes it away."""
    vm = vmis.known_vm(vmi, cluster)
    halted = vm is not None and vms.run_strategy(vms.vm_spec(vm)) == "Halted"
    return halted and not harvester_maintenance.may_have_stopped(vmi, cluster)


def removal(vmi: Object, cluster: Cluster) -> str:
    """Return that a VM is being deleted with its guest, or has been, so that none is to run again;
    empty: it is not, or that is not known.
    """
    name, space = vmis.owner(vmi, VM.kind), vms.namespace_of(vmi)
    if not vmi.deleted or name is None:
        machine = external_movers.leaving(vmi, cluster)
        return f"{machine} is being deleted, and its VM with it" if machine else ""
    vm = vmis.known_vm(vmi, cluster)
    if vm is not None:
        return "its VM is being deleted" if vm.deleted else ""
    return f"its VM {name} is gone" if is_absent(cluster, VM, space, name) else ""


def with_disks(reason: str, remedy: str, vmi: Object, cluster: Cluster) -> tuple[str, str]:
    """Return why a guest is shut down and what is to be done, with what its disks lose by that."""
    if other := changed_disks.of_either(vmi, cluster):
        reason = f"{reason}; {changed_disks.words(other)}"
        remedy = changed_disks.remedy(vmi, cluster)
    if paused_guests.reason(vmi) == paused_guests.IO_ERROR:
        reason = f"{reason}; its guest is {paused_guests.words(vmi, cluster)}"
    return reason, remedy


def notes(cluster: Cluster) -> Iterator[ReportedProblem]:
    """Yield the guests that have not shut down for long.

    One that can notice the request has half of its time: an owner who gives a guest half an hour
    expects it to need minutes, as for the updates of Windows.
    """
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        if (found := late(vmi, cluster)) is not None:
            text = f"{found.reason}. {capital(found.remedy)}"
            yield ReportedProblem(VMI.kind, vms.namespace_of(vmi), vmi.name, text, None)


def _is_late(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a guest takes long, and may not notice the request or has used half of its
    time.
    """
    request = _request(vmi, cluster)
    if request is None:
        return False
    least = _LONG if _why(vmi) else max(request.grace / 2, _LONG)
    return clock.has_lasted(clock.stamp(request.time), least, cluster)


def _why(vmi: Object) -> str:
    """Return why a guest may not notice the request, as an insertion."""
    if vmi.is_true("Paused"):
        return ", as it is paused"
    if vmi.at("spec", "domain", "features", "acpi", "enabled").boolean is False:
        return " (its machine has no ACPI, so no power button: features.acpi.enabled is false)"
    if vmi.is_true("AgentConnected"):
        return ""
    return " (no guest agent is connected, so it has only the power button of ACPI)"


_BUSY: Final = "see what its guest still does"
_WAIT: Final = "or wait until then"


def _remedy(vmi: Object, cluster: Cluster) -> str:
    """Return what ends a guest before its time is over."""
    console, unnoticed = guest_screens.command(vmi), _why(vmi)
    inside = "shut it down from inside" if unnoticed else _BUSY
    vm = vmis.known_vm(vmi, cluster)
    if vm is None or not _is_late(vmi, cluster):
        return typed(inside, console, _WAIT)
    later = f"if it never needs that long, set a shorter {_FIELD} in the template of VM {vm.name}"
    if not vmi.is_true("AgentConnected"):
        later += ", and install the guest agent"
    asked = any(vm.at("status", "stateChangeRequests").items())
    strategy = vms.run_strategy(vms.vm_spec(vm))
    evicted = not vmi.deleted and not ending_namespaces.reason(vmi, cluster)  # it starts again
    if evicted and vmis.migratable(vmi) and vmi.at("spec", "evictionStrategy").text == "None":
        later += f"; with {_STRATEGY} LiveMigrate there, a drain migrates the VM instead"
    if asked or vm.deleted or strategy not in (*_KEEPING, *(("Always",) if evicted else ())):
        return typed(inside, console, f"{_WAIT}; {later}")
    name, space = argument(vmi.name), vms.namespace_of(vmi)
    forced = shell("virtctl", "stop", name, "-n", space, "--force", "--grace-period=0")
    start = virtctl("start", vmi.name, space)
    back = f" and, as that sets the VM to Halted, start it then ({start})"
    now = (
        "as a decision, end it now as a power cut would, which loses what the guest has not "
        f"written to its disks ({forced}){back if strategy == 'Always' else ''}"
    )
    return typed(inside, console, f"{_WAIT}; or {now}; {later}")
