"""Harvester does not promote a node to its control plane, as too few zones have nodes.

**Why.** One or two nodes keep the state of the cluster. After the loss of one the API stops: no VM
restarts, and no health check acts. As soon as a node of the control plane has the label
`topology.kubernetes.io/zone`, Harvester promotes nodes of other zones alone, and none until three
zones have nodes.

**Fix.** Give the nodes zones of their own, or remove the label from all nodes. Volumes and
affinities may go by these zones: look at them first. Harvester then promotes one node after the
other by itself.
"""

from virt_admit.model.messages import advice_of, capital, command_of
from virt_admit.model.node_updates.rancher import unpromoted_nodes
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NODE,),
    reads=unpromoted_nodes.READS,
    action=Action.WARN,
    at_admission=False,
    sources=(
        "harvester/harvester:pkg/controller/master/node/promote_controller.go#selectPromoteNode",
        "https://github.com/harvester/harvester/issues/6546",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = unpromoted_nodes.known(context.cluster)
    if found is None or node.name not in found.told:
        return
    path = node.metadata["labels"][unpromoted_nodes.ZONE].path
    said = f"{capital(found.reason)}."
    texts = (f"{said} {advice_of(found.remedy)}", said)
    message = check.first_that_fits(path, *texts)
    yield Finding(path, message, value=found.reason, command=command_of(found.remedy))
