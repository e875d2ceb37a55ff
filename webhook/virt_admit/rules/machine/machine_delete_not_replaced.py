"""A machine is deleted that has no controller to replace it.

**Why.** Only the controller of a machine replaces it: a MachineSet or the ControlPlaneMachineSet.
This machine has no such owner, so the cluster loses a node permanently.

**Fix.** To keep the number of nodes, add the machine to a MachineSet, or add a replica to one.
"""

from virt_admit.rule import MACHINE, Action, Context, Finding, Findings, Object, Operation, rule


@rule(
    kinds=(MACHINE,),
    operations=(Operation.DELETE,),
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#hasControllerOwner"
        ),
    ),
)
def check(machine: Object, _context: Context) -> Findings:
    if machine.controller is None:
        yield Finding(
            machine.metadata["ownerReferences"].path,
            f"no controller owns Machine {machine.name}, so the cluster loses a node permanently. "
            "Add a replica to a MachineSet to replace it.",
        )
