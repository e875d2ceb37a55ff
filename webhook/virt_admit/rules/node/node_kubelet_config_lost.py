"""A KubeletConfig reaches no node, as the nodes that it was made for are masters.

**Why.** A master stays in pool master, whichever custom MachineConfigPool selects it too. The
KubeletConfig says Success and the pool says Updated, without a node, and the kubelets lack what it
sets, such as the static CPU manager, without which no VM gets dedicated CPUs.

**Fix.** Let the KubeletConfig select the pool master, whose nodes are then drained and restarted in
turn, and delete the custom pool. Where that pool has a KubeletConfig already, set it there: one
alone takes effect. If it is not for the masters, take its label off them.
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
        others = (NODE,) if context.cluster.known(KUBELET_CONFIG) else ()  # they may have it
        for kind in (MACHINE_CONFIG_POOL, KUBELET_CONFIG, *others):
            yield from more_may_exist(context.cluster, kind)
        return
    title, see = _named(found.config)
    way, has = "Let it select pool master", ""
    if found.other is not None:  # the operator applies one of them, the last one
        other, see = _named(found.other)
        has, way = f", which has {other} already", f"Set in {other} what the masters lack"
    yield Finding(
        node.metadata["labels"].path,
        f"{title} is for MachineConfigPool {found.pool}, which has no node: this one has its "
        f"label, but stays in pool master, as a master does{has}. {way}, or take the label off.",
        value=node.name,
        command=see,
    )


def _named(config: Object) -> tuple[str, str]:
    """Return a KubeletConfig, or the object that writes it, and the command for it."""
    owner = writers.owner_above(config)
    if owner is not None:
        return owner.title, owner.command("describe")
    return f"KubeletConfig {config.name}", kubectl("edit", KUBELET_CONFIG, config.name)
