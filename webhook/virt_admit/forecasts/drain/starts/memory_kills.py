"""Guests that ended because their pod used more memory than it may.

KubeVirt sets a memory limit for pods with dedicated CPUs, where the VM sets one, and where a quota
demands it. What QEMU needs besides the guest is an estimate. Sources:
kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go, issues kubevirt/kubevirt#10959,
kubevirt/kubevirt#9322 (additionalGuestMemoryOverheadRatio).
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion
from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import MEMORY, amount, show

_KILLED: Final = "OOMKilled"
_RATIO: Final = "raise additionalGuestMemoryOverheadRatio of KubeVirt"


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that the last pod of a VMI was ended for its use of memory,
    and what keeps it from happening again.

    ``vmi``: or a VM that has no VMI now, which pods of earlier ones are left of.
    """
    own = vm_states_motion.pods if vmi.kind == VM.kind else vm_states_motion.own_pods
    last = next(reversed(own(vmi, cluster)), None)
    killed = _killed(last) if last is not None else None
    if last is None or killed is None:
        return None
    name, code = killed
    said = f"container {name} of its pod was ended for lack of memory ({_KILLED}, exit code {code})"
    limit = _limit(last, name)
    if not limit:
        node = last.at("spec", "nodeName").text or "its node"
        remedy = (
            f"use less memory on {node}: see memoryOvercommit of KubeVirt, and what runs there "
            "besides VMs"
        )
        return Problem(
            f"{said}: it has no limit, so {node} had too little", remedy, ProblemCause.NOT_REPORTED
        )
    why, own_way = _cause(vms.vmi_spec(vmi))
    remedy = f"{_RATIO}{own_way}, or this can happen again"
    limited = f"its own limit of {show(MEMORY, limit)}, {why}"
    return Problem(f"{said}, at {limited}", remedy, ProblemCause.NOT_REPORTED)


def _killed(pod: Object) -> tuple[str, int] | None:
    """Return the container that was ended for its memory, with its exit code."""
    killed = (
        (name, ended)
        for name, ended in container_states.terminations(pod)
        if ended["reason"].text == _KILLED
    )
    return next(((name, ended["exitCode"].integer or 137) for name, ended in killed), None)


def _limit(pod: Object, container: str) -> int:
    own = pod.at("spec", "containers").named(container)
    return amount(MEMORY, own.at("resources", "limits", MEMORY).value)


def _cause(spec: Field) -> tuple[str, str]:
    """Return why a pod has a memory limit, and what else raises it."""
    domain = spec["domain"]
    limited = domain.at("resources", "limits", MEMORY).present
    less = ", or set the memory in resources.limits and requests of the VM above its memory.guest"
    if domain.at("cpu", "dedicatedCpuPlacement").boolean is True:
        return "which is set because of its dedicated CPUs", less
    if limited:
        return (
            "from resources.limits.memory of the VM",
            ", or raise resources.limits.memory of the VM",
        )
    return "which its namespace demands", ", or set a larger resources.limits.memory in the VM"
