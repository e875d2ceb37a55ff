"""A KubeletConfig reaches no node, as the nodes that it was made for are masters.

**Why.** A master stays in pool master, whichever custom MachineConfigPool selects it too. The
KubeletConfig says Success and the pool says Updated, without a node, and the kubelets lack what it
sets, such as the static CPU manager, without which no VM gets dedicated CPUs.

**Fix.** Let the KubeletConfig select the pool master, whose nodes are then drained and restarted in
turn, and delete the custom pool. If it is not for the masters, take its label off them.
"""

from virt_admit.model.commands import kubectl
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import KUBELET_CONFIG, MACHINE_CONFIG_POOL
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.node_updates.operators import kubelet_configs
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NODE,),
    reads=union(kubelet_configs.READS, {KUBELET_CONFIG: ("metadata.ownerReferences",)}),
    action=Action.WARN,
    at_admission=False,
    sources=(
        "openshift/machine-config-operator:pkg/helpers/helpers.go#GetPoolsForNode",
        "https://github.com/openshift/machine-config-operator/issues/3090",
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = kubelet_configs.of_node(node, context.cluster)
    if found is None:
        for kind in (MACHINE_CONFIG_POOL, KUBELET_CONFIG):
            yield from more_may_exist(context.cluster, kind)
        return
    config, owner = found.config, writers.owner_above(found.config)
    title = f"KubeletConfig {config.name}" if owner is None else owner.title
    see = kubectl("edit", KUBELET_CONFIG, config.name)
    yield Finding(
        node.metadata["labels"].path,
        f"{title} is for MachineConfigPool {found.pool}, which has no node: this one has its "
        "label, but stays in pool master, as a master does. Let it select pool master, or take "
        "the label off.",
        value=node.name,
        command=see if owner is None else owner.command("describe"),
    )
