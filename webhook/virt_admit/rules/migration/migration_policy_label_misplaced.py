"""A migration policy selects labels that VMs have on themselves, and that no running VM has.

**Why.** The selector ``virtualMachineInstanceSelector`` reads the labels of
VirtualMachineInstances. They come from the template of a VM, not from the VM. Such a policy applies
to nothing, and migrations use the settings of the cluster.

**Fix.** Write the label into ``spec.template.metadata.labels`` of the VM. It takes effect when the
VM restarts.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import MIGRATION_POLICY, VM, VMI
from virt_admit.model.kubevirt.instances import vms
from virt_admit.rule import Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(MIGRATION_POLICY,),
    reads={VM: ("metadata.labels", "spec.template.metadata.labels"), VMI: ("metadata.labels",)},
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migrationpolicy.go#matchPolicy",
    ),
)
def check(policy: Object, context: Context) -> Findings:
    selector = policy["spec"]["selectors"]["virtualMachineInstanceSelector"]
    wanted = selector.texts
    if not wanted:
        return
    selected = wanted.items()
    machines = context.cluster.known(VM)
    templates = (vms.vmi_template(vm)["metadata"]["labels"].texts for vm in machines)
    running = (vmi.labels for vmi in context.cluster.known(VMI))
    if any(selected <= labels.items() for labels in (*templates, *running)):
        return
    misplaced = [vm.full_name for vm in machines if selected <= vm.labels.items()]
    if not misplaced:
        return
    unread = [*more_may_exist(context.cluster, VM), *more_may_exist(context.cluster, VMI)]
    yield from unread
    if not unread:
        yield Finding(
            selector.path,
            "no VM has these labels in its template, so the policy applies to none; "
            f"{names(sorted(misplaced), 60)} has them on itself. Write them into "
            "spec.template.metadata.labels.",
        )
