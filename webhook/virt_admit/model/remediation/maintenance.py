"""NodeMaintenance of the medik8s operator and of its KubeVirt predecessor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, Kind
from virt_admit.model.kubernetes.objects import Field, Object

KINDS: Final[tuple[Kind, ...]] = (NM, NM_KUBEVIRT)


def node(maintenance: Object) -> Field:
    """Return the field with the name of the node to drain."""
    return maintenance.at("spec", "nodeName")


def others(maintenance: Object, cluster: Cluster) -> Iterator[Object | Unseen]:
    """Yield the other maintenances of both groups, and the kinds that could not be read."""
    for kind in KINDS:
        try:
            for other in cluster.list(kind):
                if other.name != maintenance.name or kinds.of(other) is not kinds.of(maintenance):
                    yield other
        except Unseen as unseen:
            yield unseen


class Hang(NamedTuple):
    """Why a maintenance does not complete, as the operator reports it."""

    phase: str
    error: str
    pending: tuple[str, ...]
    """The pods that are left on the node."""


def hang(maintenance: Object) -> Hang | None:
    """Return why a maintenance does not complete; None: it has completed,
    or no eviction has failed so far.

    Source: node-maintenance-operator: api/v1beta1/nodemaintenance_types.go#NodeMaintenanceStatus.
    """
    status = maintenance["status"]
    phase, error = status["phase"].text or "", status["lastError"].text or ""
    if phase != "Failed" and not (phase == "Running" and error):
        return None
    return Hang(
        phase, error, tuple(item.text for item in status["pendingPods"].items() if item.text)
    )
