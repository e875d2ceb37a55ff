"""How many migrations KubeVirt runs at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HCO
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import configuration, migration_limits
from virt_admit.model.kubevirt.settings.migration_limits import (
    PER_CLUSTER,
    PER_CLUSTER_UNSAID,
    PER_NODE,
    PER_NODE_UNSAID,
)
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

_PER_NODE_HCO: Final = 1
"""The default in HyperConverged's schema."""


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """The limits that KubeVirt's controllers check before they create a target pod."""

    cluster: int
    """``parallelMigrationsPerCluster``."""
    node: int
    """``parallelOutboundMigrationsPerNode``."""
    source: str
    """Where the limits come from, for people."""
    owner: tuple[str, str] = ("kubevirt", "kubevirt")
    """Namespace and name of the object that sets them."""


def limits(cluster: Cluster) -> MigrationLimits:
    """Return the limits in force. KubeVirt's object counts, which HyperConverged writes.

    Raises:
        Unseen: neither KubeVirt nor HyperConverged can be read.
    """
    unseen: Unseen | None = None
    for read, node in (
        (configuration.kubevirt, PER_NODE_UNSAID),
        (configuration.hyperconverged, _PER_NODE_HCO),
    ):
        try:
            found = read(cluster)
        except Unseen as blind:
            unseen = unseen or blind
            continue
        if found is not None:
            return _of(found, node)
    if unseen is not None:
        raise unseen
    return MigrationLimits(PER_CLUSTER_UNSAID, PER_NODE_UNSAID, "KubeVirt's defaults")


def none_starts(cluster: Cluster) -> Problem | None:
    """Return why KubeVirt starts no migration at all: a limit below 1. None: it does.

    Raises:
        Unseen: see ``limits``.
    """
    found = limits(cluster)
    for name, limit in ((PER_CLUSTER, found.cluster), (PER_NODE, found.node)):
        if limit < 1:
            return Problem(
                f"{name} is {limit} ({found.source}), so no migration starts",
                f"set {name} to at least 1",
                id=_owner(found, cluster),
            )
    return None


def _owner(found: MigrationLimits, cluster: Cluster) -> ProblemId:
    """Return the problem of the object that has the limits: HyperConverged where it exists."""
    written = configuration.known_or_none(configuration.hyperconverged, cluster)
    owner = (written.namespace, written.name) if written is not None else found.owner
    return ProblemId(ProblemCause.NO_MIGRATION, *owner)


def _of(obj: Object, node_default: int) -> MigrationLimits:
    block = migration_limits.block(obj)
    per_cluster, per_node = block[PER_CLUSTER].integer, block[PER_NODE].integer
    name = "HyperConverged" if obj.kind == HCO.kind else "KubeVirt"
    return MigrationLimits(
        PER_CLUSTER_UNSAID if per_cluster is None else per_cluster,
        node_default if per_node is None else per_node,
        f"limits of {name} {obj.name}",
        (obj.namespace, obj.name),
    )
