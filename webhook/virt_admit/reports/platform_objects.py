"""What the objects of the platform under the VMs report, without applications beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import ReportedProblem, WholeCluster
from virt_admit.model.kubernetes import kinds, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    API_SERVICE,
    DAEMON_SET,
    LONGHORN_VOLUME,
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")
READS: Final[Reads] = {
    API_SERVICE: ("spec.service",),
    DAEMON_SET: (),
    LONGHORN_VOLUME: ("status.conditions", "status.robustness"),
    MUTATING_CONFIGURATION: ("webhooks",),
    VALIDATING_CONFIGURATION: ("webhooks",),
}
_UPDATERS: Final = re.compile(
    r"^(.*\.)?(openshift\.io|operators\.coreos\.com|cattle\.io|harvesterhci\.io|cluster\.x-k8s\.io|"
    r"kubevirt\.io)$"
)
"""The API groups of what updates nodes, KubeVirt and the operators of VMs."""
_HOSTED: Final = re.compile(r"^hypershift\.")
"""Reports on hosted clusters, whose nodes are VMs of this one."""


def reporting(cluster: WholeCluster, said: Collection[str]) -> tuple[ReportedProblem, ...]:
    """Return what objects of the platform have reported as wrong for long, the newest first.

    ``said``: the texts that stand beside it. Objects that they name are left out.
    """
    names = frozenset(name for text in said for name in _NAME.findall(text))
    return reported.of_cluster(
        cluster, said, lambda obj: obj.name not in names and _is_of_platform(obj, cluster)
    )


def _is_of_platform(obj: Object, cluster: Cluster) -> bool:
    """Return whether an object belongs to the platform: an updater has its kind, it has no
    namespace, or it is in one where the platform runs.

    VMIs, their pods and volumes that are rebuilt do not: a drain judges each of them.
    """
    if _HOSTED.search(obj.group) or obj.kind == VMI.kind or obj.owned_by(VMI.kind):
        return False
    if _is_rebuilt(obj):
        return False
    return (
        not obj.namespace
        or bool(_UPDATERS.search(obj.group))
        or obj.namespace in cluster.cached(_namespaces)
    )


def _is_rebuilt(obj: Object) -> bool:
    """Return whether a volume of Longhorn lacks a copy which a node can take: the migration of its
    VM, or the drain of the node with its last healthy copy, waits for that.
    """
    if kinds.of(obj) != LONGHORN_VOLUME or obj.at("status", "robustness").text != "degraded":
        return False
    return obj.condition("Scheduled")["status"].text != "False"


def _namespaces(cluster: Cluster) -> frozenset[str]:
    """Return the namespaces of the agents of nodes, and of what the API server asks: applications
    have neither.
    """
    return frozenset(
        (*(each.namespace for each in cluster.known(DAEMON_SET)), *_answering(cluster))
    )


def _answering(cluster: Cluster) -> Iterator[str]:
    """Yield the namespaces of webhooks and of further API servers."""
    for kind in (VALIDATING_CONFIGURATION, MUTATING_CONFIGURATION):
        for configuration in cluster.known(kind):
            asked = map(webhook_requests.asked, configuration["webhooks"].items())
            yield from (namespace for namespace, _ in filter(None, asked))
    for service in cluster.known(API_SERVICE):
        if namespace := service.at("spec", "service", "namespace").text:
            yield namespace
