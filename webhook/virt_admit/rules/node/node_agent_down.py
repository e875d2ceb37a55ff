"""An agent that VMs need on this node stays down, or its roll-out stands here, whatever product it
is of: a network plugin, a CSI driver, a device plugin, or what sets up the network of the host.

**Why.** A VM that starts or arrives on the node may lack its network, its volumes or its devices.
The controller of a DaemonSet ends each former pod that is not available, whatever maxUnavailable
says. So each other node gets the new template as well once it restarts, as in an upgrade.

**Fix.** End what the finding names, or go back to the former release of the agent. A pod that is
younger than 20 minutes, or on a node that restarts, is not told.
"""

from virt_admit.model.kubernetes.reads import NAME, LateReads, Reads, union
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.problems import ProblemCause, ProblemId
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.placement.agents import standing_agents  # noqa: PLC0415 - see LateReads

    return union(standing_agents.READS, {NODE: NAME})


@rule(
    kinds=(NODE,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/controller/daemon/update.go#rollingUpdate",
        "kubernetes/kubernetes:pkg/kubelet/pluginmanager",
        "containernetworking/cni:SPEC.md",
    ),
)
def check(node: Object, context: Context) -> Findings:
    from virt_admit.forecasts.placement.agents import standing_agents  # noqa: PLC0415 - few have it

    path = node.metadata["name"].path
    for each in standing_agents.untold(node.name, context.cluster):
        own, advice = each.rollout, advice_of(each.remedy)
        message = check.first_that_fits(
            path,
            f"{each.brief}. {advice}",
            f"{each.state}. {advice}",
            f"{each.brief}.",
            f"{each.state}.",
        )
        yield Finding(
            path,
            message,
            value=own.title,
            max_action=Action.AUDIT if each.role is standing_agents.AgentRole.HOST else Action.WARN,
            problem=ProblemId(ProblemCause.COMPONENT, own.namespace, own.name),
            command=command_of(each.remedy),
        )
