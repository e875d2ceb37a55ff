"""Quotas that refuse the second launcher pod which a migration needs.

While a VMI migrates its namespace holds two launcher pods for it, and the quota counts both. Namespaces in which the
application-aware quota operator counts VMs have no such ResourceQuota on pods. Sources: k8s.io/apiserver
pkg/admission/plugin/resourcequota/controller.go#CheckRequest; k8s.io/kubernetes pkg/quota/v1/evaluator/core/pods.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import RESOURCE_QUOTA
from virt_admit.model.kubevirt import room, vms
from virt_admit.model.messages import Problem
from virt_admit.model.objects import Field, Object
from virt_admit.model.reads import Reads
from virt_admit.model.scheduler.resources import Resources, amounts, show

READS: Final[Reads] = {RESOURCE_QUOTA: ("spec", "status")}

_NOT_OF_LAUNCHERS: Final = frozenset(("Terminating", "BestEffort"))
"""Scopes that leave out launcher pods: these have no deadline, and they request CPU and memory."""
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")


def refusal(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a quota refuses the target pod of a migration; None: none does, as far as quotas are known."""
    found = [quota for quota in cluster.known(RESOURCE_QUOTA, vms.namespace_of(vmi)) if covers_launchers(quota)]
    if not found:
        return None
    counted = usage(*room.requests_and_limits(vmi, cluster))
    for quota in found:
        for resource, lack in missing(quota, counted):
            reason = f"ResourceQuota {quota.name} leaves no room for a second pod: {resource}: {lack} missing"
            return Problem(reason, "raise the quota, or use an ApplicationAwareResourceQuota")
    return None


def covers_launchers(quota: Object) -> bool:
    """Return whether a quota counts launcher pods. Quotas for some priority classes are left out."""
    scopes = {item.text for item in quota.at("spec", "scopes").items()}
    expressions = list(quota.at("spec", "scopeSelector", "matchExpressions").items())
    scopes |= {item["scopeName"].text for item in expressions}
    return not (scopes & _NOT_OF_LAUNCHERS or scopes & {"PriorityClass", "CrossNamespacePodAffinity"})


def usage(requests: Resources, limits: Resources) -> Mapping[str, int]:
    """Return what a quota counts for one more pod."""
    counted = {"pods": 1, "count/pods": 1}
    for name, value in requests.items():
        counted[f"requests.{name}"] = value
        if name in _PLAIN or name.startswith("hugepages-"):
            counted[name] = value
    counted |= {f"limits.{name}": value for name, value in limits.items()}
    return counted


def missing(quota: Object, usage: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the resources of which a quota has too little for one more pod, each with the missing amount."""
    hard = _amounts(quota.at("status", "hard")) or _amounts(quota.at("spec", "hard"))
    used = _amounts(quota.at("status", "used"))
    lacking = []
    for name, limit in hard.items():
        lack = used.get(name, 0) + usage.get(name, 0) - limit
        if name in usage and usage[name] > 0 and lack > 0:
            lacking.append((name, show(_resource(name), lack)))
    return lacking


def _amounts(quantities: Field) -> dict[str, int]:
    found = quantities.map
    return {name: amounts({_resource(name): value})[_resource(name)] for name, value in found.items()}


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")
