"""Workers have no peers that Self Node Remediation could ask.

**Why.** An agent that loses the API server asks the agents of the other nodes with the label
``node-role.kubernetes.io/worker``. kubeadm sets no such label. Up to release 0.10 a worker without
peers treats itself as healthy and never reboots. If it is only cut off, its VMs go on running there
while the operator starts them elsewhere, with the same disks. From 0.11 on it reboots without
asking, so all workers reboot when the API server is down for them.

**Fix.** Label the workers: ``kubectl label node NAME node-role.kubernetes.io/worker=``. The agents
look for peers every ``peerUpdateInterval``.
"""

from virt_admit.forecasts.remediation.unwatched import lonely_agents
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, SNR_CONFIG
from virt_admit.model.kubernetes.nodes import WORKER
from virt_admit.model.messages import command_of
from virt_admit.model.remediation.remediators import SNR_CONFIG_NAME
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, names, rule


@rule(
    kinds=(SNR_CONFIG,),
    reads=lonely_agents.READS,
    action=Action.WARN,
    at_admission=False,
    sources=(
        "medik8s/self-node-remediation:internal/peers/peers.go#createSelector",
        "medik8s/self-node-remediation:internal/apicheck/check.go#getWorkerPeersResponse",
        "medik8s/self-node-remediation#268",
    ),
)
def check(config: Object, context: Context) -> Findings:
    if config.name != SNR_CONFIG_NAME:
        return
    for kind in (NODE, DAEMON_SET):
        unseen = gather(context.cluster.list(kind))[1]
        if unseen:
            yield Unseen(unseen)
            return
    found = lonely_agents.known(context.cluster)
    if found is None:
        return
    does = {
        True: "all of them reboot at once when the API server is down",
        False: "one that is cut off does not reboot, and its VMs run twice",
        None: "one that is cut off does not reboot (up to 0.10), or without asking",
    }[found.reboots]
    yield Finding(
        config.metadata["name"].path,
        f"agents of {names(found.nodes, 40)} find no peers, as no other node has the label "
        f"{WORKER}: {does}. Label the workers.",
        value=found.nodes,
        command=command_of(found.remedy),
    )
