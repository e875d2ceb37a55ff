"""Whether the limit of a health check lets it act after the loss of a whole zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.int_or_percent import LimitKind, allowed_unhealthy
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, NODE
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.remediation import check_scope, health_checks, machines
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.scheduler.ledger import ZONE

READS: Final[Reads] = union(
    machines.SELECT_READS,
    {
        NODE: ("metadata.labels",),
        MACHINE: ("status.nodeRef",),
        CAPI_MACHINE: ("status.nodeRef", "spec.failureDomain"),
    },
)
_MACHINE_ZONE: Final = "machine.openshift.io/zone"
"""Label of a Machine (openshift/machine-api-operator: pkg/controller/machine)."""


class RefusedZone(NamedTuple):
    """A zone whose loss a health check does not remediate."""

    zone: str
    selected: int
    """Selected nodes or machines in the zone."""
    total: int
    allowed: int
    """The unhealthy ones with which it still acts; with a range, its upper end."""


def refused_zone(obj: Object, cluster: Cluster) -> RefusedZone | None:
    """Return the largest zone whose loss makes a health check refuse every remediation; None:
    there is none.

    A check that selects a single zone, or control-plane nodes alone, is not about a zone loss.

    Raises:
        Unseen: the selected machines or the nodes cannot be read.
    """
    check = health_checks.view(obj)
    limit = check.known_limit()
    if limit is None or check.deliberate:
        return None
    selection = check_scope.selected(obj, cluster)
    selection.demand_all()
    total = len(selection)
    zones = _zones(check, selection.objects, cluster)
    if len(zones) < 2 or sum(zones.values()) != total:
        return None
    zone, number = max(zones.items(), key=lambda item: (item[1], item[0]))
    allowed = _allowed(check, total)
    if allowed is None or allowed < 1 or number <= allowed:
        return None
    return RefusedZone(zone, number, total, allowed)


def _allowed(check: HealthCheck, total: int) -> int | None:
    """Return the largest number of unhealthy objects with which a check acts."""
    if check.range.present:
        try:
            return check.read_range()[1]
        except ValueError:
            return None
    limit = check.known_limit()
    return None if limit is None else allowed_unhealthy(limit, total, check.limit_of)


def _zones(check: HealthCheck, objects: tuple[Object, ...], cluster: Cluster) -> Mapping[str, int]:
    """Return the number of selected objects by zone; none if they are all control-plane nodes."""
    found: dict[str, int] = {}
    workers = False
    for zone, is_worker in _placed(check, objects, cluster):
        workers = workers or is_worker
        if zone:
            found[zone] = found.get(zone, 0) + 1
    return found if workers else {}


def _placed(
    check: HealthCheck, objects: tuple[Object, ...], cluster: Cluster
) -> Iterator[tuple[str, bool]]:
    """Yield zone and role of each selected object, by its node where there is one."""
    for obj in objects:
        if check.kind is kinds.NHC:
            yield str(obj.labels.get(ZONE) or ""), not is_control_plane(obj)
            continue
        name = machines.node_name(obj)
        node = cluster.get(NODE, "", name) if name else None
        domain = obj.at("spec", "failureDomain").text if check.kind is kinds.CAPI_MHC else None
        own = domain or obj.labels.get(_MACHINE_ZONE) or ""
        if node is None:
            yield str(own), True
        else:
            yield str(node.labels.get(ZONE) or own), not is_control_plane(node)


def least_limit(check: HealthCheck, refused: RefusedZone) -> int:
    """Return the limit, as a number, with which the check acts after the loss of the zone."""
    return (
        refused.total - refused.selected
        if check.limit_of is LimitKind.NODE_MIN_HEALTHY
        else refused.selected
    )
