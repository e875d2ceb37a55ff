"""Migrations that the software of virt-launcher itself refuses: it passes a parameter or a flag
that the libvirt of its own image does not know.

libvirt checks the parameters of a call before it does anything, so VM, target and storage have no
part in it. A running guest keeps its launcher until it stops. Sources:
libvirt/libvirt:src/util/virtypedparam.c#virTypedParamsValidate, :src/internal.h
#virCheckFlagsGoto; harvester/harvester#8471 and pull request 8495.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.drain.guests import restart_guard
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(restart_guard.READS, {KUBEVIRT: (), NODE: ("spec.unschedulable",)})
_REFUSED: Final = re.compile(
    r"argument unsupported: parameter '[^']{1,80}' not supported"
    r"|unsupported flags \(0x[0-9a-f]{1,16}\) in function \w*Migrat\w*"
)
_TAG: Final = re.compile(r"(?::|@sha256:)([A-Za-z0-9_][\w.-]{0,127})$")


def problem(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return that the launcher of a VMI cannot migrate any guest; None: a migration failed for
    another reason.
    """
    refused = _REFUSED.search(failure)
    if refused is None:
        return None
    own, present = _tag(vmi), _release(cluster)
    named = f" {cut(own, 60)}" if own else ""
    reason = (
        f"its virt-launcher{named} asks for what the libvirt in the same image does not know "
        f"({refused[0]}), so no node and no retry helps"
    )
    owner = vmi.owned_by(VM.kind)
    command = virtctl("restart", owner, vms.namespace_of(vmi)) if owner else ""
    if vmis.OUTDATED in vmi.labels:
        now = f" ({present})" if present else ""
        words = f"restart the VM, which gives it the launcher of the present KubeVirt{now}"
        return Problem(reason, typed(words, command), ProblemCause.MIGRATION_FAILS)
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    is_closed = node is not None and node.at("spec", "unschedulable").boolean is True
    when = "" if is_closed else " once its node is cordoned"
    words = f"restart the VM{when}, which starts it on another node, as it cannot leave alive"
    if later := restart_guard.later(vmi, cluster):
        words = f"restart the VM, as it cannot leave its node alive{later}"
    of = f"KubeVirt {present}" if present else "this KubeVirt"
    fixed = (
        f"against the cause, replace {of} by a release whose launcher and libvirt fit, a later one "
        "or, if its vendor supports that, the one before, and restart the VMs, which keep theirs"
    )
    return Problem(reason, typed(words, command, fixed), ProblemCause.MIGRATION_FAILS)


def _tag(vmi: Object) -> str:
    """Return the tag of the image in which a guest runs; empty: not known."""
    found = _TAG.search(vmi.at("status", "launcherContainerImageVersion").text or "")
    return found[1] if found is not None else ""


def _release(cluster: Cluster) -> str:
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    status = found["status"] if found is not None else None
    return (status["observedKubeVirtVersion"].text or "") if status is not None else ""
