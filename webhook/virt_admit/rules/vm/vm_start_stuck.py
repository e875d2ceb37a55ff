"""A VM that should run does not start, and does not get further by itself.

**Why.** KubeVirt waits without an event on the VM: for a person (``ManualRecoveryRequired`` after a copy of its disks that did
not end), for a disk that CDI does not fill, for the end of its old pod, for a pod that cannot be created or placed or started,
or for virt-handler. The VM looks as if it were starting.

**Fix.** Remove what the finding names. After a copy that did not end, name the former claim in the VM again: the copy lacks
data. Do not start the VM with the copy, and do not remove ``updateVolumesStrategy`` before that.
"""

import re
from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.drain.starts import start_fields
from virt_admit.model import messages
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.kubevirt.instances import down_vms, migrations, vms
from virt_admit.rule import (
    VM,
    VMI,
    Action,
    Context,
    Field,
    Finding,
    Findings,
    Object,
    ProblemCause,
    cut,
    problem_of,
    rule,
)

_FIRST_WAY: Final = re.compile(r": kubectl|: virtctl|; | \(kubectl|, or |, which |, then |, because | \(and ")
"""Where the first clause of a remedy ends: a warning has no room for more."""
_REPEATED: Final = 3
"""Starts that failed in a row: the next one begins with a new VMI."""
_NORMAL: Final = 300
"""Seconds in which a VM may start: events of failures belong to normal starts, too."""


@rule(
    kinds=(VM,),
    reads=union(
        start_fields.READS, down_vms.READS, clock.READS, {VM: CONDITIONS, VMI: ("metadata.creationTimestamp",)}
    ),
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#startVMI",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncVolumeMigration",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus",
        "https://github.com/kubevirt/kubevirt/pull/12864",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    if not down_vms.should_run(vm):
        return
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    phase = vmi.at("status", "phase").text if vmi is not None else None
    if phase == "Running" or (vmi is not None and vmi.deleted and phase not in migrations.FINAL_PHASES):
        return
    age = clock.since(vmi.metadata["creationTimestamp"].text, context.cluster) if vmi is not None else None
    again = (vm.at("status", "startFailure", "consecutiveFailCount").integer or 0) >= _REPEATED
    if vmi is not None and not again and (age is None or age.total_seconds() < _NORMAL):
        return
    from virt_admit.forecasts.drain.starts import start_obstacles  # noqa: PLC0415 - checking files alone knows no VM that runs
    from virt_admit.forecasts.drain.states import stuck_starts  # noqa: PLC0415

    stuck = start_obstacles.of_vm(vm, vmi, context.cluster)
    if stuck is None:
        return
    field = _field(vm, dict(stuck_starts.unfinished_copies(vm)))
    room = messages.room(field.path, check.id)
    remedy = cut(_FIRST_WAY.split(stuck.remedy)[0], room - 75)
    most = room - len(remedy) - len("the VM should run: . .")
    begins = stuck.cause == ProblemCause.VOLUMES_DIFFER  # what KubeVirt asks for is named first, else the cause last
    reason = (cut if begins else messages.shorten)(stuck.reason, most)
    yield Finding(
        field.path,
        f"the VM should run: {messages.ended(reason)} {messages.sentence(remedy)}",
        value=stuck.reason,
        problem=problem_of(stuck.cause, vm),
        command=messages.command_of(stuck.remedy),
    )


def _field(vm: Object, former: Mapping[str, str]) -> Field:
    """Return the claim that a copy left behind, else the name of the VM. ``former``: the claims with the data, by volume."""
    for volume in vms.vmi_spec(vm)["volumes"].items():
        for claim in (volume["persistentVolumeClaim"]["claimName"], volume["dataVolume"]["name"]):
            if claim.text and former.get(volume["name"].text or "-") not in (None, claim.text):
                return claim
    return vm.metadata["name"]
