"""Pods of CDI that fill a disk, and that CDI cannot create: the annotation of the claim names one
that does not exist.

The pods have the requests and limits that CDIConfig reports, which were 0 in early releases: set,
so that no LimitRange gives them its defaults. Their controller writes why the API server refuses a
pod into its log, and of a quota into an event in later releases. Sources:
kubevirt/containerized-data-importer:pkg/controller/import-controller.go#createImporterPod,
:pkg/controller/upload-controller.go, :pkg/controller/config-controller.go
#reconcileDefaultPodResourceRequirements, issue #1666, pull request #1842;
kubernetes/kubernetes:plugin/pkg/admission/limitranger/admission.go#limitRequestRatioConstraint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement import quotas
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.operands.unwritten_configs import CONFIG
from virt_admit.forecasts.placement.migration_demand import Demand
from virt_admit.model.commands import about, kubectl, logs_of, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    CDI,
    DATA_VOLUME,
    LIMIT_RANGE,
    POD,
    PVC,
    RESOURCE_QUOTA,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.launcher import limit_ranges
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pod_size import Container, PodSize
from virt_admit.model.scheduler.resources import CPU, amount, amounts

_NAMED: Final = (
    "cdi.kubevirt.io/storage.import.importPodName",
    "cdi.kubevirt.io/storage.uploadPodName",
)
_SCRATCH: Final = "cdi.kubevirt.io/storage.import.requiresScratch"
READS: Final[Reads] = union(
    limit_ranges.READS,
    {
        CDI: (),
        DATA_VOLUME: ("metadata.creationTimestamp", "status.phase", *CONDITIONS),
        PVC: tuple(f"metadata.annotations.{name}" for name in (*_NAMED, _SCRATCH)),
        RESOURCE_QUOTA: ("spec", "status"),
        POD: ("metadata.creationTimestamp", "metadata.labels", "status.phase"),
    },
)
_SCHEDULED: Final = frozenset(("ImportScheduled", "UploadScheduled", "CloneScheduled"))
"""Phases of a data volume whose claim has a volume and whose pod is to be created."""
_REFUSED: Final = "ErrStartingPod"
_PATIENCE: Final = timedelta(minutes=5)
_LATE: Final = timedelta(minutes=15)
"""A pod may pull an image, and wait for its volume, for some minutes."""
_ENOUGH: Final = {
    "requests": {"cpu": "100m", "memory": "60M"},
    "limits": {"cpu": "750m", "memory": "600M"},
}
"""What later releases of CDI give their pods."""


class _Refusal(NamedTuple):
    """Why the API server refuses a pod, and the object that decides it."""

    why: str
    kind: Kind
    name: str

    @property
    def hint(self) -> str:
        """For a ratio, an amount of 0 is none."""
        return ", and 0 counts as none" if " are necessary" in self.why else ""


def problem(disk: Object, claims: Sequence[str], begin: str, cluster: Cluster) -> Problem | None:
    """Return why CDI has not created the pod that fills a disk; None: it has, or has just begun.

    Args:
        disk: the data volume.
        claims: the names of its claims, of which one names the pod.
        begin: the words about the disk.
        cluster: the cluster.

    Raises:
        Unseen: whether the pod exists could not be read.
    """
    bound = disk.condition("Bound")
    since = bound["lastTransitionTime"].text or disk.created
    age = clock.since(since, cluster)
    # its claim has a volume, and CDI writes this reason where the API server refuses the pod
    has_volume = bound["status"].text != "False" or bound["reason"].text == _REFUSED
    late = age is not None and age >= _PATIENCE and has_volume
    pod = _named(disk, claims, cluster) if late else ""
    if disk.at("status", "phase").text not in _SCHEDULED or age is None or not pod:
        return None
    created = cluster.get(POD, disk.namespace, pod)
    if created is not None:
        return _unstarted(created, begin, cluster)
    reason = f"{begin}: CDI has not created pod {pod} for {clock.duration(age)}"
    brief = f"its disk {disk.name}: {reason.removeprefix(begin).lstrip(': ')}"
    config = next(iter(cluster.known(CONFIG)), None)
    given = config.at("status", "defaultPodResourceRequirements") if config is not None else None
    if config is not None and given is not None and given.is_map:
        size = _size(given["requests"].map, given["limits"].map)
        refusal = _refusal(size, disk.namespace, cluster)
        if refusal is not None:
            brief = f"{brief}: {refusal.why}"
            asks = f"CDIConfig {config.name} gives it {_words(given.map)}{refusal.hint}"
            return Problem(
                f"{reason}, as {refusal.why}; {asks}",
                _remedy(refusal, disk.namespace, cluster),
                ProblemCause.NOT_REPORTED,
                brief=brief,
            )
    return (
        None
        if _starts_again(disk, claims, cluster)
        else of_controller("pod", reason, brief, about("describe", disk, DATA_VOLUME), cluster)
    )


def _starts_again(disk: Object, claims: Sequence[str], cluster: Cluster) -> bool:
    """Return whether CDI has ended the pod to make it again with scratch space."""
    found = (find(cluster, PVC, disk.namespace, name) for name in claims)
    return any(claim.annotations.get(_SCRATCH) == "true" for claim in found if claim is not None)


def _unstarted(pod: Object, begin: str, cluster: Cluster) -> Problem | None:
    """Return that a pod has not started for long, of which nothing else is known; None: it has."""
    age = clock.age(pod, cluster)
    if pod.at("status", "phase").text != "Pending" or age is None or age < _LATE:
        return None
    reason = f"{begin}: pod {pod.name} has not started for {clock.duration(age)}"
    remedy = typed("see in its events and on its node why", about("describe", pod, POD))
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


def _named(disk: Object, claims: Sequence[str], cluster: Cluster) -> str:
    """Return the pod that a claim of a disk names; empty: none does."""
    for name in reversed(claims):  # a temporary claim is filled in place of the own one
        claim = find(cluster, PVC, disk.namespace, name)
        for key in _NAMED if claim is not None else ():
            if claim is not None and (named := claim.annotations.get(key)):
                return named
    return ""


def _size(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> PodSize:
    return PodSize((Container(amounts(limits) | amounts(requests), amounts(limits)),))


def _refusal(size: PodSize, namespace: str, cluster: Cluster) -> _Refusal | None:
    """Return what refuses a pod of this size; None: nothing, as far as is known."""
    ranges = limit_ranges.of_namespace(cluster, namespace)
    size = limit_ranges.defaulted(size, ranges)
    for each in ranges:
        if why := limit_ranges.refusal(size, [each]):
            fault = why.partition(": ")[2].removeprefix("a container: ")
            return _Refusal(
                f"LimitRange {each.full_name} refuses it: {fault}", LIMIT_RANGE, each.name
            )
    for quota in cluster.known(RESOURCE_QUOTA, namespace):
        if quota.at("spec", "scopes").present or quota.at("spec", "scopeSelector").present:
            continue
        try:
            lacking = quotas.missing(quotas.lacks(quota, Demand(size)))
        except Unseen:
            continue
        for name, lack in lacking[:1]:
            why = f"ResourceQuota {quota.full_name} refuses it: {name}: {lack}"
            return _Refusal(why, RESOURCE_QUOTA, quota.name)
    return None


def _remedy(refusal: _Refusal, namespace: str, cluster: Cluster) -> str:
    """Return how to let the API server accept the pods of CDI: CDI tries again by itself."""
    change = kubectl("edit", refusal.kind, refusal.name, namespace)
    verb = "raise" if refusal.kind is RESOURCE_QUOTA else "change"
    other = f"{verb} {refusal.kind.kind} {refusal.name}"
    cdi = next(iter(cluster.known(CDI)), None)
    place = written_settings.holder(WrittenSetting.WORKLOAD_RESOURCES, cdi, cluster)
    enough = _within_ratios(limit_ranges.of_namespace(cluster, namespace))
    if _refusal(_size(enough["requests"], enough["limits"]), namespace, cluster) is not None:
        return typed(other, change)
    if place is not None:
        setting = f"set {place.words} to {_words(enough)}"
        return typed(setting, place.patch(enough), f"or {other}")
    where = "podResourceRequirements of CDI (in HyperConverged, if it writes CDI)"
    return typed(other, change, f"or set {where} to {_words(enough)}")


def _within_ratios(ranges: Sequence[Object]) -> dict[str, dict[str, str]]:
    """Return what CDI gives its pods, with requests so large that LimitRanges take its limits."""
    requests, limits = dict(_ENOUGH["requests"]), _ENOUGH["limits"]
    for item in (each for found in ranges for each in found.at("spec", "limits").items()):
        for name, ratio in item["maxLimitRequestRatio"].map.items():
            thousandths = amount(CPU, ratio)
            if name not in requests or thousandths < _ONCE:
                continue
            least = -(-amount(name, limits[name]) * _ONCE // thousandths)
            step, unit = _STEPS[name]
            if least > amount(name, requests[name]):
                requests[name] = f"{-(-least // step) * step // (1 if name == CPU else step)}{unit}"
    return {"requests": requests, "limits": dict(limits)}


_ONCE: Final = 1000
_STEPS: Final = {"cpu": (10, "m"), "memory": (10**6, "M")}
"""What a request is rounded up to, and how it is written."""


def _words(given: Mapping[str, Any]) -> str:
    """Return ``requests cpu 0, memory 0 and limits cpu 0, memory 0``."""
    parts = (
        f"{kind} {', '.join(f'{name} {value}' for name, value in sorted(of.items()))}"
        for kind in ("requests", "limits")
        if isinstance(of := given.get(kind), dict) and of
    )
    return " and ".join(parts) or "no requests and no limits"


def of_controller(what: str, reason: str, brief: str, otherwise: str, cluster: Cluster) -> Problem:
    """Return that the controller of CDI creates no pod or claim, with its log, which alone says
    why.

    Args:
        what: ``pod`` or ``claim``.
        reason: the words about it.
        brief: the same in short.
        otherwise: the command where that controller is not known.
        cluster: the cluster.
    """
    own = (
        pod
        for pod in cluster.known(POD)
        if pod.labels.get("cdi.kubevirt.io") is not None and pod.name.startswith(_CONTROLLER)
    )
    controller = next(own, None)
    if controller is None:
        words = f"see what CDI's controller ({_CONTROLLER.rstrip('-')}) logs about it"
        return Problem(reason, typed(words, otherwise), ProblemCause.NOT_REPORTED, brief=brief)
    broken = broken_pods.of_pod(controller, cluster)
    if broken is not None:
        why = f", as CDI's controller, pod {controller.full_name}, is not ready{broken.since}"
        because = f": {broken.why}" if broken.why else ""
        return Problem(
            f"{reason}{why}{because}", broken.remedy, ProblemCause.NOT_REPORTED, brief=brief
        )
    told = f"{reason}, and only the log of its controller says why"
    words = f"see in the log of {controller.full_name} why the API server refuses that {what}"
    return Problem(told, typed(words, logs_of(controller)), ProblemCause.NOT_REPORTED, brief=brief)


_CONTROLLER: Final = "cdi-deployment-"
