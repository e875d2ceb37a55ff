"""A hotplug does not reach the running guest, or the pod of a volume does not end after the unplug.

**Why.** New CPUs, memory and interfaces reach the guest with a migration. KubeVirt makes it only
with ``LiveMigrate`` in ``workloadUpdateMethods``, and refuses the next hotplug until then. A volume
looks attached: the claim is bound and its pod may run, but the guest does not have the disk. The
phase in ``status.volumeStatus`` says how far KubeVirt came. A volume that was unplugged and plugged
again at once keeps the phase ``Detaching`` up to KubeVirt 1.8.1.

**Fix.** List ``LiveMigrate``, or migrate the VM once, which needs no restart. For a volume, remove
what the finding names. After an unplug and a new plug at once: unplug the volume, wait until its
status and its pod ``hp-volume-…`` are gone, and plug it again, or restart the VM. If
``status.activePods`` still names launcher pods that have ended, virt-handler does not find the one
that runs: delete those that have ended.
"""

from virt_admit.model import messages
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD, PVC, STORAGE_CLASS, VM, VMI, VMIM
from virt_admit.model.kubernetes.reads import LateReads, Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.problems import Problem
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.drain import vm_outcomes  # noqa: PLC0415 - see LateReads
    from virt_admit.forecasts.drain.starts import hotplug_phases  # noqa: PLC0415

    pod = (
        *("metadata.creationTimestamp", "metadata.labels", "metadata.ownerReferences"),
        *("metadata.uid", "spec.nodeName", "spec.volumes.persistentVolumeClaim.claimName"),
        *("status.conditions.message", "status.phase"),
    )
    own: Reads = {
        VM: ("spec.template.spec.volumes",),
        KUBEVIRT: (),
        VMI: ("metadata.name", "metadata.uid", "status.nodeName", "status.phase"),
        VMIM: ("metadata.uid", "spec.vmiName", "status.phase"),
        NODE: ("metadata.labels",),
        PVC: ("metadata.creationTimestamp", "spec.storageClassName", "status.phase"),
        STORAGE_CLASS: ("volumeBindingMode",),
        POD: pod,
    }
    return union(clock.READS, vm_outcomes.READS, hotplug_phases.READS, own)


@rule(
    kinds=(VMI,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/vmi/storage.go#processHotplugVolumeStatus",
        "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go",
        "https://github.com/kubevirt/kubevirt/issues/17329",
        "https://github.com/kubevirt/kubevirt/pull/16159",
        "https://github.com/kubevirt/kubevirt/pull/17139",
        "https://github.com/kubevirt/kubevirt/pull/18287",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    changes = [kind for kind in vmis.HOTPLUGS if vmi.is_true(kind)]
    volumes = vmi.at("status", "volumeStatus").items()
    # checking files alone knows no VM that runs
    if changes:
        from virt_admit.forecasts.drain.changes import pending_changes  # noqa: PLC0415

        waits = pending_changes.problem(vmi, context.cluster)
        if waits is not None:
            field = vmi.condition(changes[0])["status"]
            yield _finding(field, "", waits, messages.advice_of(waits.remedy))
    if any(each["hotplugVolume"].is_map for each in volumes):
        from virt_admit.forecasts.drain.starts import hotplug_phases  # noqa: PLC0415

        for found in hotplug_phases.stuck(vmi, context.cluster):
            advice = found.problem.remedy.partition(": ")[0].partition("; ")[0]
            begin, field = f"volume {found.name}: ", found.field["phase"]
            yield _finding(field, begin, found.problem, messages.sentence(advice))


def _finding(field: Field, begin: str, stuck: Problem, remedy: str) -> Finding:
    most = check.room(field.path) - len(remedy) - len(f"{begin}. ")
    reason = messages.shorten(stuck.reason, most)
    return Finding(
        field.path,
        f"{begin}{messages.ended(reason)} {remedy}",
        value=stuck.reason,
        command=messages.command_of(stuck.remedy),
    )
