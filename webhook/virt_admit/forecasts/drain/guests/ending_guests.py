"""Guests that were told to shut down and still run, within the time that their VMI gives them.

virt-handler asks libvirt for a shutdown (power button, or the guest agent), and ends the domain
only when ``terminationGracePeriodSeconds`` of the VMI has passed. virt-api writes a shorter time
there for ``virtctl stop --force``. With run strategy Always or Once the same command sets the VM to
Halted, and it replaces a start that a restart asked for. Sources: kubevirt/kubevirt:
pkg/virt-handler/vm.go#hasGracePeriodExpired #helperVmShutdown,
pkg/virt-launcher/virtwrap/manager.go#SignalShutdownVMI,
pkg/virt-api/rest/lifecycle.go#StopVMRequestHandler #getChangeRequestJson.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import harvester_maintenance
from virt_admit.forecasts.drain.external import external_movers
from virt_admit.forecasts.drain.guests import changed_disks, guest_screens, paused_guests
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM, VMI
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
_KEEPING: Final = frozenset(("Halted", "Manual", "RerunOnFailure"))
"""Run strategies that ``virtctl stop --force`` leaves as they are, and that start no VM again."""


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a guest has not shut down for long, until when KubeVirt waits, and what ends it;
    None: it has ended, its time is over, or what would stop it does not work.
    """
    node, deleted = vmi.at("status", "nodeName").text or "", vmi.metadata["deletionTimestamp"].text
    asked, grace = clock.since(deleted, cluster), timedelta(seconds=vmis.grace_seconds(vmi))
    if not deleted or vmi.at("status", "phase").text != "Running" or asked is None:
        return None
    if not _USUAL <= asked < grace:
        return None
    if node_health.silence_now(node, cluster) or virt_handlers.problem(cluster, node):
        return None
    begun = clock.instant(deleted)
    until = clock.stamp(begun + grace if begun is not None else None)
    reason = (
        f"its guest was told to shut down {clock.duration(asked)} ago and still runs{_why(vmi)}. "
        f"KubeVirt kills it only at {until}, in {clock.duration(grace - asked)}, as {_FIELD} is "
        f"{vmis.grace_seconds(vmi)}"
    )
    return Problem(reason, _remedy(vmi, cluster), ProblemCause.STOP_OVERDUE)


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
        if (found := problem(vmi, cluster)) is not None and _is_late(vmi, cluster):
            text = f"{found.reason}. {capital(found.remedy)}"
            yield ReportedProblem(VMI.kind, vms.namespace_of(vmi), vmi.name, text, None)


def _is_late(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a guest takes long, and may not notice the request or has used half of its
    time.
    """
    half = timedelta(seconds=vmis.grace_seconds(vmi)) / 2
    least = _LONG if _why(vmi) else max(half, _LONG)
    return clock.has_lasted(vmi.metadata["deletionTimestamp"].text, least, cluster)


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


def _remedy(vmi: Object, cluster: Cluster) -> str:
    """Return what ends a guest before its time is over."""
    console, unnoticed = guest_screens.command(vmi), _why(vmi)
    inside = f"{'shut it down from inside' if unnoticed else _BUSY}, or wait until then"
    vm = vmis.known_vm(vmi, cluster)
    if vm is None or not _is_late(vmi, cluster):
        return typed(inside, console)
    later = f"if it never needs that long, set a shorter {_FIELD} in the template of VM {vm.name}"
    if not vmi.is_true("AgentConnected"):
        later += ", and install the guest agent"
    asked = any(vm.at("status", "stateChangeRequests").items())
    if asked or vm.deleted or vms.run_strategy(vms.vm_spec(vm)) not in _KEEPING:
        return typed(inside, console, later)
    name, space = argument(vmi.name), vms.namespace_of(vmi)
    forced = shell("virtctl", "stop", name, "-n", space, "--force", "--grace-period=0")
    now = (
        "as a decision, end it now as a power cut would, which loses what the guest has not "
        f"written to its disks ({forced})"
    )
    return typed(inside, console, f"or {now}; {later}")
