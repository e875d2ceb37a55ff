"""No MachineConfigPool updates a node: none selects it, or two custom ones do.

**Why.** No update of OpenShift reaches the node. The pools do not count it, so all of them say
Updated, and only the log of the operator names the node. Its kubelet grows old until another minor
release is refused. A custom pool takes a node from pool worker, but of two custom pools the
operator takes neither.

**Fix.** Give the node the label of a pool back, or make a MachineConfigPool that selects it. Of two
custom pools, take the label of one off the node; if it needs both configurations, make one pool
whose ``machineConfigSelector`` selects the MachineConfigs of both. The operator then drains and
reboots the node to update it, unless it has the configuration of the pool.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates.operators import poolless_nodes
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NODE,),
    reads=poolless_nodes.READS,
    action=Action.WARN,
    event="NodeWithoutPool",
    at_admission=False,
    sources=(
        "openshift/machine-config-operator:pkg/helpers/helpers.go#GetPoolsForNode",
        "https://github.com/openshift/machine-config-operator/pull/4097",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = poolless_nodes.of_node(node, context.cluster)
    if found is None:
        yield from more_may_exist(context.cluster, MACHINE_CONFIG_POOL)
        return
    path, ways = node.metadata["labels"].path, (found.remedy, found.remedy.partition(";")[0])
    said = (f"{found.reason}. {advice_of(way)}" for way in ways)
    message = check.first_that_fits(path, *said)
    yield Finding(path, message, value=node.name, command=command_of(found.remedy))
