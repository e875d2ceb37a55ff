"""How long a drain lasts and what becomes of a VM, in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.kubernetes import clock
from virt_admit.model.messages import count

_IN_SECONDS: Final = 120
_IN_MINUTES: Final = 120 * 60


def range_words(length: Range) -> str:
    """Format a range for people: ``6 to 87 s``, ``20 to 90 min``, ``1 h 05 to 3 h 52``."""
    if length.high < _IN_SECONDS:
        low = f"{length.low} to " if length.low < length.high else ""
        return f"{low}{length.high} s"
    first, last = length.low // 60, -(-length.high // 60)
    if length.high < _IN_MINUTES:
        return f"{first} to {last} min"
    return f"{clock.of_minutes(first)} to {clock.of_minutes(last)}"


REMOVED: Final = "is being deleted"


def in_words(outcome: str, *, removed: bool = False) -> str:
    """Return the words of an outcome for people: a VM may be started by hand. JSON has the older
    value.

    ``removed``: whether the VM is being deleted.
    """
    if removed:
        return REMOVED
    return "stays stopped" if outcome == VmOutcome.STOPS else outcome


def of_row(row: Forecast) -> str:
    """Return the words of the outcome of a VM: JSON says of one that starts later, perhaps on its
    own node, that it restarts elsewhere.
    """
    certain = row.outcome is VmOutcome.RESTARTS and row.placement.is_certain
    later = certain and not row.placement.has_candidate
    return LATER if later else in_words(row.outcome, removed=row.removed)


LATER: Final = "restarts later"


def yes(stopped: int) -> str:
    """Return the word of an answer that is yes, by the number of VMs that stop for good."""
    return "Yes, at a cost" if stopped else "Yes"


def cost(stopped: int, drained: int | None = None) -> str:
    """Return the sentence about VMs that stop for good, with a space before; empty: there are
    none.

    ``drained``: how many those are if each node is drained, as an upgrade may not do.
    """
    if drained is None or drained == stopped:
        return f" {count(stopped, 'VM')} would stay stopped." if stopped else ""
    if not stopped:
        return f" A drain of each node would leave {count(drained, 'VM')} stopped, an upgrade none."
    return (
        f" {count(stopped, 'VM')} would stay stopped after an upgrade, {drained} after a drain of "
        f"each node."
    )


_STATES: Final[Mapping[str, str]] = {
    State.GONE: "its pods do not exist any more",
    State.ENDED: "its pod has ended",
    State.STOPPING: "it is being shut down",
    State.STARTING: "it starts",
    State.REFUSED: "its eviction is refused",
    State.EXTERNAL: "it waits for another controller",
    State.STALE_MARK: "it is marked for the drain of a node that it has left",
    State.MARKED: "it is marked for a migration",
    State.TWO_PODS: "two of its pods have not ended",
    State.BACKOFF: "it waits for the next attempt",
    State.BLOCKED_BY_BACKUP: "it waits for the end of a backup",
    State.BLOCKED_BY_VOLUME: "it waits for the end of a utility volume",
    State.QUOTA: "a quota refuses its target pod",
    State.QUEUED: "it waits for a place in the queue of migrations",
    State.NO_TARGET: "it has no target pod",
    State.UNSCHEDULABLE: "no node takes its target pod",
    State.TARGET_PENDING: "its target pod has not started",
    State.TARGET_NOT_READY: "its target pod is not ready",
    State.PREPARING: "its migration is being prepared",
    State.RUNNING: "its memory is being copied",
    State.PAUSED: "its guest is paused for the end of the migration",
    State.POST_COPY: "its migration is in post-copy",
    State.ABORTING: "its migration is being cancelled",
    State.ARRIVED: "it has migrated, and its old pod has not ended",
    State.NOT_CLOSED: "it has migrated, and the migration has not ended",
    State.DECENTRALIZED: "it migrates to another cluster",
    State.STILL: "it is not being migrated",
}
_WITH_FLAG: Final[Mapping[tuple[str, str], str]] = {
    (State.RUNNING, Flag.COPYING): "its disks and its memory are being copied",
    (State.REFUSED, Flag.UNASKED): "an eviction would be refused",
    (State.TARGET_NOT_READY, Flag.UNATTACHED): (
        "its target pod waits for the pod that attaches its volumes"
    ),
}
"""The words of states that a flag changes."""
_FLAGS: Final[Mapping[str, str]] = {
    Flag.LEFTOVER: "its node is not cordoned",
    Flag.TAINTED: "it moves because of a taint",
    Flag.FOREIGN: "not by a drain",
    Flag.ARRIVING: "this node is its target",
    Flag.COPYING: "its disks go to other claims",
    Flag.UNATTACHED: "its volumes are not attached there",
    Flag.UNASKED: "nothing evicts it",
}


def next_step(state: str | None) -> str:
    """Return what comes at the end of a state: KubeVirt cancels a copy at its timeout, and kills a
    guest that has not shut down in its time.
    """
    return _STEPS.get(state or "", "next step")


_STEPS: Final[Mapping[str, str]] = {
    State.RUNNING: "timeout",
    State.STOPPING: "forced end of its guest",
}


def state_words(state: str, flags: Collection[str]) -> str:
    """Return what a VM does now, with what is true besides:
    the words of text for values of JSON.
    """
    kept = next((each for each in flags if (state, each) in _WITH_FLAG), None)
    words = _WITH_FLAG[state, kept] if kept is not None else _STATES.get(state, state)
    said = ", ".join(_FLAGS.get(flag, flag) for flag in flags if flag != kept)
    return f"{words}{f' ({said})' if said else ''}"


def down_until(outcome: str, unless: str, *, several: bool = False) -> str:
    """Return until when VMs are down that an upgrade shuts down and that start on no other node."""
    whose, stay = ("their", "stay") if several else ("its", "stays")
    if outcome == VmOutcome.STOPS:
        return f"shut down, and {stay} off"
    return f"down until {whose} node is back{f', {unless}' if unless else ''}"


def without_node(note: str, node: str) -> str:
    """Return a note about a node without its name: the same for all nodes with one cause."""
    if node not in note:
        return note
    return re.sub(rf"(?<![\w.-]){re.escape(node)}(?![\w-]|\.\w)", "*", note)
