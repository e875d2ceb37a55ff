"""The guest of a VMI stands still, because reads or writes of a volume fail.

**Why.** QEMU pauses the guest at an I/O error (condition ``Paused``, reason ``PausedIOError``).
virt-handler resumes it again and again, and it stops at the same request. The VMI is still Running,
and a move meets the same storage.

**Fix.** Repair the storage, or make room in it. The guest then goes on by itself. If another pod
mounts the claim with another SELinux level, end that pod and restart the VM. A drain may have
evicted the pod that attaches a hotplugged volume: then stop and start the VM. A NetworkFence of
another node may cut off the node of the VM: then lift that fence. LINSTOR may have given the volume
a disk on the node of the VM meanwhile (``auto-diskful``): then restart the VM.
"""

import re
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model import pod_owners
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import (
    CEPH_CLUSTER,
    JOB,
    LONGHORN_VOLUME,
    NODE,
    POD,
    PV,
    PVC,
    VMI,
)
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import advice_of, command_of, ended, sentence
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule, union

_PATIENCE: Final = timedelta(minutes=5)
"""virt-handler tries again every three minutes at most,
so a storage that fails over is back by then.
"""
_NEXT: Final = re.compile(r"\. (?:It goes on|Before another drain)")
_FIRST_WAY: Final = re.compile(r": (?:kubectl|virtctl)|, or |; ")


def _reads() -> Reads:
    # files alone have no guest that is paused
    from virt_admit.forecasts.drain.guests import restart_guard  # noqa: PLC0415
    from virt_admit.forecasts.placement.components.linstor import late_disks  # noqa: PLC0415

    return union(
        clock.READS,
        changed_disks.DISK_READS,
        network_fences.READS,
        pod_owners.READS,
        restart_guard.READS,
        late_disks.READS,
        {
            JOB: ("metadata.ownerReferences",),
            PVC: ("spec.volumeMode", "spec.volumeName"),
            PV: ("spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.volumeAttributes.clusterID"),
            CEPH_CLUSTER: ("metadata.ownerReferences", "spec.storage.fullRatio", "status.ceph"),
            LONGHORN_VOLUME: ("status.robustness",),
            NODE: ("spec.unschedulable",),
            VMI: (
                *("metadata.ownerReferences", "metadata.uid"),
                *("status.nodeName", "status.phase", "status.selinuxContext"),
            ),
            POD: (
                "metadata.labels",
                "metadata.ownerReferences",
                "metadata.uid",
                "spec.containers.securityContext",
                "spec.nodeName",
                "spec.securityContext.seLinuxOptions.level",
                "spec.volumes.persistentVolumeClaim",
                "status.phase",
                "status.startTime",
            ),
        },
    )


@rule(
    kinds=(VMI,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculatePausedCondition",
        "https://github.com/kubevirt/kubevirt/issues/9704",
        "https://github.com/kubevirt/kubevirt/issues/10687",
        "https://github.com/kubevirt/kubevirt/issues/13523",
        "https://github.com/cozystack/cozystack/issues/3168",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    paused = vmi.condition("Paused")
    # a VMI that runs is not judged again because time has passed
    if paused["status"].text != "True":
        return
    age = clock.since(paused["lastTransitionTime"].text, context.cluster)
    if age is None:
        return
    # files alone know no guest that is paused
    from virt_admit.forecasts.drain.guests import paused_guests  # noqa: PLC0415

    errors = paused_guests.repeated(vmi, context.cluster)
    lasts = errors is not None and errors.last - errors.first >= _PATIENCE
    if age < _PATIENCE and not lasts and not paused_guests.is_detached(vmi, context.cluster):
        return
    found = paused_guests.problem(vmi, context.cluster)
    if found is None:
        return
    path = paused["reason"].path
    reason, first = _NEXT.split(found.reason)[0], sentence(_FIRST_WAY.split(found.remedy)[0])
    advice, brief = advice_of(found.remedy), ended(found.brief or reason)
    most = check.room(path) - len(first) - len(". ")
    message = check.first_that_fits(
        path,
        f"{ended(reason)} {advice}",
        f"{brief} {ended(advice.partition('. ')[0])}",
        f"{ended(cut(reason, most))} {first}",
    )
    yield Finding(path, message, value=found.reason, command=command_of(found.remedy))
