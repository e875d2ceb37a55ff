"""LimitRanges and quotas that refuse what a migration creates: a second launcher pod,
and what belongs to it.

While a VMI migrates its namespace holds two launcher pods for it, and the quota counts both.
Namespaces in which the application-aware quota operator counts VMs have no such ResourceQuota on
pods. Sources: k8s.io/apiserver pkg/admission/plugin/resourcequota/controller.go#CheckRequest;
k8s.io/kubernetes pkg/quota/v1/evaluator/core/{pods,persistent_volume_claims}.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from virt_admit.forecasts.placement import candidates, migration_demand
from virt_admit.forecasts.placement.migration_demand import Demand
from virt_admit.forecasts.placement.running_launchers import by_vmi, launchers
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.kinds import LIMIT_RANGE, NODE, POD, RESOURCE_QUOTA, VMI
from virt_admit.model.kubernetes.nodes import HARVESTER, has_harvester
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi, expand
from virt_admit.model.kubevirt.launcher import (
    launcher_resources,
    limit_ranges,
    lost_surcharges,
    pod_refusals,
    quota_scopes,
)
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.running_release import is_managed
from virt_admit.model.kubevirt.settings.versions import Version, has_release
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause, problem_of
from virt_admit.model.scheduler import pod_size
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.model.scheduler.resources import (
    CPU,
    MEMORY,
    Resources,
    amount,
    are_quantities,
    show,
)

READS: Final = union(
    migration_demand.READS,
    {NODE: (f"metadata.labels.{HARVESTER}",), RESOURCE_QUOTA: ("spec", "status")},
    lost_surcharges.READS,
)

_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")


def refusal(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a LimitRange or a quota refuses what a migration creates; None: none does,
    as far as known.

    Raises:
        Unseen: one may refuse a pod whose requests could not be read.
    """
    return next(refusals(vmi, cluster), None)


def refusals(vmi: Object, cluster: Cluster) -> Iterator[Problem]:
    """Yield why LimitRanges, and each quota that does, refuse what a migration creates.

    Raises:
        Unseen: one may refuse a pod whose requests could not be read, or it does not say what it
            has counted.
    """
    namespace = vms.namespace_of(vmi)
    ranges = limit_ranges.of_namespace(cluster, namespace)
    found = cluster.known(RESOURCE_QUOTA, namespace)
    if not found and not ranges:
        return
    if unseen := candidates.unseen_size(vmi, cluster):
        raise Unseen(unseen)
    demand = migration_demand.demand(vmi, cluster)
    for pod, words in (
        (demand.launcher, "a second pod"),
        (demand.attachment, "the pod that attaches its volumes"),
    ):
        refused = limit_ranges.refusal(pod, ranges) if pod is not None else ""
        if refused:
            remedy = _OWN if pod is demand.launcher else attachment_remedy(cluster)
            yield Problem(
                f"{refused}: {words} is refused",
                remedy,
                id=problem_of(ProblemCause.LIMIT_RANGE, vmi),
                command=_edit(ranges, namespace),
            )
    unseen = ""
    for quota in found:
        try:
            lacking = lacks_for(quota, vmi, cluster)
        except Unseen as blind:
            unseen = unseen or blind.what
            continue
        if lacking:
            yield _shortage(quota, vmi, lacking, cluster)
    if unseen:
        raise Unseen(unseen)


def _shortage(
    quota: Object, vmi: Object, lacking: Mapping[str, int | None], cluster: Cluster
) -> Problem:
    """Return what a quota lacks for a migration, and where it is raised to how much."""
    of_state = next(iter(lacking)).removeprefix("count/") in _OF_STATE
    what = "copy of its vTPM and EFI state" if of_state else "pod"
    words = names((f"{name}: {lack}" for name, lack in missing(lacking)), 200)
    limits, more = hard_limits(quota), {**lacking, **_once_set(quota, lacking, vmi, cluster)}
    wanted = (
        f"{name} {in_words(name, limits[name] + lack)}" for name, lack in more.items() if lack
    )
    least = names(wanted, 200)
    least = f" to at least {least}" if least else ""
    reason = f"ResourceQuota {quota.name} leaves no room for a second {what}: {words}"
    problem = problem_of(ProblemCause.QUOTA, quota)
    if (lost := lost_surcharges.of(vmi, quota, cluster)) is not None:
        return Problem(f"{reason}{lost.reason}", lost.words, id=problem, command=lost.command)
    remedy, command = quota_writers.raising(quota.name, vms.namespace_of(vmi), quota, least)
    if (unset := pod_refusals.unset_remedy(quota, lacking, cluster)) is not None:
        also = f"; in each case also {remedy}" if any(more.values()) else ""
        return Problem(reason, f"{unset[0]}{also}", id=problem, command=unset[1])
    way = f"{remedy}{_OR_AAQ if command else ''}"
    return Problem(reason, way, id=problem, command=command)


