"""The cluster's eviction strategy stops VMs that could migrate,
or waits for an external controller.

**Why.** With ``None`` every drain stops each VM that does not set its own strategy, although the
cluster has other nodes. With ``External`` KubeVirt refuses evictions and leaves the VMs to a
controller outside KubeVirt, such as Cluster API. VMs that no such controller handles block every
drain.

**Fix.** Set ``LiveMigrateIfPossible``: it migrates the VMs that can migrate and stops the rest.
``LiveMigrate`` never stops a VM. Controllers outside KubeVirt set ``External`` on the VMs that they
handle. The cluster-wide value is right only if they handle every VM without its own strategy: where
no VM is known for which they do not, this rule says nothing.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import (
    HCO,
    KUBEVIRT,
    NODE,
    Action,
    Cluster,
    Context,
    Finding,
    Findings,
    Object,
    rule,
)


@rule(
    kinds=(HCO, KUBEVIRT),
    reads={
        HCO: (),
        KUBEVIRT: ("metadata.creationTimestamp", "status.observedKubeVirtVersion"),
        NODE: ("metadata.labels",),
        VM: (
            "metadata.labels",
            "metadata.ownerReferences",
            "spec.template.metadata.labels",
            "spec.template.spec.evictionStrategy",
        ),
        VMI: ("metadata.labels", "metadata.ownerReferences", "spec.evictionStrategy"),
    },
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    strategy = setting(obj, Setting.EVICTION_STRATEGY)
    if strategy.value == "External":
        unread = [*more_may_exist(context.cluster, VM), *more_may_exist(context.cluster, VMI)]
        if not _is_inherited(context.cluster, whole=not unread):
            yield from unread
            return
        yield Finding(
            strategy.path,
            "External leaves evictions to a controller outside KubeVirt. VMs that it does not "
            f"handle block every drain. Set {_migrating(context.cluster)} here, and External only "
            "on its VMs.",
        )
    elif strategy.value == "None" and configuration.highly_available(context.cluster, obj):
        yield Finding(
            strategy.path,
            "a drain stops every VM that does not set its own strategy, even if it could migrate. "
            f"Set {_migrating(context.cluster)}.",
        )


def _migrating(cluster: Cluster) -> str:
    """Return the strategy that migrates what can migrate, as far as the release knows one."""
    known = versions.if_possible(cluster) == versions.IF_POSSIBLE
    return versions.IF_POSSIBLE if known else "LiveMigrate"


def _is_inherited(cluster: Cluster, *, whole: bool) -> bool:
    """Return whether a VM has no strategy of its own and no controller that moves it; one will come
    where there is none at all.
    """
    known = [*cluster.known(VM), *cluster.known(VMI)]
    return (whole and not known) or any(
        not vms.vmi_spec(obj)["evictionStrategy"].present
        and not vms.has_mover(obj, (*obj.labels, *vms.vmi_template(obj)["metadata"]["labels"].map))
        for obj in known
    )
