"""A node has a taint that nothing removes, such as the start-up taint of an agent that is not
installed, or that runs there for long.

**Why.** Agents such as Cilium, Istio's CNI and CSI drivers lose their taint on a node once they run
there, and leave it when they are uninstalled. Some look at it only at their start, so that a taint
that is set later stays. It keeps every new pod off the node: no VM starts or arrives there, and
drains of other nodes do not end. The same is so of a taint of the fencing of a storage (podmon of
Dell CSM Resiliency) that stays on a node which reports, and of one that every node for VMs has,
although no VM tolerates it.

**Fix.** Remove the taint, unless the agent is about to be installed. If it runs, restart its
DaemonSet. One of fencing is removed only after a look at what its agent waits for. Do not restart
VMs before, as no node would take them.
"""

from virt_admit.forecasts.placement.components import left_taints
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.messages import sentence
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(NODE,),
    reads=union(left_taints.READS, {NODE: NAME}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "cilium/cilium:Documentation/installation/taints.rst",
        "dell/karavi-resiliency:docs/RECOVERY.md",
        "https://github.com/dell/csm/issues/1766",
        "https://github.com/cilium/cilium/issues/17103",
        "https://github.com/cilium/cilium/issues/31943",
        "istio/istio:pilot/pkg/controllers/untaint/nodeuntainter.go",
        "kubernetes-sigs/aws-ebs-csi-driver:docs/install.md",
    ),
)
def check(node: Object, context: Context) -> Findings:
    for taint, left in left_taints.of_node(node, context.cluster):
        effect = (
            "no new pod starts here"
            if taint["effect"].text == "NoSchedule"
            else "pods are ended, and none starts here"
        )
        of_agent = isinstance(left, left_taints.AgentTaint)
        again = of_agent and left.running is None
        unless = f", unless {left.agent} is to be installed again" if again else ""
        where = f" (on {left.on})" if of_agent else ""
        advice = sentence(f"{left.advice}{unless}")
        yield Finding(
            node["spec"]["taints"].path,  # without its index, which differs between nodes
            f"{effect} because of taint {left.key}{where}: {left.reason}. {advice}",
            value=left.key,
            command=left.command,
        )
