"""A hotplugged volume does not reach the running guest, or its pod does not end after the unplug.

**Why.** The volume looks attached: the claim is bound and its pod may run, but the guest does not
have the disk. The phase in ``status.volumeStatus`` says how far KubeVirt came. A volume that was
unplugged and plugged again at once keeps the phase ``Detaching`` up to KubeVirt 1.8.1.

**Fix.** Remove what the finding names. After an unplug and a new plug at once: unplug the volume,
wait until its status and its pod ``hp-volume-…`` are gone, and plug it again, or restart the VM. If
``status.activePods`` still names launcher pods that have ended, virt-handler does not find the one
that runs: delete those that have ended.
"""

from virt_admit.model import messages
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD, PVC, STORAGE_CLASS, VM, VMI, VMIM
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(VMI,),
    reads=union(
        clock.READS,
        {VM: ("spec.template.spec.volumes",)},
        {
            KUBEVIRT: (),
            VMI: ("metadata.name", "metadata.uid", "status.nodeName", "status.phase"),
            VMIM: ("metadata.uid", "spec.vmiName", "status.phase"),
            NODE: ("metadata.labels",),
            PVC: ("metadata.creationTimestamp", "spec.storageClassName", "status.phase"),
            STORAGE_CLASS: ("volumeBindingMode",),
            POD: (
                "metadata.creationTimestamp",
                "metadata.labels",
                "metadata.ownerReferences",
                "metadata.uid",
                "spec.nodeName",
                "spec.volumes.persistentVolumeClaim.claimName",
                "status.conditions.message",
                "status.phase",
            ),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/storage.go#processHotplugVolumeStatus",
        "https://github.com/kubevirt/kubevirt/pull/16159",
        "https://github.com/kubevirt/kubevirt/pull/17139",
        "https://github.com/kubevirt/kubevirt/pull/18287",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    if not any(each["hotplugVolume"].is_map for each in vmi.at("status", "volumeStatus").items()):
        return
    # checking files alone knows no VM that runs
    from virt_admit.forecasts.drain.starts import hotplug_phases  # noqa: PLC0415

    for found in hotplug_phases.stuck(vmi, context.cluster):
        path = found.field["phase"].path
        remedy = messages.sentence(found.problem.remedy.partition(": ")[0].partition("; ")[0])
        most = check.room(path) - len(remedy) - len(f"volume {found.name}: . ")
        reason = messages.shorten(found.problem.reason, most)
        yield Finding(
            path,
            f"volume {found.name}: {messages.ended(reason)} {remedy}",
            value=found.problem.reason,
            command=messages.command_of(found.problem.remedy),
        )
