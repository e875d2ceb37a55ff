"""Pods that a ResourceQuota refuses, as their containers set no requests or limits.

A quota of CPU or memory demands them of each container, also of those that only start first, unless
a LimitRange of the namespace has a default. What makes such a pod tries again without an end; of a
Job only events say so, which the API server forgets after hours. Sources:
kubernetes/kubernetes:pkg/quota/v1/evaluator/core/pods.go#Constraints #podMatchesScopeFunc,
:pkg/apis/core/v1/defaults.go#SetDefaults_LimitRangeItem, :pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import JOB, LIMIT_RANGE, RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import names

_TEMPLATE: Final = "spec.template.spec"
READS: Final[Reads] = {
    JOB: (
        *("metadata.creationTimestamp", "metadata.deletionTimestamp"),
        *("spec.managedBy", "spec.parallelism", "spec.suspend", *CONDITIONS),
        *("status.active", "status.failed", "status.succeeded"),
        *(f"{_TEMPLATE}.activeDeadlineSeconds", f"{_TEMPLATE}.resources"),
        *(
            f"{_TEMPLATE}.{part}.{field}"
            for part in ("containers", "initContainers")
            for field in ("name", "resources")
        ),
    ),
    LIMIT_RANGE: ("spec",),
    RESOURCE_QUOTA: ("spec", "status.hard"),
}
_DEMANDED: Final = tuple(
    f"{side}{resource}" for side in ("", "requests.", "limits.") for resource in ("cpu", "memory")
)
"""What a quota can demand of each container."""
_ALL: Final = "requests and limits of CPU and memory"
_COUNTS: Final = ("active", "succeeded", "failed")
_CONTROLLER: Final = "kubernetes.io/job-controller"
"""What makes the pods of a Job here. Kueue lets another cluster do so
(kubernetes/kubernetes:pkg/apis/batch/types.go#JobSpec.ManagedBy)."""
_DEMANDS: Final = ": must specify "
SAID: Final = re.compile(rf"failed quota: ([\w.-]{{1,253}}){_DEMANDS}([\w./,;: -]{{1,400}})")
_REFUSES: Final = re.compile(
    rf"{SAID.pattern}|ResourceQuota ([\w.-]{{1,253}}) of \S+ demands ([^,]+)"
)
_MAKERS: Final = frozenset(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", JOB.kind))
"""Kinds whose pods are in their own namespace, and are made of their template."""


class DemandingQuota(NamedTuple):
    """A quota that refuses the pods of an object."""

    namespace: str
    quota: str
    missing: tuple[str, ...]
    """What it demands and the containers do not set: ``limits.cpu``."""
    containers: tuple[str, ...]

    @property
    def words(self) -> str:
        """The whole reason, as a main clause."""
        does = "do" if len(self.containers) > 1 else "does"
        return (
            f"ResourceQuota {self.quota} of {self.namespace} demands {self._demanded}, which "
            f"{_and(self.containers)} {does} not set, and no LimitRange there has defaults"
        )

    @property
    def brief(self) -> str:
        """The reason without the names of the containers."""
        return (
            f"ResourceQuota {self.quota} demands {self._demanded}, which its containers do not "
            f"set, and {self.namespace} has no LimitRange with defaults"
        )

    @property
    def _demanded(self) -> str:
        return _ALL if {*_DEMANDED[2:]} <= {*self.missing} else _and(self.missing)


def of_job(job: Object, cluster: Cluster) -> DemandingQuota | None:
    """Return the quota that keeps a Job from its first pod; None: none is known to, or the Job has
    or needs no pod.
    """
    spec, status = job["spec"], job["status"]
    ended = job.is_true("Complete") or job.is_true("Failed") or job.deleted
    idle = spec["suspend"].boolean is True or spec["parallelism"].integer == 0
    elsewhere = spec["managedBy"].text not in (None, _CONTROLLER)
    if ended or idle or elsewhere or any(status[each].integer for each in _COUNTS):
        return None
    said = events.last_warning(job, "FailedCreate", None, cluster)
    if unlisted(cluster, LIMIT_RANGE) or (said and _DEMANDS not in said):
        return None  # a webhook may set what the quota demands, and the pod lacks something else
    template = spec.at("template", "spec")
    defaults = _defaults(cluster.known(LIMIT_RANGE, job.namespace))
    found = (
        _refusing(quota, template, defaults)
        for quota in cluster.known(RESOURCE_QUOTA, job.namespace)
    )
    return next(filter(None, found), None)


def missing(listed: str) -> tuple[str, ...]:
    """Return what a quota demands, from the words of the API server.

    ``limits.cpu for: compute,sidecar; limits.memory for: compute``; of older releases
    ``limits.cpu,limits.memory``.
    """
    parts = (each.partition(" for: ")[0].split(",") for each in listed.split("; "))
    return tuple(dict.fromkeys(name.strip() for part in parts for name in part if name.strip()))


def hint(obj: Object, said: str) -> str:
    """Return what to do about the pods of a workload that reports such a refusal, if any.

    KubeVirt copies a default limit into VMs that are started without a limit.
    """
    found = _REFUSES.search(said) if obj.kind in _MAKERS else None
    if found is None:
        return ""
    shown = kubectl("describe", RESOURCE_QUOTA, found[1] or found[3], obj.namespace)
    sides = "requests and limits" if "limits" in (found[2] or found[4]) else "requests"
    ways = f"Give namespace {obj.namespace} a LimitRange with default {sides} as large as VMs need"
    return f". {typed(ways, shown, 'or set them in what makes these pods')}"


def _and(items: Sequence[str]) -> str:
    return " and ".join(items) if len(items) == _PAIR else names(items, 60)


_PAIR: Final = 2


def _remedy(namespace: str, quota: str) -> str:
    shown = kubectl("describe", RESOURCE_QUOTA, quota, namespace)
    ways = f"Give namespace {namespace} a LimitRange with default requests and limits"
    return typed(ways, shown, "or set them in what makes these pods")


def _refusing(quota: Object, template: Field, defaults: frozenset[str]) -> DemandingQuota | None:
    """Return a quota that refuses a pod of a template; None: it does not, or counts other pods."""
    hard = quota.at("status", "hard").map or quota.at("spec", "hard").map
    demanded = [each for each in _DEMANDED if each in hard]
    lacking = {
        each["name"].text or "?": [name for name in demanded if name not in given]
        for each in _containers(template)
        for given in (_set_by(each) | defaults,)
    }
    lacking = {name: some for name, some in lacking.items() if some}
    if not lacking or template["resources"].present or not _counts(quota, template, defaults):
        return None
    listed = tuple(name for name in demanded if any(name in some for some in lacking.values()))
    return DemandingQuota(quota.namespace, quota.name, listed, tuple(lacking))


def _containers(template: Field) -> Iterator[Field]:
    yield from template["containers"].items()
    yield from template["initContainers"].items()


def _set_by(container: Field) -> frozenset[str]:
    """Return what a container sets, under the names of a quota: a limit is a request as well."""
    limits, requests = (container.at("resources", each).map for each in ("limits", "requests"))
    return _named((*requests, *limits), tuple(limits))


def _defaults(ranges: Sequence[Object]) -> frozenset[str]:
    """Return what LimitRanges give a container that sets nothing, under the names of a quota."""
    items = [
        item
        for each in ranges
        for item in each.at("spec", "limits").items()
        if item["type"].text == "Container"
    ]
    limits = tuple(name for item in items for key in ("default", "max") for name in item[key].map)
    asked = (name for item in items for key in ("defaultRequest", "min") for name in item[key].map)
    return _named((*asked, *limits), limits)


def _named(requests: Sequence[str], limits: Sequence[str]) -> frozenset[str]:
    asked = (f"{side}{name}" for name in requests for side in ("", "requests."))
    return frozenset((*asked, *(f"limits.{name}" for name in limits)))


def _counts(quota: Object, template: Field, defaults: frozenset[str]) -> bool:
    """Return whether a quota is known to count pods of a template."""
    spec = quota["spec"]
    scopes = [each.text for each in spec["scopes"].items()]
    for each in spec.at("scopeSelector", "matchExpressions").items():
        exists = each["operator"].text == "Exists"
        scopes.append(each["scopeName"].text if exists else None)
    limited = template["activeDeadlineSeconds"].integer is not None
    best_effort = not any(
        (_set_by(each) | defaults) & {*_DEMANDED} for each in _containers(template)
    )
    holds = {
        "Terminating": limited,
        "NotTerminating": not limited,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }
    return all(holds.get(scope or "", False) for scope in scopes)
