"""An update of Portworx waits at a node for a VM that its operator does not migrate again.

**Why.** The operator of a StorageCluster migrates the VMs of a node before it ends the pod of the
storage there, each VM once in an update. After a failure it waits without limit, and only events
say so. The other nodes wait as well.

**Fix.** Migrate the VM, after what made its migration fail has ended, or stop it. The update then
goes on by itself.
"""

from virt_admit.forecasts.drain.control import px_updates
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.messages import advice_of, command_of, ended
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=px_updates.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "libopenstorage/operator:pkg/controller/storagecluster/kubevirt.go#StartEvictingVMPods",
        "https://github.com/libopenstorage/operator/pull/1533",
    ),
)
def check(node: Object, context: Context) -> Findings:
    path = node.metadata["name"].path
    for held in px_updates.paused(context.cluster):
        if held.node == node.name:
            reason = ended(held.reason)
            yield Finding(
                path,
                check.first_that_fits(path, f"{reason} {advice_of(held.remedy)}", reason),
                value=held.vmis[0].full_name,
                problem=problem_of(ProblemCause.UPDATE_FAILING, held.vmis[0]),
                command=command_of(held.remedy),
            )
