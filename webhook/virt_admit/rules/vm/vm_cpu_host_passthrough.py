"""A virtual machine that should live-migrate uses the CPU model host-passthrough.

**Why.** KubeVirt reports a VM with ``host-passthrough`` as migratable. The migration succeeds only
to a node with the same processor and microcode, so a drain may hang in a cluster with different
processors.

**Fix.** Use ``host-model`` or a named model, unless all nodes that can run the VM are identical.
Harvester gives the model to the VM with the files of an upgrade, about which this rule is silent.
"""

from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import HOST_PASSTHROUGH
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, rule, union

_COMPONENT = "harvesterhci.io/upgradeComponent"
"""Harvester makes that VM and removes it (harvester/harvester:pkg/controller/master/upgrade/
upgrade_repo.go)."""


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(expand.READS, expand.STRATEGY_READS),
    action=Action.AUDIT,
    at_admission=False,
    sources=("kubevirt/user-guide:docs/compute/virtual_hardware.md",),
)
def check(obj: Object, context: Context) -> Findings:
    if not vms.vmi_spec(obj).is_map or obj.labels.get(_COMPONENT) == "repo":
        return
    vmi = context.cached(expand.expand, obj)
    model, source = vmi.cpu_model
    if not model.text and vmi.instancetype_unseen:
        raise Unseen(vmi.instancetype_unseen)
    if (model.text or configuration.default_cpu_model(context.cluster)) != HOST_PASSTHROUGH:
        return
    strategy = context.cached(expand.strategy, obj)
    if strategy.value in ("LiveMigrate", "LiveMigrateIfPossible"):
        origin = source or ("" if model.text else "KubeVirt's default")
        yield Finding(
            model.path,
            f"{HOST_PASSTHROUGH}{f' ({origin})' if origin else ''} only migrates to a node with "
            "the same processor; a drain hangs if there is none. Use host-model or a named model.",
            value=HOST_PASSTHROUGH,
        )
