"""VMs for which KubeVirt cannot create a VMI, as their condition ``Failure`` says,
with the cause that is known.

KubeVirt keeps a copy of an instance type and a preference in a ControllerRevision. Releases before
0.58 stored the spec alone, in base64; some later ones cannot decode that. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#startVMI #processFailureCondition; issues
kubevirt/kubevirt#9261, #9584.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts.storage import clone_permissions, unadopted_claims
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement.refusals import exceeded_quotas
from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.evidence.writes import refused_writes
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CONTROLLER_REVISION, VM
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import down_vms, expand, vms
from virt_admit.model.kubevirt.launcher import limit_ranges, pod_refusals
from virt_admit.model.kubevirt.settings import refused_gates
from virt_admit.model.lookups import fields
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    clock.READS,
    expand.READS,
    limit_ranges.READS,
    refused_gates.READS,
    refused_writes.READS,
    unadopted_claims.READS,
    {
        VM: (
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
            "status.conditions.reason",
            "status.startFailure.consecutiveFailCount",
            *CONDITIONS,
        )
    },
)

_PATIENCE: Final = timedelta(minutes=5)
_RETRY: Final = timedelta(minutes=20)
"""virt-controller pauses 1000 seconds at most between retries."""
_BEGIN: Final = re.compile(
    r"^(?:Failure while starting VMI|Error creating virtual machine instance|"
    r"Error encountered while creating VirtualMachineInstance): "
)
_DUMP: Final = re.compile(r" in '[{\[].{0,4000}[}\]]'")
"""The object that could not be decoded."""
_DECODE: Final = "failed to decode object in ControllerRevision: "
_LONGEST, _BRIEF = 200, 90
_OF_DISKS: Final = re.compile(r"^Error encountered while creating DataVolumes: ")
_BY_KUBEVIRT: Final = re.compile(r'^admission webhook "[\w.-]+\.kubevirt\.io" denied the request: ')
_OF_VM: Final = re.compile(
    r"\bspec\.|[Ii]nvalid|unknown field|[Rr]equired value|denied the request"
)
"""Words about fields of the VM, which are to be corrected there."""
_READ: Final = "correct in the VM what this names; its events may say more"
_REPAIR: Final = "repair what this names; the events of the VM may say more"


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return why KubeVirt creates no VMI for a VM that should run, and what ends it; None:
    nothing says so.
    """
    failed = vm.condition("Failure")
    fails = (
        failed["status"].text == "True"
        and failed["reason"].text == "FailedCreate"
        and bool(failed["message"].text)
    )
    again = vm.at("status", "startFailure", "consecutiveFailCount").integer
    if not fails or again or not down_vms.should_run(vm):
        return None
    begun = _begun(vm, cluster)
    age = clock.elapsed(begun, cluster)
    if age is not None and age < _PATIENCE:
        return None
    lasts = vm_states_times.lasting(begun, cluster)
    said = _DUMP.sub("", _BEGIN.sub("", failed["message"].words))
    begin = f"KubeVirt cannot create its {'DataVolumes' if _OF_DISKS.match(said) else 'VMI'}"
    if exceeded := exceeded_quotas.of(said, vms.namespace_of(vm), cluster=cluster):
        return Problem(f"{begin}: {exceeded.words}", exceeded.remedy, ProblemCause.NOT_REPORTED)
    if _DECODE in said and (
        undecoded := _undecoded(vm, lasts, said.partition(_DECODE)[2], cluster)
    ):
        return undecoded
    if unpermitted := clone_permissions.problem(vm, said, lasts, cluster):
        return unpermitted
    if unadopted := unadopted_claims.problem(vm, lasts, cluster):
        return unadopted
    # KubeVirt removes the condition once it succeeds
    if refused := refused_writes.of(said, cluster, clock.now(cluster)):
        reason, brief = f"{begin} {lasts}: {refused.words}", f"{begin}: {refused.brief}"
        return Problem(reason, refused.remedy, ProblemCause.NOT_REPORTED, brief=brief)
    described = kubectl("describe", VM, vm.name, vms.namespace_of(vm))
    words = _BY_KUBEVIRT.sub("", _OF_DISKS.sub("", said))
    reason = f"{begin} {lasts}: {cut_middle(words, _LONGEST)}"
    brief = f"{begin}: {cut_middle(words, _BRIEF)}"
    otherwise = typed(_READ if _OF_VM.search(said) else _REPAIR, described)
    remedy = pod_refusals.remedy(vm, said, cluster) or otherwise
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED, brief=brief)


def _begun(vm: Object, cluster: Cluster) -> datetime | None:
    """Return since when KubeVirt fails: a retry may set the time of the condition again
    (#processFailureCondition), but is counted in the same event.
    """
    failed = clock.instant(vm.condition("Failure")["lastTransitionTime"].text)
    if failed is None:
        return None
    known = events.about(vm, failed - _RETRY, cluster)
    firsts = (
        clock.instant(event["firstTimestamp"].text)
        for event in known
        if event["reason"].text == unadopted_claims.EVENT
    )
    return min((*filter(None, firsts), failed))


class UndecodableCopy(NamedTuple):
    """A stored copy of an instance type or preference that is not in the form in which KubeVirt
    reads it.
    """

    key: str
    """``instancetype`` or ``preference``."""
    path: Path
    words: str
    revision: str


def _undecodable(vm: Object, cluster: Cluster) -> Iterator[UndecodableCopy]:
    """Yield the copies that a VM names in ``revisionName`` and whose spec is not a map,
    as far as they can be read.
    """
    for key, word in (("instancetype", "instance type"), ("preference", "preference")):
        named = vms.vm_spec(vm)[key]
        revision = named["revisionName"].text or ""
        found = fields(cluster, CONTROLLER_REVISION, vms.namespace_of(vm), revision)
        spec = found.at("data", "spec")
        if spec.present and not spec.is_map:
            yield UndecodableCopy(
                key, named["revisionName"].path, f"{word} {named['name'].text or '?'}", revision
            )


def _undecoded(vm: Object, lasts: str, error: str, cluster: Cluster) -> Problem | None:
    """Return which stored copy cannot be decoded; None: it is not known which one."""
    found = next(_undecodable(vm, cluster), None)
    if found is None:
        return None
    namespace = vms.namespace_of(vm)
    brief = f"ControllerRevision {found.revision} cannot be decoded: {cut_middle(error, _BRIEF)}"
    reason = (
        f"KubeVirt cannot create its VMI {lasts}: ControllerRevision {namespace}/{found.revision}, "
        f"its copy of {found.words} in {found.path}, cannot be decoded: "
        f"{cut_middle(error, _LONGEST)}"
    )
    delete = kubectl("delete", CONTROLLER_REVISION, found.revision, namespace)
    remedy = (
        f"remove {found.path} and this ControllerRevision ({delete}), so that KubeVirt stores "
        f"{found.words} as it is now and starts the VM"
    )
    command = merge_patch(VM, vm.name, namespace, {"spec": {found.key: {"revisionName": None}}})
    return Problem(reason, typed(remedy, command), ProblemCause.NOT_REPORTED, brief=brief)
