"""Jobs with which Harvester changes the CPU manager of a node.

Such a Job restarts the kubelet, and is made once: a drain that evicts its pod makes it fail. It
ends within ten minutes. Source: harvester/harvester:pkg/controller/master/node/
cpu_manager_controller.go (backoffLimit 0, CPUManagerJobTimeoutInSec, the statuses).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import JOB, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut

_STATUS: Final = "harvesterhci.io/cpu-manager-update-status"
_NAMESPACE: Final = "harvester-system"
READS: Final[Reads] = union(
    clock.READS, {NODE: (f"metadata.annotations.{_STATUS}",), JOB: CONDITIONS}
)
_ASKED: Final = "a Job that Harvester makes for it"
_POLICIES: Final = ("none", "static")
"""Harvester makes no Job for another one, and leaves the status as it is."""
_LONGEST: Final = timedelta(minutes=15)
"""A Job that runs for longer has lost its controller."""


def of_node(node: Object, cluster: Cluster) -> str:
    """Return the Job that changes the CPU manager of a node now, as ``Job NAME``; empty: none does,
    it has ended, or should have.
    """
    status = _status(node)
    name = status.get("jobName")
    if status.get("status") not in ("requested", "running"):
        return ""
    if not isinstance(name, str) or not name:
        return _ASKED if status.get("policy") in _POLICIES else ""
    job = find(cluster, JOB, _NAMESPACE, name)
    if job is None:
        return f"Job {cut(name, 80)}" if unlisted(cluster, JOB) else ""
    ended = job.is_true("Complete") or job.is_true("Failed")
    return (
        "" if ended or clock.has_lasted(job.created, _LONGEST, cluster) else f"Job {cut(name, 80)}"
    )


def _status(node: Object) -> dict[str, Any]:
    found = json_codec.embedded(node.annotations.get(_STATUS))
    return found if isinstance(found, dict) else {}


def busy(cluster: Cluster) -> dict[str, str]:
    """Return these Jobs by the names of their nodes."""
    found = ((node.name, of_node(node, cluster)) for node in cluster.known(NODE))
    return {name: job for name, job in found if job}


def note(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that the drain of a node makes such a Job fail."""
    if job := of_node(node, cluster):
        yield (
            f"{job[:1].upper()}{job[1:]} changes the CPU manager of this node, which ends within "
            "10 minutes. A drain before that evicts its pod, and the Job is not tried again: drain "
            "the node afterwards."
        )


def rests_on(cluster: Cluster) -> Iterator[str]:
    """Yield what ends before the update of a node begins."""
    for node, job in sorted(busy(cluster).items()):
        yield f"{job}, which changes the CPU manager of {node}, has ended before {node} is drained"
