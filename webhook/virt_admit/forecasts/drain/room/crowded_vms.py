"""VMs that find no room on the other nodes next to the others of their node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain import capacity, vm_outcomes
from virt_admit.forecasts.drain.capacity import Leaving
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.placement.refusals import fenced_nodes
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import ended
from virt_admit.model.scheduler.packing import Packing

TOLD: Final = "there is no room with the others of its node"
_ROOM: Final = "add a node, or free that much on one"


def leaving(forecasts: Sequence[Forecast]) -> list[Leaving]:
    """Return the VMs that need a place elsewhere."""
    return [Leaving(found.vmi, found.target) for found in forecasts if found.needs_room]


def told(forecasts: Sequence[Forecast], packing: Packing, cluster: Cluster) -> Iterator[Forecast]:
    """Yield the forecasts: what migrates alone, but not with the others, says what it lacks.

    ``packing``: what became of those that migrate.
    """
    moving = [found for found in forecasts if found.outcome not in vm_outcomes.SHUT_DOWN]
    lacks = {vmi.full_name: why for vmi, why in capacity.waiting(packing, leaving(moving), cluster)}
    for found in forecasts:
        why = lacks.get(found.vmi.full_name, "")
        if not why or found.outcome is not VmOutcome.MIGRATES or found.remedy:
            yield found
            continue
        fenced = fenced_nodes.first(found.placement.refusals, cluster)
        remedy = _ROOM if fenced is None else typed(fenced.remedy, fenced.command)
        also = f"; {fenced.reason}" if fenced is not None else ""
        alone = found.reason.replace(vm_outcomes.CAN, "it could migrate alone")
        reason = f"{alone}, but {TOLD} ({why}{also})"
        yield replace(found, reason=reason, remedy=remedy)


def waiting(forecasts: Sequence[Forecast], packing: Packing, cluster: Cluster) -> Iterator[str]:
    """Yield which VMs that are shut down start again only after the drain, and why."""
    ends = {found.vmi.full_name for found in forecasts if found.outcome in vm_outcomes.SHUT_DOWN}
    for vmi, why in capacity.waiting(packing, leaving(forecasts), cluster):
        if vmi.full_name in ends:
            here = vmi.at("status", "nodeName").text
            one = " or another VM in its place" * (len(ends) > 1)
            yield ended(
                f"{vmi.full_name}{one} stays Pending until {here} is back or another node has "
                f"room: {why}"
            )
