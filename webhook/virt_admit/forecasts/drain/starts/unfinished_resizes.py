"""Claims of a VM whose enlargement or change does not end,
while the pod of the VM cannot use their volume.

A file system grows when a pod mounts the volume, so a claim waits for that in a normal start, too.
Only a pod that fails with this very volume, or says nothing for minutes, makes it a cause. A raw
block volume has no file system. Sources:
kubernetes/kubernetes:pkg/apis/core/types.go#PersistentVolumeClaimConditionType
#ClaimResourceStatus;
kubernetes-csi/external-resizer:pkg/controller/controller.go#markPVCAsFSResizeRequired;
issues democratic-csi/democratic-csi#558.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.states import stuck_starts, vm_states_times
from virt_admit.forecasts.placement.starts import pod_starts, started_pods
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PV, PVC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import amount, show

READS: Final[Reads] = union(
    pod_starts.READS,
    {
        PVC: (
            "spec.resources.requests.storage",
            "spec.volumeMode",
            "spec.volumeName",
            "status.allocatedResourceStatuses.storage",
            "status.capacity.storage",
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
            *CONDITIONS,
        ),
        PV: ("spec.capacity.storage", "spec.csi.driver"),
    },
)

_CONDITIONS: Final = (
    "ControllerResizeError",
    "NodeResizeError",
    "ModifyVolumeError",
    "FileSystemResizePending",
    "Resizing",
    "ModifyingVolume",
)
"""What a claim says of a change of its volume, failures first."""
_PATIENCE: Final = timedelta(minutes=5)
_SIZE: Final = "storage"
_LONGEST: Final = 120


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return which claim of a VMI is stuck in a change that its pod waits for; None: none,
    or nothing says so.
    """
    pod = stuck_starts.starting_pod(vmi, cluster)
    since = clock.instant(pod.created) if pod is not None else None
    if (
        pod is None
        or not pod.at("spec", "nodeName").text
        or not vm_states_times.is_older(since, _PATIENCE, cluster)
    ):
        return None
    said = started_pods.of(pod, cluster).said
    for name in dict.fromkeys(launcher_pod.claims(vms.vmi_spec(vmi))):
        claim = find(cluster, PVC, vms.namespace_of(vmi), name)
        volume = claim.at("spec", "volumeName").text if claim is not None else None
        found = of_claim(claim, cluster) if claim is not None else None
        if claim is None or found is None or (said and (not volume or f'"{volume}"' not in said)):
            continue
        begin = (
            f"its pod on {pod.at('spec', 'nodeName').text} has not started "
            f"{vm_states_times.lasting(since, cluster)}"
        )
        fails = pod_starts.words(pod, cluster) if said else ""
        return found._replace(reason=f"{begin}: {found.reason}{f'. {fails}' if fails else ''}")
    return None


def of_claim(claim: Object, cluster: Cluster) -> Problem | None:
    """Return why the change of a claim has not ended for minutes; None: it has, or none began."""
    condition = _condition(claim, cluster)
    return _of_claim(claim, condition, cluster) if condition is not None else None


def _condition(claim: Object, cluster: Cluster) -> Field | None:
    """Return the condition of a claim whose change has not ended for minutes; None: none."""
    for kind in _CONDITIONS:
        condition = claim.condition(kind)
        entered = clock.instant(condition["lastTransitionTime"].text)
        if condition["status"].text == "True" and vm_states_times.is_older(
            entered, _PATIENCE, cluster
        ):
            return condition
    return None


def _of_claim(claim: Object, condition: Field, cluster: Cluster) -> Problem:
    """Return what is stuck with a claim, and what ends it."""
    kind, volume = condition["type"].text or "", volume_of(claim, cluster)
    asked = amount(_SIZE, claim.at("spec", "resources", "requests", _SIZE).value)
    has = amount(_SIZE, claim.at("status", "capacity", _SIZE).value)
    lasts = vm_states_times.lasting(clock.instant(condition["lastTransitionTime"].text), cluster)
    step = claim.at("status", "allocatedResourceStatuses", _SIZE).text
    state = f"{kind} {lasts}{f', {step}' if step else ''}"
    is_size = has < asked and not kind.startswith("Modify")
    sizes = (
        f"its status has {show(_SIZE, has)} of the {show(_SIZE, asked)} asked for"
        if is_size
        else ""
    )
    brief = (
        f"claim {claim.name} is stuck in {'a resize' if is_size else 'a change'}: "
        f"{kind}{f', {sizes}' if sizes else ''}"
    )
    reason = (
        brief.replace(f": {kind}", f" ({state})")
        if sizes
        else f"claim {claim.name} is stuck in a change ({state})"
    )
    driver = (
        volume.at("spec", "csi", "driver").text if volume is not None else None
    ) or "of its class"
    given = amount(_SIZE, volume.at("spec", "capacity", _SIZE).value) if volume is not None else 0
    described = kubectl("describe", PVC, claim.name, claim.namespace)
    if kind != "FileSystemResizePending":
        words = cut_middle(condition["message"].words, _LONGEST)
        remedy = typed(f"see why driver {driver} does not end it", described)
        return _problem(f"{reason}{f': {words}' if words else ''}", brief, remedy)
    if given >= asked > 0:
        reason = f"{reason}, and its volume has {show(_SIZE, given)} already"
    if claim.at("spec", "volumeMode").text != "Block" or given < asked:
        remedy = typed(f"see why driver {driver} does not end it on the node", described)
        return _problem(f"{reason}. The node has to end it, and does not", brief, remedy)
    edit = f"{kubectl('edit', PVC, claim.name, claim.namespace)} --subresource=status"
    remedy = (
        f"update driver {driver}, which should ask for no resize on the node; or, as a decision, "
        f"write {show(_SIZE, asked)} into status.capacity of the claim and remove this condition, "
        f"then clear the old mapping on the node: {edit}"
    )
    return _problem(
        f"{reason}. A raw block volume has no file system to resize, so no restart ends this",
        brief,
        remedy,
    )


def _problem(reason: str, brief: str, remedy: str) -> Problem:
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED, brief=brief)
