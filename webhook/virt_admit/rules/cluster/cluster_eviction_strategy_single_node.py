"""The cluster's eviction strategy requires live migration in a cluster with a single node.

**Why.** KubeVirt refuses to stop the VMs and has no node to migrate them to, so a drain never
completes. HyperConverged chooses ``None`` for a single node.

**Fix.** Set ``None``. Set ``LiveMigrateIfPossible`` if you plan to add nodes.
"""

from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import HCO, KUBEVIRT, NODE, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={
        HCO: (),
        KUBEVIRT: ("metadata.creationTimestamp", "status.observedKubeVirtVersion"),
        NODE: ("metadata.labels",),
    },
    action=Action.WARN,
    sources=(
        (
            "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/mutator/"
            "hyperConvergedMutator.go#mutateEvictionStrategy"
        ),
        (
            "kubevirt/hyperconverged-cluster-operator:pkg/internal/nodeinfo/"
            "nodeinfo.go#processNodeInfo"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if (
        strategy.value == "LiveMigrate"
        and configuration.highly_available(context.cluster, obj) is False
    ):
        known = versions.if_possible(context.cluster) == versions.IF_POSSIBLE
        later = ", or LiveMigrateIfPossible if you plan to add nodes" if known else ""
        yield Finding(
            strategy.path,
            "the cluster has no other node to migrate VMs to, so a drain never completes. "
            f"Set None{later}.",
        )
