"""A Machine counts as unhealthy although its node is healthy again.

**Why.** A MachineHealthCheck of Cluster API with a remediation template takes its verdict
``HealthCheckSucceeded`` False back only while a remediation request for the Machine exists. A node
that recovers before has none. The Machine stays not Ready, and its MachineSet deletes it first,
with the VMs of its node.

**Fix.** Set the condition to True in the status of the Machine. Neither scale down nor roll out
before. The node needs no repair.
"""

from virt_admit.forecasts.remediation.ends import stale_verdicts
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE
from virt_admit.model.messages import command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(CAPI_MACHINE,),
    reads=stale_verdicts.READS,
    action=Action.WARN,
    urgency=Urgency.LATER,
    event="MachineHealthStale",
    at_admission=False,
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
            "machinehealthcheck_controller.go#patchHealthyTargets"
        ),
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machineset/machineset_deletion_order.go"
            "#isMachineHealthy"
        ),
        "https://github.com/kubernetes-sigs/cluster-api/issues/13822",
    ),
)
def check(machine: Object, context: Context) -> Findings:
    stale = stale_verdicts.of_machine(machine, context.cluster)
    if stale is not None:
        path = machine.metadata["name"].path
        yield Finding(path, stale.brief, value=machine.name, command=command_of(stale.remedy))
