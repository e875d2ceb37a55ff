"""An upgrade compared with the rehearsal that was made before it: ahead, behind, by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.kubernetes.clock import LONGEST
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, PoolUpdate


@dataclass(frozen=True, slots=True)
class PlannedUpgrade:
    """When each node of a rehearsal was back, in seconds from its begin."""

    ends: tuple[Range, ...]

    @classmethod
    def of_report(cls, data: Any) -> PlannedUpgrade:
        """Return the plan in the JSON of an earlier ``virt-admit upgrade``.

        Raises:
            ValueError: it is something else, or its nodes were not all updated.
        """
        waves = data.get("waves") if isinstance(data, dict) and data.get("version") == 1 else None
        if not isinstance(waves, list) or "by" not in data:
            raise ValueError("it is not the JSON of virt-admit upgrade (-o json)")
        ends = [end for wave in waves for end in _ends(wave)]
        held = data.get("operators") and not (data.get("stops") or data.get("unseen"))
        if not ends or not (data.get("possible") is True or held):
            raise ValueError("it has no complete rehearsal: its upgrade was not possible")
        return cls(tuple(ends))


def _ends(wave: Any) -> list[Range]:
    nodes, end = (wave.get("nodes"), wave.get("end")) if isinstance(wave, dict) else (None, None)
    low, high = (end.get("low"), end.get("high")) if isinstance(end, dict) else (None, None)
    if not (isinstance(nodes, list) and _is_seconds(low) and _is_seconds(high)):
        raise ValueError("one of its waves is not valid")
    return [Range(low, high)] * len(nodes)


def _is_seconds(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LONGEST


@dataclass(frozen=True, slots=True)
class Pace:
    """How an upgrade compares with its plan. Both are 0 if it is as planned."""

    ahead: int
    """Seconds."""
    behind: int
    """Seconds."""


def pace(planned: PlannedUpgrade, done: int, elapsed: int) -> Pace:
    """Return how an upgrade compares with its plan.

    Args:
        planned: the plan.
        done: the number of nodes that are done.
        elapsed: the seconds since the upgrade began.
    """
    latest = sorted(end.high for end in planned.ends)
    earliest = sorted(end.low for end in planned.ends)
    if done < len(latest) and elapsed > latest[done]:
        return Pace(0, elapsed - latest[done])
    if 0 < done <= len(earliest) and elapsed < earliest[done - 1]:
        return Pace(earliest[done - 1] - elapsed, 0)
    return Pace(0, 0)


def began(pools: Sequence[PoolUpdate]) -> datetime | None:
    """Return when a roll-out that is under way began; None: its objects do not tell."""
    moving = [pool for pool in pools if pool.in_flight]
    found = [pool.began for pool in moving if pool.began is not None]
    if not found:
        found = [
            update.since
            for pool in moving
            for update in pool.nodes.values()
            if update.phase in IN_FLIGHT and update.since is not None
        ]
    return min(found, default=None)
