"""How long a drain lasts, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.upgrade.durations import Range

_IN_SECONDS: Final = 120
_IN_MINUTES: Final = 120 * 60


def range_words(length: Range) -> str:
    """Format a range for people: ``6 to 87 s``, ``20 to 90 min``, ``1 h 05 to 3 h 52``."""
    if length.high < _IN_SECONDS:
        return f"{length.low} to {length.high} s" if length.low < length.high else f"{length.high} s"
    first, last = length.low // 60, -(-length.high // 60)
    return f"{first} to {last} min" if length.high < _IN_MINUTES else f"{_hours(first)} to {_hours(last)}"


_STATES: Final[Mapping[str, str]] = {
    State.GONE: "its pods no longer exist",
    State.ENDED: "its pod has ended",
    State.STOPPING: "being stopped",
    State.REFUSED: "its eviction is refused",
    State.EXTERNAL: "another controller moves it",
    State.STALE_MARK: "marked for the evacuation of a node that it has left",
    State.MARKED: "marked for evacuation, without a migration yet",
    State.TWO_PODS: "two of its pods have not ended",
    State.BACKOFF: "waits to migrate again after a failure",
    State.BLOCKED_BY_BACKUP: "its migration waits for a backup",
    State.BLOCKED_BY_VOLUME: "its migration waits for a utility volume",
    State.QUOTA: "a quota refuses its target pod",
    State.QUEUED: "its migration waits for a place",
    State.NO_TARGET: "its migration has no target pod",
    State.UNSCHEDULABLE: "no node takes its target pod",
    State.TARGET_PENDING: "its target pod has not started",
    State.TARGET_NOT_READY: "its target pod is not ready",
    State.PREPARING: "its migration is being prepared",
    State.RUNNING: "migrating",
    State.PAUSED: "migrating, with its guest paused",
    State.POST_COPY: "migrating in post-copy",
    State.ABORTING: "its migration is being cancelled",
    State.ARRIVED: "migrated, but its old pod has not ended",
    State.NOT_CLOSED: "migrated, but its migration is still open",
    State.DECENTRALIZED: "migrates between clusters",
    State.STILL: "no migration is under way",
}
"""Each state in words; ``starting`` is one."""
_FLAGS: Final[Mapping[str, str]] = {
    Flag.LEFTOVER: "its node is not cordoned",
    Flag.TAINTED: "because of a taint",
    Flag.FOREIGN: "no drain asked for it",
    Flag.ARRIVING: "it just arrives",
}


def state_words(state: str, flags: Iterable[str]) -> str:
    """Return what a VM does now, with what is true besides: the words of text for values of JSON."""
    said = ", ".join(_FLAGS.get(flag, flag) for flag in flags)
    return f"{_STATES.get(state, state)}{f' ({said})' if said else ''}"


def _hours(minutes: int) -> str:
    return f"{minutes // 60} h {minutes % 60:02}"