def _once_set(
    quota: Object, lacking: Mapping[str, int | None], vmi: Object, cluster: Cluster
) -> Mapping[str, int]:
    """Return what is certainly missing once the second pod sets the limits that a quota demands: no
    limit of a container is below its request.
    """
    pod, used = migration_demand.demand(vmi, cluster).launcher, _used(quota)
    freed = _leaving(quota, vms.namespace_of(vmi), cluster)
    free = {
        name: limit + freed.get(name, 0) - used.get(name, 0)
        for name, limit in hard_limits(quota).items()
        if name.startswith("limits.") and lacking.get(name, 0) is None
    }
    missing = {name: pod.requests.get(_resource(name), 0) - room for name, room in free.items()}
    return {name: lack for name, lack in missing.items() if lack > 0}


_OR_AAQ: Final = "; or count VMs with an ApplicationAwareResourceQuota"


def migration_refusal(vmi: Object, cluster: Cluster) -> str:
    """Return why LimitRanges refuse the second launcher pod of a VMI; empty: they do not.

    Raises:
        Unseen: one may, and what the pod requests could not be read.
    """
    ranges = limit_ranges.of_namespace(cluster, vms.namespace_of(vmi))
    if ranges and (unseen := candidates.unseen_size(vmi, cluster)):
        raise Unseen(unseen)
    if ranges:
        return limit_ranges.refusal(migration_demand.demand(vmi, cluster).launcher, ranges)
    return ""


_OWN: Final = "change the LimitRange; or change what the pod requests"


def _edit(ranges: Sequence[Object], namespace: str) -> str:
    """Return the command that edits the LimitRange of a namespace;
    with several the administrator chooses.
    """
    return kubectl("edit", LIMIT_RANGE, ranges[0].name if len(ranges) == 1 else "", namespace)


def start_refusal(vmi: Object, nodes: Collection[str], cluster: Cluster) -> Problem | None:
    """Return why the new launcher pod of a VM is refused after the loss of these nodes; None: it is
    not, or perhaps not.

    ``vmi``: also a VM that has none, which would start now.

    A quota counts the pods of these nodes no more (pods.go#QuotaV1Pod), also those that other nodes
    get again.
    """
    namespace = vms.namespace_of(vmi)
    ranges = limit_ranges.of_namespace(cluster, namespace)
    known = tuple(cluster.known(RESOURCE_QUOTA, namespace))
    given = _as_restarted(vmi, cluster) if ranges or known else None
    if given is None:
        return None
    size = limit_ranges.defaulted(launcher_resources.pod(given, cluster), ranges)
    if refused := limit_ranges.refusal(size, ranges):
        root, command = problem_of(ProblemCause.LIMIT_RANGE, vmi), _edit(ranges, namespace)
        return Problem(f"{refused}: {EACH}", typed(_OWN, command), id=root, command=command)
    counted = _usage([size], 0)
    by_node = cluster.cached(_counted).get(namespace, {}) if known and nodes else {}
    freed = _total(by_node.get(node, {}) for node in nodes)
    priority = vms.vmi_spec(vmi)["priorityClassName"].text or ""
    for quota in known:
        used = _used(quota) if quota_scopes.counts_pods_of(quota, priority) else {}
        for name, limit in hard_limits(quota).items():
            lack = used.get(name, 0) - freed.get(name, 0) + counted.get(name, 0) - limit
            if name in used and counted.get(name, 0) > 0 and lack > 0:
                reason = (
                    f"ResourceQuota {quota.name}: {name}: {in_words(name, lack)} missing: {EACH}"
                )
                words, command = quota_writers.raising(quota.name, namespace, quota)
                root = problem_of(ProblemCause.QUOTA, quota)
                return Problem(reason, typed(words, command), id=root, command=command)
    return None


EACH: Final = "every new pod of it is refused"


def _counted(cluster: Cluster) -> Mapping[str, Mapping[str, Counter[str]]]:
    """Return what quotas count for the pods of a namespace on a node.

    They count no pod that has ended (pods.go#QuotaV1Pod).
    """
    found: dict[str, dict[str, Counter[str]]] = {}
    for pod in cluster.known(POD):
        node = pod.at("spec", "nodeName").text
        if node and not pod.ended:
            of_node = found.setdefault(pod.namespace or "default", {}).setdefault(node, Counter())
            of_node.update(_usage([pod_size.read(pod["spec"])], 0))
    return found


