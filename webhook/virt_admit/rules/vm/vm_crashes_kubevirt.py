"""A virtual machine has a valid field on which a component of KubeVirt crashes.

**Why.** KubeVirt reads two optional fields without a check. ``features.hypervPassthrough: {}``
without ``enabled`` crashes virt-launcher and virt-handler. A preference with
``preferredCPUFeatures`` crashes the webhook of virt-api if the VM has neither ``domain.cpu`` nor an
instance type: the request fails with an unclear connection error.

**Fix.** Write ``hypervPassthrough: {enabled: true}``, or remove it. Add ``domain.cpu: {cores: 1}``
to the VM, or use an instance type.
"""

from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, vms
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(expand.READS),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition",
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/compute/hypervisor_features.go",
        "kubevirt/kubevirt:pkg/instancetype/preference/apply/cpu.go#applyCPUPreferences",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    domain = vms.vmi_spec(obj)["domain"]
    passthrough = domain.at("features", "hypervPassthrough")
    if passthrough.is_map and not passthrough["enabled"].present:
        yield Finding(
            passthrough.path,
            "hypervPassthrough without enabled crashes virt-launcher and virt-handler, so the VM "
            "never runs. Write enabled: true, or remove it.",
        )
    if not domain.is_map or domain["cpu"].present or vms.vm_spec(obj)["instancetype"].present:
        return
    vmi = context.cached(expand.expand, obj)
    if vmi.preference_unseen:
        yield Unseen(vmi.preference_unseen)
    preference = vmi.preference
    if preference is not None and preference.spec.at("cpu", "preferredCPUFeatures").value:
        yield Finding(
            domain["cpu"].path,
            f"{preference.source} prefers CPU features, and KubeVirt's webhook crashes on a VM "
            "without domain.cpu. Add domain.cpu, or use an instance type.",
            value=preference.source,
        )
