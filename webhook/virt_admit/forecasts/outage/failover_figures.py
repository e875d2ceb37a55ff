"""The failover that is left, as figures: which nodes and zones may be lost,
and the VMs that would not come back.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.outage import loss, outages, time_parts
from virt_admit.forecasts.outage.outages import Outage, Question
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.start_capacity import host_sums
from virt_admit.forecasts.outage.time_parts import Seconds
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubevirt.instances import vmis


class FailoverCause(enum.StrEnum):
    """Why a VM has no failover."""

    NO_CHECK = "nobody"
    ROOM = "room"
    BOUND = "bound"
    STRATEGY = "strategy"
    OWNER = "owner"


_CAUSES: Final = {
    LossOutcome.NEVER: FailoverCause.NO_CHECK,
    LossOutcome.ROOM: FailoverCause.ROOM,
    LossOutcome.NODE: FailoverCause.BOUND,
    LossOutcome.OFF: FailoverCause.STRATEGY,
    LossOutcome.LOST: FailoverCause.OWNER,
}


@dataclass(frozen=True)
class FailoverFigures:
    """What a cluster survives, as of one moment."""

    nodes: Mapping[str, bool | None]
    """Whether the cluster survives the loss of each node."""
    reasons: Mapping[str, str]
    """Why it does not survive the loss of a node, or why that is not known."""
    zones: Mapping[str, bool | None]
    """The same for each zone; empty: there are not two."""
    capacity: Mapping[str, int]
    """What can start at most with one node lost, by resource; negative: short. Empty: not known."""
    without: Mapping[FailoverCause, int]
    """VMs that do not restart after the loss of their node, by cause. Empty: not known."""
    zone_vms: Mapping[str, int]
    """VMs that do not restart after the loss of their zone. Empty: not known, or not two zones."""
    seconds: Seconds | None
    """Until the last VM restarts after the loss that takes longest. None: no VM restarts."""
    spare_nodes: int | None
    largest: int | None
    """The memory of the largest VM that finds a node now, in bytes. None: not known."""


def figures(cluster: Cluster) -> FailoverFigures:
    """Return what a cluster survives: the loss of each node and of each zone is rehearsed."""
    names = sorted({*loss.every_node(cluster)[0], *vmis.occupied(cluster)})
    found = {name: outages.outage((name,), cluster) for name in names}
    zones = _zones(cluster)
    counted = next(more_may_exist(cluster, VMI), None) is None
    amounts = outages.capacity(Question(worst=1), (), cluster)
    known = {resource: amount for resource, amount in amounts.items() if amount is not None}
    sums = host_sums(cluster) if known else None
    return FailoverFigures(
        nodes={name: one.survives for name, one in found.items()},
        reasons={name: one.because[0] for name, one in found.items() if one.because},
        zones={zone: one.survives for zone, one in zones.items()},
        capacity=known,
        without=_without(found.values()) if counted else {},
        zone_vms={zone: sum(_without([one]).values()) for zone, one in zones.items()}
        if counted
        else {},
        seconds=max((one.slowest for one in found.values()), key=time_parts.length, default=None),
        spare_nodes=sums.spare_nodes if sums is not None else None,
        largest=sums.largest if sums is not None else None,
    )


def _zones(cluster: Cluster) -> dict[str, Outage]:
    every = tuple(loss.zones(cluster, loss.ZONE))
    if len(every) < 2:
        return {}
    return {zone: outages.outage(loss.of_zone(cluster, zone, loss.ZONE), cluster) for zone in every}


def _without(found: Iterable[Outage]) -> dict[FailoverCause, int]:
    """Return the VMs without failover.

    Where chance decides who waits for room, the least number counts.
    """
    number: Counter[FailoverCause] = Counter()
    for one in found:
        own = Counter(_CAUSES[vm.outcome] for vm in one.vms if vm.outcome in _CAUSES)
        least = max((short.vms for short in one.room.short), default=0)
        own[FailoverCause.ROOM] = max(own[FailoverCause.ROOM], least)
        number += own
    return {cause: number[cause] for cause in FailoverCause}


def not_survived(found: FailoverFigures) -> list[tuple[str, str]]:
    """Return the nodes whose loss the cluster does not certainly survive, each with the reason,
    the worst first.
    """
    named = sorted(
        (verdict is None, name) for name, verdict in found.nodes.items() if verdict is not True
    )
    return [(name, found.reasons.get(name, "")) for _, name in named]
