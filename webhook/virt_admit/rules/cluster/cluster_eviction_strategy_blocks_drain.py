"""The cluster's eviction strategy makes VMs block drains that cannot migrate.

**Why.** ``LiveMigrate`` refuses the eviction of a VM, and a VM that cannot migrate never goes. The drain of
its node, and with it an upgrade of the cluster, waits until somebody stops the VM.

**Fix.** Use ``LiveMigrateIfPossible`` here, or ``LiveMigrateIfPossible`` or ``None`` on those VMs. A change reaches a
running VM at its next restart.
"""

from collections.abc import Iterator, Sequence

from virt_admit.model.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kinds import HCO, KUBEVIRT, VM, VMI
from virt_admit.model.kubevirt import configuration, vmis, vms, workload_updates
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    if configuration.eviction_strategy(context.cluster, obj).value != "LiveMigrate":
        return
    stuck = context.cluster.cached(_stuck)
    if stuck:
        yield Finding(
            setting(obj, Setting.EVICTION_STRATEGY).path,
            f"{count(len(stuck), 'VM')} cannot migrate and would block drains and upgrades; "
            f"set LiveMigrateIfPossible here and restart them: {names(stuck, 50)}",
            value=("LiveMigrate", len(stuck)),
        )
    yield from more_may_exist(context.cluster, VMI)


def _stuck(cluster: Cluster) -> Sequence[str]:
    """The VMs that refuse eviction for the cluster's sake and cannot migrate."""
    return [
        vmi.full_name
        for vmi in workload_updates.not_migratable(cluster)
        if vmi.at("spec", "evictionStrategy").value in (None, "LiveMigrate") and not _says_itself(vmi, cluster)
    ]


def _says_itself(vmi: Object, cluster: Cluster) -> bool:
    """Whether the VMI's VM sets a strategy, so that the cluster's is not to blame."""
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return False
    return vm is not None and vms.vmi_spec(vm)["evictionStrategy"].present


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    reads=(VMI, VM, HCO, KUBEVIRT),
    action=Action.WARN,
    check=check,
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go"
        "#admitLauncherPod",
    ),
)
