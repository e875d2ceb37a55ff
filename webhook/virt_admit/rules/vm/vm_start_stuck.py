"""A VM that should run does not start, or has failed, and does not get further by itself.

**Why.** KubeVirt waits without an event on the VM: for a person (``ManualRecoveryRequired`` after a
copy of its disks that did not end), for a disk that CDI does not fill, for the claim of its vTPM or
EFI state (``vmStateStorageClass``), for the end of its old pod, for a pod that cannot be created or
placed or started, or for virt-handler. The VM looks as if it were starting. A VM with the run
strategy ``Manual`` or ``Once`` whose VMI has failed, as after a restart of the kubelet that rejects
running pods, stays down until it is started.

Harvester sets a VM to ``Halted`` if a quota has no room for its pod, and never starts it again. It
does so, too, for a restore, which starts the VM once its new claims are bound. A StorageClass with
``WaitForFirstConsumer`` binds them only when the VM starts.

**Fix.** Remove what the finding names. After a copy that did not end, name the former claim in the
VM again: the copy lacks data. Do not start the VM with the copy, and do not remove
``updateVolumesStrategy`` before that. While the cluster-autoscaler adds a node for the VM, that is
audited: there is nothing to do but to wait.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model import messages
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.reads import CONDITIONS, LateReads, Reads, union
from virt_admit.model.kubevirt.instances import down_vms, lifecycle, vms
from virt_admit.model.problems import Problem, ProblemCause, problem_of
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Urgency, rule

_FIRST_WAY: Final = re.compile(
    r": kubectl|: virtctl|; | \(kubectl|, or |, which |, then |, because | \(and "
)
"""Where the first clause of a remedy ends: a warning has no room for more."""
_BEGINS: Final = ("the VM should run: ", "cannot start: ")
_REPEATED: Final = 3
"""Starts that failed in a row: the next one begins with a new VMI."""
_NORMAL: Final = 300
"""Seconds in which a VM may start: events of failures belong to normal starts, too."""


def _reads() -> Reads:
    from virt_admit.forecasts.drain.starts import start_obstacles  # noqa: PLC0415 - see LateReads

    own: Reads = {VM: CONDITIONS, VMI: ("metadata.creationTimestamp",)}
    return union(start_obstacles.READS, down_vms.READS, clock.READS, own)


@rule(
    kinds=(VM,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#startVMI",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncVolumeMigration",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus",
        "https://github.com/kubevirt/kubevirt/pull/12864",
        "https://github.com/harvester/harvester/issues/6293",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    strategy = vms.run_strategy(vms.vm_spec(vm)) or ""
    to_start = lifecycle.start_again(strategy, vm.name, vms.namespace_of(vm))
    halted = down_vms.halted_by_quota(vm) or down_vms.restored(vm)
    if not down_vms.should_run(vm) and to_start is None and not halted:
        return
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    phase = vmi.at("status", "phase").text if vmi is not None else None
    ends = vmi is not None and vmi.deleted and not vmi.ended
    if phase == "Running" or ends or (halted and vmi is not None):
        return
    if to_start is not None and phase != "Failed":
        return
    again = (vm.at("status", "startFailure", "consecutiveFailCount").integer or 0) >= _REPEATED
    if vmi is not None and not again:
        age = clock.age(vmi, context.cluster)
        if age is None or age.total_seconds() < _NORMAL:
            return
    # checking files alone knows no VM that runs
    from virt_admit.forecasts.drain.starts import start_obstacles  # noqa: PLC0415
    from virt_admit.forecasts.drain.starts.storage import restored_claims  # noqa: PLC0415
    from virt_admit.forecasts.drain.states import stuck_starts  # noqa: PLC0415

    is_off = halted and not down_vms.halted_by_quota(vm)
    if is_off and restored_claims.under_way(vm, context.cluster) is None:
        return  # its owner stopped it after a restore
    if to_start is not None:
        down = start_obstacles.stays_off(vm, vmi, context.cluster) if vmi is not None else None
        if down is not None:
            yield _of_failed(vm, down)
        return
    stuck = start_obstacles.of_vm(vm, vmi, context.cluster)
    if stuck is None:
        return
    field = _field(vm, dict(stuck_starts.unfinished_copies(vm)))
    begins = ("",) if halted else _BEGINS  # whether it should still run is not known
    message = _message(stuck, check.room(field.path), begins)
    yield Finding(
        field.path,
        message,
        max_action=Action.AUDIT if stuck.cause == ProblemCause.NODE_COMING else Action.DENY,
        value=stuck.reason,
        problem=problem_of(stuck.cause, vm),
        command=shown_command(stuck, message, vm),
    )


def shown_command(stuck: Problem, message: str, vm: Object) -> str:
    """Return the command of a remedy, unless its first step has none, or its words have a second
    step that the message has no room for.
    """
    command = messages.command_of(stuck.remedy)
    steps = _THEN.search(stuck.remedy)
    if steps and (not command or not _THEN.search(message)) and not command.startswith(_LOOKS):
        return shell(
            "virt-admit", "explain", argument(f"vm/{vm.name}"), "-n", argument(vms.namespace_of(vm))
        )
    return command


_THEN: Final = re.compile(r"[;,.] [Tt]hen ")
_LOOKS: Final = tuple(f"kubectl {verb} " for verb in ("describe", "edit", "get", "logs"))
"""Commands that change nothing by themselves."""


def _of_failed(vm: Object, down: Problem) -> Finding:
    path = vm.metadata["name"].path
    room = check.room(path)
    reason = down.reason.replace("it is", "the VM is", 1)
    steps = ". Then " in down.remedy  # the command is the second one
    command = "" if steps else messages.command_of(down.remedy)
    whole = f"{messages.ended(reason)} {messages.advice_of(down.remedy)}"
    problem = problem_of(down.cause, vm)
    if len(whole) <= room:
        return Finding(path, whole, value=vm.name, problem=problem, command=command)
    remedy = messages.sentence(_first_way(down.remedy))
    remedy += " Then start it." if steps else ""
    reason = messages.shorten(reason, room - len(remedy) - 2)
    message = f"{messages.ended(reason)} {remedy}"
    return Finding(path, message, value=vm.name, problem=problem, command=command)


def _message(stuck: Problem, room: int, begins: Sequence[str] = _BEGINS) -> str:
    """Return the cause and the ways out, else the first of them.

    The cause is whole if it can be: half a sentence may say the contrary. The step after the ways
    is told with the short cause rather than not at all.
    """
    brief = (stuck.brief,) if stuck.brief and _THEN.search(stuck.remedy) else ()
    for reason in (stuck.reason, *brief):
        whole = f"{begins[0]}{messages.ended(reason)} {messages.advice_of(stuck.remedy)}"
        if len(whole) <= room:
            return whole
    first = messages.shorten(_first_way(stuck.remedy), room - 75)
    remedies = (first, _whole(first.partition(" by ")[0]))
    reasons = (stuck.reason, stuck.brief or stuck.reason)
    for begin, remedy, reason in itertools.product(begins, remedies, reasons):
        text = f"{begin}{messages.ended(reason)} {messages.sentence(remedy)}"
        if len(text) <= room:
            return text
    reason = messages.shorten(reasons[-1], room - len(remedies[-1]) - len(f"{begins[0]}. ."))
    return f"{begins[0]}{messages.ended(reason)} {messages.sentence(remedies[-1])}"


def _first_way(remedy: str) -> str:
    return _whole(_FIRST_WAY.split(remedy)[0])


def _whole(step: str) -> str:
    """Return the begin of a remedy without the parenthesis in which it was cut."""
    return step if step.count("(") <= step.count(")") else step.rpartition(" (")[0]


def _field(vm: Object, former: Mapping[str, str]) -> Field:
    """Return the claim that a copy left behind, else the name of the VM.

    ``former``: the claims with the data, by volume.
    """
    for volume in vms.vmi_spec(vm)["volumes"].items():
        for claim in (volume["persistentVolumeClaim"]["claimName"], volume["dataVolume"]["name"]):
            if claim.text and former.get(volume["name"].text or "-") not in (None, claim.text):
                return claim
    return vm.metadata["name"]
