"""Launcher pods that ended with an error before their guest ran: another start ends alike, most
likely.

KubeVirt counts these starts where it starts a VM again
(kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#vmiFailedEarly).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion
from virt_admit.forecasts.placement import pod_starts
from virt_admit.model.commands import logs_of, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migrations
from virt_admit.model.problems import Problem, ProblemCause

_ENDED: Final = (0, 137, 143)
"""Exit codes of a guest that shut down, and of a container that was ended from outside."""

_CONSOLE: Final = "guest-console-log"
"""It ends with the guest, however it ends."""


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return how the last start of a VM crashed, and where the cause stands; None: it did not, or
    that is not known.
    """
    failures = vm.at("status", "startFailure", "consecutiveFailCount").integer or 0
    if not (failures if vmi is None else _failed_early(vmi)):
        return None
    own = vm_states_motion.pods(vm, cluster)
    if vmi is not None:
        own = vm_states_motion.own_pods(vmi, cluster)
    last = next(reversed(own), None)
    crashed = _crashed(last) if last is not None else None
    if last is None or crashed is None:
        return None
    name, ended = crashed
    on = last.at("spec", "nodeName").text or "its node"
    code = ended["exitCode"].integer
    times = f"its last {failures} starts failed: " if failures > 1 else "its last start failed: "
    reason = (
        f"{times}container {name} of {last.name} on {on} ended with exit code {code}{_lived(ended)}"
    )
    remedy = "correct what its log says, or the next start most likely ends in the same way"
    return Problem(reason, typed(remedy, logs_of(last, "-c", name)), ProblemCause.NOT_REPORTED)


def _failed_early(vmi: Object) -> bool:
    """Whether a VMI has certainly failed before its guest ran."""
    handed_over, ran = (migrations.entered(vmi, each) for each in ("Scheduled", "Running"))
    return handed_over is not None and ran is None


def _crashed(pod: Object) -> tuple[str, Field] | None:
    """Return the container of a pod that ended by itself with an error, with how."""
    if pod.deleted or pod.at("status", "phase").text != "Failed" or pod.at("status")["reason"].text:
        return None
    ends = (
        (name, ended)
        for name, ended in pod_starts.terminations(pod)
        if ended["reason"].text in (None, "Error")
        and ended["exitCode"].integer not in (None, *_ENDED)
        and name != _CONSOLE
    )
    return min(ends, key=lambda each: each[0] != "compute", default=None)


def _lived(ended: Field) -> str:
    """Return how long a container ran; empty: that is not known."""
    begin, end = (clock.instant(ended[each].text) for each in ("startedAt", "finishedAt"))
    if begin is None or end is None or end < begin:
        return ""
    return f", {clock.duration(end - begin)} after its start"
