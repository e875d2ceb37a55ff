"""A running VM names a network that does not exist any more.

**Why.** The guest runs on, because its pod has the network already. KubeVirt makes no further pod
for it: no migration succeeds, a drain of its node waits, and after a stop the VM does not start
again. A reinstallation of Multus that deletes its CustomResourceDefinition deletes all
NetworkAttachmentDefinitions, for example.

**Fix.** Create the NetworkAttachmentDefinition again with the same name, namespace and config.
"""

from virt_admit.model import messages
from virt_admit.model.kubernetes.kinds import NAD, VM, VMI
from virt_admit.model.kubernetes.reads import NAME
from virt_admit.model.kubevirt.instances import networks, vmis, vms
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, problem_of, rule


@rule(
    kinds=(VM, VMI),
    reads={NAD: NAME, VMI: ("spec.networks", "status.phase")},
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/network/multus/nad.go#NetworkToResource",
        "https://github.com/harvester/harvester/issues/10359",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if obj.kind == VMI.kind and vmis.owner(obj, VM.kind):
        return  # said of its VM
    vmi = obj if obj.kind == VMI.kind else context.cluster.get(VMI, vms.namespace_of(obj), obj.name)
    if vmi is None or vmi.deleted or vmi.at("status", "phase").text != "Running":
        return  # vm-start-stuck has it
    network = networks.missing(vmi, context.cluster)
    if network:
        # checking files knows no VM that runs
        from virt_admit.forecasts.placement.components import missing_networks  # noqa: PLC0415

        found = missing_networks.problem(network, "further pod")
        named = networks.secondary(obj) if obj.kind == VM.kind else ()
        of_vm = {"/".join(networks.full_name(obj, name)) for name in named}
        restart = ", and it does not start again" if network in of_vm else ""
        yield Finding(
            obj.metadata["name"].path,
            f"it runs on, but {found.reason}. No migration of it succeeds{restart}. "
            f"{messages.advice_of(found.remedy)}",
            value=network,
            problem=problem_of(found.cause, obj),
            command=messages.command_of(found.remedy),
        )
    for name in networks.secondary(vmi):
        context.cluster.get(NAD, *networks.full_name(vmi, name))  # raises if that cannot be read
