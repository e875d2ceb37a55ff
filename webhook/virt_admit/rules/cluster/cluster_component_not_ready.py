"""KubeVirt, CDI or HyperConverged is not ready for long, or a component again and again.

**Why.** It says ``Available`` False, ``Degraded`` True, or ``Progressing`` for longer than an
update takes. What waits for it, such as an update of the operators or a GitOps tool, does not go
on. Running VMs are not affected by the condition itself.

A component that the kernel ends at its own limit of memory again and again is ready between two
ends, so that no condition tells of it. While virt-handler is down, the VMs of its node can be
neither migrated nor stopped.

**Fix.** Repair the pod that the finding names. ``virt-admit upgrade`` has the whole reason, and the
remedy with its command. A limit of memory is raised where it is written, such as in
``spec.customizeComponents``: the operator sets a change of the workload back.
"""

from virt_admit.forecasts.drain.control import component_states
from virt_admit.forecasts.placement.components.operands import killed_components
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT, POD
from virt_admit.model.messages import advice_of, capital, command_of, ended
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
    is_held = False
    for held in component_states.held(context.cluster):
        if (held.obj.kind, held.obj.namespace, held.obj.name) == (
            obj.kind,
            obj.namespace,
            obj.name,
        ):
            is_held = True
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
    if is_held:
        return
    for killed in killed_components.of(obj, context.cluster):
        yield Finding(
            obj.metadata["name"].path,
            f"{ended(capital(killed.why))} {advice_of(killed.remedy)}",
            value=killed.nodes,
            command=command_of(killed.remedy),
        )
