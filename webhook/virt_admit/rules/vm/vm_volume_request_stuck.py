"""A running VM has a volume request that KubeVirt does not process any more.

**Why.** KubeVirt carries out ``status.volumeRequests`` only with the feature gate
``HotplugVolumes``. Where ``DeclarativeHotplugVolumes`` has replaced it, virt-api refuses a request
that is left over. virt-controller repeats it and takes over no later change of the VM: the volume
never arrives, and edits have no effect.

**Fix.** Stop the VM and start it again: without a VMI the request becomes a volume of the VM. Do
that before an update that replaces the gate.
"""

from virt_admit.model.kubernetes.kinds import KUBEVIRT, VM, VMI
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Gate
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule, show


@rule(
    kinds=(VM,),
    reads={KUBEVIRT: (), VMI: ("status.phase",)},
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#handleVolumeRequests",
        "kubevirt/kubevirt:pkg/virt-api/rest/volumes.go#addVolumeRequestHandler",
        "https://github.com/harvester/harvester/issues/10243",
    ),
)
def check(vm: Object, context: Context) -> Findings:
    requests = list(vm.at("status", "volumeRequests").items())
    if not requests or vm.deleted or versions.gate_is_on(context.cluster, Gate.HOTPLUG_VOLUMES):
        return
    vmi = context.cluster.get(VMI, vms.namespace_of(vm), vm.name)
    if vmi is None or vmi.deleted or vmi.ended:
        return
    request = requests[0]  # one restart ends all of them
    added = request["addVolumeOptions"]
    options = added if added.is_map else request["removeVolumeOptions"]
    name = options["name"].text or ""
    yield Finding(
        request.path,
        f"KubeVirt does not process the request for volume {show(cut(name, 30))} (HotplugVolumes "
        "is off), and takes over no change of the VM. Stop and start it.",
        value=name,
    )
