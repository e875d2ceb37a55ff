"""KubeVirt, CDI or HyperConverged is not ready for long.

**Why.** It says ``Available`` False, ``Degraded`` True, or ``Progressing`` for longer than an
update takes. What waits for it, such as an update of the operators or a GitOps tool, does not go
on. Running VMs are not affected by the condition itself.

**Fix.** Repair the pod that the finding names. ``virt-admit upgrade`` has the whole reason, and the
remedy with its command.
"""

from virt_admit.forecasts.drain.control import component_states
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, POD
from virt_admit.model.messages import command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(KUBEVIRT, HCO, CDI),
    reads=component_states.READS,
    action=Action.WARN,
    urgency=Urgency.DOWN,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/util/client.go#UpdateConditionsDeploying",
        "kubevirt/kubevirt:pkg/virt-operator/util/readycheck.go#DaemonsetIsReady",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if kinds.of(obj) is HCO:  # it repeats what the others say
        for kind in component_states.PARTS:
            yield from more_may_exist(context.cluster, kind)
    yield from more_may_exist(context.cluster, POD)
    for held in component_states.held(context.cluster):
        if (held.obj.kind, held.obj.namespace, held.obj.name) == (
            obj.kind,
            obj.namespace,
            obj.name,
        ):
            # then the finding about the node is the one to act on
            most = Action.AUDIT if held.silent else Action.DENY
            yield Finding(
                held.path,
                held.brief,
                value=held.nodes,
                problem=held.problem,
                max_action=most,
                command=command_of(held.remedy),
            )
