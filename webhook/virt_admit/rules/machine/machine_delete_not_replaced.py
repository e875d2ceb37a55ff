"""A machine is deleted that nothing will replace.

**Why.** Machines are replaced by what controls them: a MachineSet, or the ControlPlaneMachineSet. This one has no such
owner, so the cluster loses a node for good.

**Fix.** If that is not meant, put the machine under a MachineSet, or add a replica to one.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import MACHINE
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule


def check(machine: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if machine.controller is None:
        yield Finding(
            machine.metadata["ownerReferences"].path,
            f"nothing controls Machine {machine.name}: no new one will be created for it",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MACHINE,),
    operations=(Operation.DELETE,),
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#hasControllerOwner",
    ),
)
