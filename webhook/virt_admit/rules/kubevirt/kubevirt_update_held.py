"""An update of KubeVirt does not end.

**Why.** virt-operator goes on after virt-handler of every node is replaced and ready, and a node
that does not report keeps its old one. VMs run on, and KubeVirt stays ``Progressing`` and
``Degraded``: these say only that the update is under way. It replaces nothing before a Job has
written its install strategy. The pod of that Job, virt-api and virt-controller demand a
control-plane node unless ``spec.infra.nodePlacement`` is set. It waits for each Deployment that it
manages, also for one that a release brings, such as virt-template of 1.9, whose image a registry
may lack. It fails again and again where its ClusterRole is that of another release, so that it may
not write the roles of its own.

**Fix.** Bring the node back. If it stays away, make sure that it is off, and delete its Machine, or
else its Node: the update then goes on by itself. Do not edit the DaemonSet: virt-operator sets it
back. Where no node has what the pod of the Job demands, set ``spec.infra.nodePlacement``, then
delete the Job: virt-operator creates it again. Put a missing image into the registry. Apply the
whole manifest of the operator, not only the image of its Deployment.
"""

from virt_admit.forecasts.drain.control import kubevirt_updates
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE
from virt_admit.model.messages import command_of
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(KUBEVIRT,),
    reads=kubevirt_updates.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/apps.go#processCanaryUpgrade",
        "kubevirt/kubevirt:pkg/virt-operator/kubevirt.go#loadInstallStrategy",
        "kubevirt/kubevirt:pkg/virt-operator/util/readycheck.go#DeploymentIsReady",
        "kubernetes/kubernetes:pkg/registry/rbac/validation/rule.go#ConfirmNoEscalation",
    ),
)
def check(kubevirt: Object, context: Context) -> Findings:
    held = kubevirt_updates.held(context.cluster)
    if held is not None and held.kubevirt.full_name == kubevirt.full_name:
        path = kubevirt.condition("Progressing")["status"].path
        problem = problem_of(ProblemCause.COMPONENT, kubevirt)
        yield Finding(
            path, held.brief, value=held.nodes, problem=problem, command=command_of(held.remedy)
        )
    elif kubevirt_updates.is_under_way(kubevirt):
        yield from more_may_exist(context.cluster, NODE)
