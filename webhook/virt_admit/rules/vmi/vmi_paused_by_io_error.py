"""The guest of a VMI stands still, because its storage refuses reads or writes.

**Why.** QEMU pauses the guest at an I/O error (condition ``Paused``, reason ``PausedIOError``). virt-handler resumes it again
and again, and it stops at the same request. The VMI is still Running, and a move meets the same storage.

**Fix.** Repair the storage, or make room in it. The guest then goes on by itself.
"""

import re
from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, LONGHORN_VOLUME
from virt_admit.model.messages import ended
from virt_admit.rule import (
    PV,
    PVC,
    VMI,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    Urgency,
    cut,
    rule,
    union,
)

_PATIENCE: Final = timedelta(minutes=5)
"""virt-handler tries again every three minutes at most, so a storage that fails over is back by then."""
_FIRST_WAY: Final = re.compile(r": kubectl|, or |; ")


@rule(
    kinds=(VMI,),
    reads=union(
        clock.READS,
        {
            PVC: ("spec.volumeName",),
            PV: ("spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.volumeAttributes.clusterID"),
            CEPH_CLUSTER: ("spec.storage.fullRatio", "status.ceph"),
            LONGHORN_VOLUME: ("status.robustness",),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculatePausedCondition",
        "https://github.com/kubevirt/kubevirt/issues/9704",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    paused = vmi.condition("Paused")
    if paused["status"].text != "True":  # a VMI that runs is not judged again because time has passed
        return
    age = clock.since(paused["lastTransitionTime"].text, context.cluster)
    if age is None or age < _PATIENCE:
        return
    from virt_admit.forecasts.drain.guests import paused_guests  # noqa: PLC0415 - files alone know no guest that is paused

    found = paused_guests.problem(vmi, context.cluster)
    if found is None:
        return
    path = vmi.condition("Paused")["reason"].path
    remedy = _FIRST_WAY.split(found.remedy)[0]
    most = check.room(path) - len(remedy) - len(". .")
    reason = found.reason.partition(". It goes on")[0]
    yield Finding(path, f"{ended(cut(reason, most))} {remedy[:1].upper()}{remedy[1:]}.", value=found.reason)
