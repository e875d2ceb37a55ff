"""The migration network does not exist.

**Why.** The virt-handler pods of every node join this network. After the change none of them can
start again, and a node without virt-handler can neither run nor migrate VMs.

**Fix.** Create the NetworkAttachmentDefinition first. Without a namespace in the value, KubeVirt
looks it up in the namespace of this resource.
"""

from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, NAD, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={NAD: NAME},
    action=Action.WARN,
    sources=("kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go",),
)
def check(obj: Object, context: Context) -> Findings:
    network = migration_limits.network(obj)
    if network is None:
        return
    namespace, name = network
    namespace = namespace or obj.namespace or "default"
    if context.cluster.get(NAD, namespace, name) is None:
        path = migration_limits.block(obj)["network"].path
        other = migration_limits.elsewhere(f"{namespace}/{name}", context.cluster)
        missing = f"NetworkAttachmentDefinition {namespace}/{name} does not exist{other}"
        message = check.first_that_fits(
            path,
            f"{missing}, so virt-handler does not start again on any node. Create it first or "
            "correct the name.",
            f"{missing}: virt-handler starts on no node. Create it.",
        )
        yield Finding(path, message)
