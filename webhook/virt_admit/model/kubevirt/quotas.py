"""LimitRanges and quotas that refuse the second launcher pod which a migration needs.

While a VMI migrates its namespace holds two launcher pods for it, and the quota counts both. Namespaces in which the
application-aware quota operator counts VMs have no such ResourceQuota on pods. Sources: k8s.io/apiserver
pkg/admission/plugin/resourcequota/controller.go#CheckRequest; k8s.io/kubernetes pkg/quota/v1/evaluator/core/pods.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import RESOURCE_QUOTA
from virt_admit.model.kubevirt import limit_ranges, room, vms
from virt_admit.model.messages import Problem
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import union
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.model.scheduler.resources import CPU, MEMORY, Resources, amounts, show

READS: Final = union(limit_ranges.READS, {RESOURCE_QUOTA: ("spec", "status")})

_NOT_OF_LAUNCHERS: Final = frozenset(("Terminating", "BestEffort"))
"""Scopes that leave out launcher pods: these have no deadline, and they request CPU and memory."""
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")


def refusal(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a LimitRange or a quota refuses the target pod of a migration; None: none does, as far as known."""
    namespace = vms.namespace_of(vmi)
    ranges = limit_ranges.of_namespace(cluster, namespace)
    found = [quota for quota in cluster.known(RESOURCE_QUOTA, namespace) if covers_launchers(quota)]
    if not found and not ranges:
        return None
    pod = limit_ranges.defaulted(room.new_pod(vmi, cluster), ranges)
    refused = limit_ranges.refusal(pod, ranges)
    if refused:
        return Problem(f"{refused}: a second pod is refused", "change the LimitRange, or what the VM requests")
    for quota in found:
        for name, lack in missing(quota, pod):
            reason = f"ResourceQuota {quota.name} leaves no room for a second pod: {name}: {lack}"
            return Problem(reason, "raise the quota, or use an ApplicationAwareResourceQuota")
    return None


def admitted(vmi: Object, cluster: Cluster) -> PodSize:
    """Return the size of a second launcher pod of a VMI, with the defaults of the LimitRanges of its namespace."""
    ranges = limit_ranges.of_namespace(cluster, vms.namespace_of(vmi))
    return limit_ranges.defaulted(room.new_pod(vmi, cluster), ranges)


def covers_launchers(quota: Object) -> bool:
    """Return whether a quota counts launcher pods. Quotas for some priority classes are left out."""
    scopes = {item.text for item in quota.at("spec", "scopes").items()}
    expressions = list(quota.at("spec", "scopeSelector", "matchExpressions").items())
    scopes |= {item["scopeName"].text for item in expressions}
    return not (scopes & _NOT_OF_LAUNCHERS or scopes & {"PriorityClass", "CrossNamespacePodAffinity"})


def missing(quota: Object, pod: PodSize) -> list[tuple[str, str]]:
    """Return what of a quota refuses one more pod: the name of the resource, and what is missing.

    A quota on CPU or memory refuses a pod with a container that does not set it.
    """
    hard = _amounts(quota.at("status", "hard")) or _amounts(quota.at("spec", "hard"))
    used = _amounts(quota.at("status", "used"))
    counted = _usage(pod.requests, pod.limits)
    lacking = []
    for name, limit in hard.items():
        lack = used.get(name, 0) + counted.get(name, 0) - limit
        if not _is_set(name, pod):
            side = "limit" if name.startswith("limits.") else "request"
            lacking.append((name, f"a {side} of each container is missing"))
        elif counted.get(name, 0) > 0 and lack > 0:
            lacking.append((name, f"{show(_resource(name), lack)} missing"))
    return lacking


def _is_set(name: str, pod: PodSize) -> bool:
    resource = _resource(name)
    if pod.summed or resource not in (CPU, MEMORY):
        return True
    return all(resource in (each.limits if name.startswith("limits.") else each.requests) for each in pod.every)


def _usage(requests: Resources, limits: Resources) -> Mapping[str, int]:
    """Return what a quota counts for one more pod."""
    counted = {"pods": 1, "count/pods": 1}
    for name, value in requests.items():
        counted[f"requests.{name}"] = value
        if name in _PLAIN or name.startswith("hugepages-"):
            counted[name] = value
    counted |= {f"limits.{name}": value for name, value in limits.items()}
    return counted


def _amounts(quantities: Field) -> dict[str, int]:
    found = quantities.map
    return {name: amounts({_resource(name): value})[_resource(name)] for name, value in found.items()}


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")
