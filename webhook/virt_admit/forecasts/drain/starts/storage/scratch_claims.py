"""Claims for scratch space that CDI does not make, so that its pod stays Pending.

CDI makes the claim once the pod exists, in the class of CDIConfig's status; without one in the
class of the disk. A refusal by a quota is an event of the claim that is filled, any other refusal
is only in the log of CDI's controller, which tries again. Harvester's webhook keeps some classes
for its own claims. Sources:
kubevirt/containerized-data-importer:pkg/controller/util.go#GetScratchPvcStorageClass
#createScratchPersistentVolumeClaim, :pkg/controller/config-controller.go#reconcileStorageClass;
harvester/harvester:pkg/webhook/resources/persistentvolumeclaim/validator.go#validateInternalUsage,
https://github.com/harvester/harvester/issues/11125.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.starts.storage import absent_workers
from virt_admit.forecasts.placement.components.operands.unwritten_configs import CONFIG
from virt_admit.forecasts.placement.refusals import exceeded_quotas
from virt_admit.forecasts.placement.refusals.exceeded_quotas import Filling
from virt_admit.model.commands import about, kubectl, merge_patch, typed
from virt_admit.model.kubernetes import clock, events, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, NODE, POD, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pods import claim_names

_IMAGE: Final = "backingImage"
"""The parameter of a class of Longhorn (longhorn/longhorn-manager:csi/util.go
#getVolumeOptions)."""
_READS: Final[Reads] = {
    CDI: (),
    NODE: (f"metadata.labels.{nodes.HARVESTER}",),
    PVC: ("spec.resources.requests.storage", "spec.storageClassName"),
    STORAGE_CLASS: ("provisioner", f"parameters.{_IMAGE}"),
}
READS: Final[Reads] = union(exceeded_quotas.READS, _READS)
STATIC: Final = "kubernetes.io/no-provisioner"
_RESERVED: Final = frozenset(("longhorn-static", "vmstate-persistence"))
_LACKS: Final = re.compile(r'persistentvolumeclaim "([\w.-]{1,253}-scratch)" not found')
_PATIENCE: Final = timedelta(minutes=5)
"""CDI makes the claim within seconds."""
_RECENT: Final = timedelta(minutes=30)


def awaited(pod: Object, cluster: Cluster) -> str:
    """Return the claim for scratch space that a pod waits for and that is not known; empty: none
    is.
    """
    placed = pod.condition("PodScheduled")
    found = _LACKS.search(placed["message"].text or "")
    if found is None or placed["status"].text != "False":
        return ""
    return found[1] if find(cluster, PVC, pod.namespace, found[1]) is None else ""


def problem(pod: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return why CDI does not make the claim that a pod waits for; None: it does, or may yet."""
    scratch, age = awaited(pod, cluster), clock.age(pod, cluster)
    if not scratch or age is None or age < _PATIENCE:
        return None
    waits, lasts = f"pod {pod.name} waits for its scratch claim", clock.duration(age)
    reason = f"{begin}: {waits} {scratch}, which CDI has not made for {lasts}"
    brief = f"{waits}, not made for {lasts}"
    filled = [
        each
        for name in claim_names(pod)
        if (each := find(cluster, PVC, pod.namespace, name)) is not None
    ]
    since = clock.ago(_RECENT, cluster)
    for claim in filled:
        said = events.last_warning(claim, "ErrExceededQuota", since, cluster)
        refused = exceeded_quotas.of(said, pod.namespace, Filling(), cluster) if said else None
        if refused is not None:
            now = _over_quota(claim, scratch, cluster)
            why, remedy = now or (refused.words, refused.remedy)
            return _because(reason, brief, why, remedy)
    given = next(filter(None, (each.at("spec", "storageClassName").text for each in filled)), "")
    taken, origin = _class(given, cluster)
    if taken in _RESERVED and nodes.has_harvester(cluster):
        why = f"{origin}, which Harvester's webhook reserves for its own claims"
        usable = next((each for each in provisioned(cluster) if each not in _RESERVED), "")
        words = f"set scratchSpaceStorageClass of CDI to {usable or 'a class that is not reserved'}"
        then = "CDI then makes the claim by itself, after some minutes"
        return _because(reason, brief, why, typed(words, setting(usable, cluster), then))
    reason, brief = (f"{each}{f' ({origin})' if origin else ''}" for each in (reason, brief))
    return absent_workers.of_controller(
        "claim", reason, brief, about("describe", pod, POD), cluster
    )


def _because(reason: str, brief: str, why: str, remedy: str) -> Problem:
    return Problem(f"{reason}: {why}", remedy, ProblemCause.NOT_REPORTED, brief=f"{brief}: {why}")


def _over_quota(claim: Object, scratch: str, cluster: Cluster) -> tuple[str, str] | None:
    """Return which limits of a quota refuse the scratch claim of a claim by its class, and what
    helps; None: the class is not known, or none of its limits does now.
    """
    given = claim.at("spec", "storageClassName").text or ""
    taken, origin = _class(given, cluster)
    size, namespace = exceeded_quotas.scratch_size(claim), claim.namespace
    refused, admitted = (
        exceeded_quotas.of_claim(scratch, namespace, each, size, Filling(), cluster)
        for each in (taken, given)
    )
    if not taken or refused is None or refused.quota is None:
        return None
    quota, limits = refused.quota, exceeded_quotas.limits(refused)
    why = f"{origin}, and ResourceQuota {quota.name} refuses a claim of it: it allows {limits}"
    if taken == given or admitted is not None:
        return why, refused.remedy
    return (
        f"{why}, while the disk has class {given}",
        typed(
            f"set scratchSpaceStorageClass of CDI, which holds for all namespaces, to {given}, "
            f"which ResourceQuota {quota.name} admits: CDI then makes the claim by itself",
            setting(given, cluster),
            f"or {refused.remedy}",
        ),
    )


def _class(given: str, cluster: Cluster) -> tuple[str, str]:
    """Return the class that CDI takes for scratch space, and where it has it from; empty: not
    known.

    ``given``: the class of the disk.
    """
    config = next(iter(cluster.known(CONFIG)), None)
    if config is None:
        return "", ""
    if name := config.at("status", "scratchSpaceStorageClass").text:
        return name, f"scratchSpaceStorageClass of CDI is {name}"
    asked = config.at("spec", "scratchSpaceStorageClass").text
    unset = f"scratchSpaceStorageClass of CDI is {f'{asked}, no class' if asked else 'not set'}"
    return given, f"{unset}, so it takes {given}, that of the disk" if given else unset


def provisioned(cluster: Cluster) -> Iterator[str]:
    """Yield the classes whose provisioner makes empty volumes, the default first.

    Longhorn fills those of a class with a backing image, as Harvester has one for each image.
    """
    known: Sequence[Object] = [
        each
        for each in cluster.known(STORAGE_CLASS)
        if each["provisioner"].text != STATIC and not each.at("parameters", _IMAGE).text
    ]
    default = storage.marked(storage.DEFAULT_FOR_ALL, cluster)
    yield from (
        each.name for each in sorted(known, key=lambda each: (each.name != default, each.name))
    )


def setting(storage_class: str, cluster: Cluster) -> str:
    """Return the command that sets the class of scratch space: HyperConverged, where it exists,
    writes the CDI object.
    """
    cdi = next(iter(cluster.known(CDI)), None)
    place = written_settings.holder(WrittenSetting.SCRATCH, cdi, cluster)
    if place is not None:
        return place.patch(storage_class) if storage_class else place.edit
    name = cdi.name if cdi is not None else "cdi"
    if not storage_class:
        return kubectl("edit", CDI, name)
    return merge_patch(
        CDI, name, "", {"spec": {"config": {"scratchSpaceStorageClass": storage_class}}}
    )
