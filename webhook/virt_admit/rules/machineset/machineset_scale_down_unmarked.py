"""A MachineSet scales down without a choice of the machines to delete.

**Why.** The deletion policy ``Random``, which is the default, first deletes machines that have not
joined the cluster, then any machine. That machine may run a VM that cannot migrate.

**Fix.** Annotate the machines to delete with ``machine.openshift.io/delete-machine: "true"``, then
scale down.
"""

from virt_admit.model.kubernetes.kinds import MACHINE_SET
from virt_admit.model.remediation import machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, count, rule


@rule(
    kinds=(MACHINE_SET,),
    reads=machines.SET_READS,
    operations=(Operation.UPDATE,),
    subresources=("scale",),
    action=Action.WARN,
    sources=(
        "Workload Availability, Machine health checks 6.3.4",
        "openshift/machine-api-operator:pkg/controller/machineset/delete_policy.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    change = machines.scale_down(obj, context.old, context.subresource, context.cluster)
    if change is None or change.machine_set.at("spec", "deletePolicy").text not in (
        None,
        "",
        "Random",
    ):
        return
    members = machines.of_set(change.machine_set, context.cluster)
    marked = sum(map(machines.goes_first, members.objects))
    if marked < change.fewer:
        members.demand_all()
        yield Finding(
            obj.at("spec", "replicas").path,
            f"{count(change.fewer, 'machine')} will be deleted, {marked} marked; the others are "
            f"chosen at random. Mark machines first with {machines.DELETE_ANNOTATIONS[0]}.",
        )