def _total(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _as_restarted(vmi: Object, cluster: Cluster) -> ExpandedVmi | None:
    """Return the spec with which a VM starts again; None: it cannot be read,
    or its size not be computed.
    """
    try:
        given = expand(vmis.owner_vm(vmi, cluster) or vmi, cluster)
    except Unseen:
        return None
    if given.unseen or any(True for _ in launcher_resources.unseen(given, cluster)):
        return None
    return given


def attachment_remedy(cluster: Cluster) -> str:
    """Return what lets KubeVirt create pods that attach volumes where a LimitRange refuses them,
    which are its own.
    """
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    setting = ", or set the resources of type hotplug-disk in supportContainerResources of KubeVirt"
    if kubevirt is not None and is_managed(kubevirt):  # HyperConverged has no such field
        setting += " by HyperConverged's annotation kubevirt.kubevirt.io/jsonpatch"
    return f"raise that limit in the LimitRange{setting if has_release(cluster, _SETTABLE) else ''}"


_SETTABLE: Final = Version(1, 0)
"""The first release with ``supportContainerResources``."""


def refuses_attachment(vmi: Object, cluster: Cluster) -> tuple[Object, str] | None:
    """Return the LimitRange that refuses the pods which attach volumes to a VMI, and why; None:
    none does, or not known.
    """
    try:
        attachment = migration_demand.demand(vmi, cluster).attachment
    except Unseen:
        return None
    if attachment is None:
        return None
    for found in limit_ranges.of_namespace(cluster, vms.namespace_of(vmi)):
        if refused := limit_ranges.refusal(attachment, [found]):
            return found, refused.partition(": container hotplug-disk: ")[2] or refused
    return None


def lacks_for(quota: Object, vmi: Object, cluster: Cluster) -> Mapping[str, int | None]:
    """Return how much of each resource a quota lacks for a migration of a VMI.

    Nothing while it migrates: its second pod is counted. KubeVirt repeats what a quota refuses, so
    the second pods of the migrations that run, which leave one pod each, leave room.

    Raises:
        Unseen: see ``lacks``.
    """
    pods, namespace = launchers(cluster), vms.namespace_of(vmi)
    if len(pods.by_vmi.get((namespace, vmi.name), ())) > 1:
        return {}
    leaving = _leaving(quota, namespace, cluster)
    found = lacks(quota, migration_demand.demand(vmi, cluster), leaving)
    if found and (unseen := pods.unseen or unlisted(cluster, VMI)):
        raise Unseen(unseen)
    raised = _scaled(quota, vmi, cluster) if found else ()
    return {name: lack for name, lack in found.items() if lack is None or name not in raised}


def _leaving(quota: Object, namespace: str, cluster: Cluster) -> Mapping[str, int]:
    second = entry(cluster, _second_pods, namespace) or ()
    return _usage((pod for own, pod in second if quota_scopes.counts_pods_of(quota, own)), 0)


def _second_pods(cluster: Cluster) -> Mapping[str, Sequence[tuple[str, PodSize]]]:
    """Return by namespace the second pods of the VMIs that migrate, each with the priority class of
    its VMI."""
    found: dict[str, list[tuple[str, PodSize]]] = {}
    for (namespace, name), pods in cluster.cached(by_vmi).items():
        vmi = find(cluster, VMI, namespace, name) if len(pods) > 1 else None
        if vmi is not None:
            priority = vmi.at("spec", "priorityClassName").text or ""
            sizes = ((priority, pod_size.read(pod["spec"])) for pod in pods[1:])
            found.setdefault(namespace, []).extend(sizes)
    return found


def _scaled(quota: Object, vmi: Object, cluster: Cluster) -> Collection[str]:
    """Return the limits that Harvester raises in a quota of Rancher for each migration of a VMI.

    By those of the VMI; it lowers them when the migration has ended (harvester/harvester:
    pkg/controller/master/migration/vmim_controller.go#scaleResourceQuotaWithVMI,
    pkg/util/resourcequota/calculator.go#CalculateScaleResourceQuotaWithVMI).

    Raises:
        Unseen: it is not known whether this is Harvester.
    """
    if not quota_writers.is_of_rancher(quota) or lost_surcharges.is_unscaled(quota):
        return ()
    if quota.annotation(lost_surcharges.surcharge_key(vmi)).present:
        return ()  # it has raised them, and Rancher may have written them back since
    if not has_harvester(cluster):
        if unseen := unlisted(cluster, NODE):
            raise Unseen(unseen)
        return ()
    limits = vmi.at("spec", "domain", "resources", "limits").map
    return tuple(f"limits.{name}" for name in (CPU, MEMORY) if name in limits)


def missing(lacks: Mapping[str, int | None]) -> list[tuple[str, str]]:
    """Return what a quota lacks in words: the name of the resource, and what is missing."""
    lacking = []
    for name, lack in lacks.items():
        if lack is None:
            side = "limit" if name.startswith("limits.") else "request"
            lacking.append((name, f"a {side} of each container is missing"))
        else:
            lacking.append((name, f"{show(_resource(name), lack)} missing"))
    return lacking


def lacks(
    quota: Object, demand: Demand, leaving: Mapping[str, int] = MappingProxyType({})
) -> Mapping[str, int | None]:
    """Return how much of each resource a quota lacks for a migration, once pods have left.

    None: a container does not set the resource.

    A quota on CPU or memory refuses a pod with a container that does not set it. One with scopes
    counts pods alone.

    Raises:
        Unseen: it lacks nothing as far as known, but does not say how much of a resource is used.
            The API server refuses pods then, until the quota has been counted
            (controller.go#hasUsageStats).
    """
    created = ((demand.launcher, demand.priority_class), (demand.attachment, ""))
    pods = [
        pod
        for pod, priority_class in created
        if pod is not None and quota_scopes.counts_pods_of(quota, priority_class)
    ]
    used = _used(quota)
    scoped = quota.at("spec", "scopes").present or quota.at("spec", "scopeSelector").present
    counted = _usage(pods, 0 if scoped else demand.state_bytes)
    found: dict[str, int | None] = {}
    uncounted = []
    for name, limit in hard_limits(quota).items():
        lack = used.get(name, 0) - leaving.get(name, 0) + counted.get(name, 0) - limit
        if not all(_is_set(name, pod) for pod in pods):
            found[name] = None
        elif counted.get(name, 0) > 0 and lack > 0:
            found[name] = lack
        elif counted.get(name, 0) > 0 and name not in used:
            uncounted.append(name)
    if uncounted and not found:
        raise Unseen(f"how much {uncounted[0]} ResourceQuota {quota.full_name} has counted")
    return found


def hard_limits(quota: Object) -> Mapping[str, int]:
    """Return the limits that a quota enforces."""
    return _amounts(quota.at("status", "hard").map) or _amounts(quota.at("spec", "hard").map)


def _used(quota: Object) -> Mapping[str, int]:
    """Return what a quota has counted. A quantity that is none counts as unread."""
    found = quota.at("status", "used").map
    return _amounts({name: value for name, value in found.items() if are_quantities({name: value})})


def _is_set(name: str, pod: PodSize) -> bool:
    resource = _resource(name)
    if pod.summed or resource not in (CPU, MEMORY):
        return True
    return all(
        resource in (each.limits if name.startswith("limits.") else each.requests)
        for each in pod.every
    )


def _usage(pods: Iterable[PodSize], state_bytes: int) -> Mapping[str, int]:
    """Return what a quota counts for these pods, and for a claim of this size; 0: no claim."""
    counted: Counter[str] = Counter()
    for pod in pods:
        counted.update(_of_pod(pod.requests, pod.limits))
    if state_bytes:
        counted.update({_CLAIMS: 1, f"count/{_CLAIMS}": 1, _STORAGE: state_bytes})
    return counted


_CLAIMS: Final = "persistentvolumeclaims"
_STORAGE: Final = "requests.storage"
_OF_STATE: Final = (_CLAIMS, _STORAGE)


def _of_pod(requests: Resources, limits: Resources) -> Mapping[str, int]:
    counted = {"pods": 1, "count/pods": 1}
    for name, value in requests.items():
        counted[f"requests.{name}"] = value
        if name in _PLAIN or name.startswith("hugepages-"):
            counted[name] = value
    return counted | {f"limits.{name}": value for name, value in limits.items()}


def shortages(
    quota: Object, running: Iterable[PodSize], second: PodSize | None
) -> Iterator[tuple[str, int, bool]]:
    """Yield what a quota without usage refuses if these pods run at once,
    and then a second one of a VM starts.

    Only a quota that counts every pod is judged. For a resource: its name, the missing amount, and
    whether the pods themselves do not fit.
    """
    if quota.at("spec", "scopes").present or quota.at("spec", "scopeSelector").present:
        return
    used = _usage(running, 0)
    more = _of_pod(second.requests, second.limits) if second else {}
    for name, limit in _amounts(quota.at("spec", "hard").map).items():
        lack = used.get(name, 0) - limit
        if lack > 0:
            yield name, lack, True
        elif more.get(name, 0) > 0 and lack + more[name] > 0:
            yield name, lack + more[name], False


def in_words(name: str, amount: int) -> str:
    """Return an amount of what a quota counts under this name."""
    return show(_resource(name), amount)


def _amounts(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {name: amount(_resource(name), value) for name, value in quantities.items()}


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")
