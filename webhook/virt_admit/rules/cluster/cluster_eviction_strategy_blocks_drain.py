"""The cluster's eviction strategy lets VMs that cannot migrate block drains.

**Why.** With ``LiveMigrate`` KubeVirt refuses the eviction of every VM and migrates it instead. A
VM that cannot migrate never leaves its node. The drain of that node, and with it an upgrade of the
cluster, waits until the VM is stopped.

**Fix.** Use ``LiveMigrateIfPossible`` here, or ``LiveMigrateIfPossible`` or ``None`` on those VMs.
Restart them: a running VM keeps the strategy that it was started with.
"""

from collections.abc import Sequence

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VM, VMI
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.model.messages import count, names
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(
        vmis.READS,
        expand.STRATEGY_READS,
        changed_disks.DISK_READS,
        {VM: ("spec.template.spec.evictionStrategy",)},
    ),
    action=Action.WARN,
    event="DrainBlocked",
    sources=(
        "OpenShift Virtualization, Nodes 10.1.1",
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "pod-eviction-admitter.go#admitLauncherPod"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if configuration.eviction_strategy(context.cluster, obj).value != "LiveMigrate":
        return
    blocking, unseen = context.cluster.cached(_blocking_vms)
    if blocking:
        yield Finding(
            setting(obj, Setting.EVICTION_STRATEGY).path,
            f"{count(len(blocking), 'VM')} cannot live-migrate and would block drains and "
            f"upgrades: {names((vmi.full_name for vmi in blocking), 50)}. "
            f"{_remedy(blocking, context.cluster)}",
            value=("LiveMigrate", len(blocking)),
            command=_command(blocking, context.cluster),
        )
    if unseen:
        yield Unseen(unseen)
    yield from more_may_exist(context.cluster, VMI)


def _remedy(blocking: Sequence[Object], cluster: Cluster) -> str:
    if kept := changed_disks.endangered(blocking, cluster):
        return kept
    if all(map(vms.is_worker, blocking)):
        return "Set External in the templates of their Machines."
    them = "it" if len(blocking) == 1 else "them"
    if versions.if_possible(cluster) != versions.IF_POSSIBLE:
        return f"Set None on {them}, then restart {them}."
    return f"Set LiveMigrateIfPossible, then restart {them}."


def _command(blocking: Sequence[Object], cluster: Cluster) -> str:
    """Return the command that changes the VMs where the cluster's strategy is to stay; empty: it
    is to change.
    """
    if versions.if_possible(cluster) == versions.IF_POSSIBLE or not _is_accepted(blocking, cluster):
        return ""
    first = vmis.owner(blocking[0], VM.kind)
    if len(blocking) > 1 or first is None:
        return "kubectl get vm -A"
    data = {"spec": {"template": {"spec": {"evictionStrategy": "None"}}}}
    return merge_patch(VM, first, vms.namespace_of(blocking[0]), data)


def _is_accepted(blocking: Sequence[Object], cluster: Cluster) -> bool:
    endangered = changed_disks.endangered(blocking, cluster)
    return not endangered and not all(map(vms.is_worker, blocking))


def _blocking_vms(cluster: Cluster) -> tuple[Sequence[Object], str]:
    """Return the VMs that cannot migrate and follow the cluster's strategy,
    and what could not be read.
    """
    blocking, unseen = [], ""
    for vmi in workload_updates.not_migratable(cluster):
        if vmi.at("spec", "evictionStrategy").value not in (None, "LiveMigrate"):
            continue
        try:
            if not _has_own_strategy(vmi, cluster):
                blocking.append(vmi)
        except Unseen as missing:
            unseen = missing.what
    return blocking, unseen


def _has_own_strategy(vmi: Object, cluster: Cluster) -> bool:
    """Return whether the VM of the VMI sets a strategy, so that the cluster's does not apply.

    Raises:
        Unseen: the VM cannot be read.
    """
    vm = vmis.owner_vm(vmi, cluster)
    return vm is not None and vms.vmi_spec(vm)["evictionStrategy"].present
