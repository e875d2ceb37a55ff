"""What ``virt-admit drain NODE --follow`` shows: the changes between two moments of a drain,
and its screen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from virt_admit.forecasts.drain import progress
from virt_admit.forecasts.drain.drain_plan import READS as PLAN_READS
from virt_admit.forecasts.drain.drain_plan import WORST_FIRST, NodePlan, plan
from virt_admit.forecasts.drain.ongoing_drains import is_stuck
from virt_admit.forecasts.drain.progress import DrainCause, DrainStart, FollowRemaining
from virt_admit.forecasts.drain.states.vm_states_kinds import State, VmState
from virt_admit.forecasts.drain.states.vm_states_times import age, is_over, moment
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.upgrade import drain_waits, node_drain
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, VMIM, Kind
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import count, cut, names, ordinal
from virt_admit.model.sanitize import name
from virt_admit.reports.columns import columns
from virt_admit.reports.drain.report import node_report, vm
from virt_admit.reports.drain.words import of_row, range_words
from virt_admit.reports.following import FollowChange, Look
from virt_admit.reports.unavailable_data import not_available

READS: Final = union(PLAN_READS, progress.READS)
"""The fields that following a drain reads."""


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """What has left a node, and what is left."""

    node: str
    vms: int
    """VMs on the node."""
    pods: int
    """Other pods that a drain evicts."""
    gone: tuple[str, ...]
    """VMs and pods that left since the last such object, ``namespace/name``."""
    ends_in: Range | None
    """Seconds until nothing is left. Null: it does not end, that cannot be determined,
    or nothing drains the node.
    """


_EVENTS_AT_ONCE: Final = 3
"""VMs whose events are read in one look: each read may take seconds."""


class DrainFollower:
    """The drain of one node, looked at again and again."""

    needs: tuple[Kind, ...] = (NODE, VMI, POD, VMIM)

    def __init__(
        self, node: str, last_warning: Callable[[str, str], str] = lambda _namespace, _name: ""
    ) -> None:
        """Follow a node.

        Args:
            node: its name.
            last_warning: returns the newest warning about the VMI with this namespace and name;
                empty: none is known. It is asked once for each state of a VM that is stuck.
        """
        self._node = node
        self._last_warning = last_warning
        self._warnings: dict[tuple[str, State], str] = {}
        self._seen: _Moment | None = None
        self._furthest: dict[str, int] = {}
        self._most_vms = 0

    def look(self, cluster: Cluster) -> Look:
        """Judge the drain at one moment.

        Raises:
            LookupError: the node does not exist, and did not when it was looked for first.
        """
        before = self._seen
        try:
            found = _moment(self._node, cluster)
        except LookupError:
            if before is None:
                raise
            done = f"node {self._node} was deleted"
            return Look((), (), None, None, done, stuck=False, state=None)
        for row in found.rows.values():
            rank = progress.FURTHER.get(row.state.state, 0)
            self._furthest[_key(row)] = max(rank, self._furthest.get(_key(row), 0))
        self._furthest = {key: rank for key, rank in self._furthest.items() if key in found.rows}
        self._most_vms = max(self._most_vms, len(found.node.forecasts))
        self._seen = found
        warned = tuple(self._warn(found, cluster))
        return Look(
            (*_changes(before, found, cluster), *warned),
            tuple(_screen(found, self._most_vms, self._warnings, cluster)),
            self._progress(found),
            found.moved,
            _done(found),
            stuck=found.node.drainable is False,
            state=node_report(found.node),
        )

    def _warn(self, found: _Moment, cluster: Cluster) -> Iterator[FollowChange]:
        """Read the last warning about VMs that are stuck, and yield those that exist."""
        rows = found.rows.items()
        stuck = {(key, row.state.state): row for key, row in rows if is_stuck(row, cluster)}
        self._warnings = {key: text for key, text in self._warnings.items() if key in stuck}
        for key in [key for key in stuck if key not in self._warnings][:_EVENTS_AT_ONCE]:
            row = stuck[key]
            self._warnings[key] = self._last_warning(vms.namespace_of(row.vmi), row.vmi.name)
            if self._warnings[key]:
                text = f"{name(key[0])} last event: {self._warnings[key]}"
                yield FollowChange("state", text, vm(row))

    def _progress(self, found: _Moment) -> Hashable:
        return tuple(sorted(self._furthest.items())), found.left.pods, found.left.old_pods


@dataclass(frozen=True, slots=True)
class _Moment:
    """One moment of a drain."""

    node: NodePlan
    rows: Mapping[str, Forecast]
    """By ``namespace/name``, the worst first."""
    left: FollowRemaining
    start: DrainStart | None
    moved: datetime | None
    ends_in: Range | None
    held: tuple[str, ...]
    """What the updater that drains the node waits for, without an end that any object tells."""


_BY_MACHINE: Final = (DrainCause.MACHINE, DrainCause.MACHINE_DEPLOYMENT)


def _moment(name: str, cluster: Cluster) -> _Moment:
    (node,) = plan(cluster, name).nodes
    rows = {_key(row): row for row in sorted((*node.forecasts, *node.visitors), key=_worst_first)}
    found = next((each for each in cluster.known(NODE) if each.name == name), None)
    start = progress.start(found, cluster) if found is not None else None
    left = progress.remaining(name, cluster)
    by_machine = start is not None and start.cause in _BY_MACHINE
    held = tuple(drain_waits.of_node(name, node, cluster, by_machine=by_machine))
    known = start is not None and not held
    ends_in = node_drain.remaining(node, len(left.pods), cluster) if known else None
    return _Moment(node, rows, left, start, progress.moved(name, cluster), ends_in, held)


def _key(row: Forecast) -> str:
    return row.vmi.full_name


def _worst_first(row: Forecast) -> tuple[int, str]:
    return WORST_FIRST[row.outcome], row.vmi.full_name


def _done(found: _Moment) -> str:
    """Return that nothing is left that a drain evicts; empty: something is,
    or it cannot be determined.
    """
    empty = not (found.rows or found.left.pods or found.left.old_pods)
    if not (empty and found.left.complete):
        return ""
    return f"{found.node.name} is empty: nothing is left that a drain evicts"


# --- changes --------------------------------------------------------------------------------------


def _changes(before: _Moment | None, found: _Moment, cluster: Cluster) -> Iterator[FollowChange]:
    """Yield what changed between two moments, or everything at the first one."""
    if before is None or (before.start is None) != (found.start is None):
        head = _head(found, len(found.node.forecasts), cluster)
        yield FollowChange("progress", head, _counted(found, ()))
    old_rows = before.rows if before is not None else {}
    for key, row in found.rows.items():
        old = old_rows.get(key)
        if old is None or _signature(old) != _signature(row):
            yield FollowChange("state", _sentence(row, old), vm(row))
    if before is not None:
        yield from _left(before, found)
    if before is None or _verdict_key(before) != _verdict_key(found):
        yield FollowChange("verdict", _verdict(found), node_report(found.node))


def _signature(row: Forecast) -> Hashable:
    """Return what makes a row worth a line; its sentence has ages that always change."""
    state = row.state
    seen = state.state, state.flags, state.target, state.source, state.attempts, state.detail
    return row.outcome, *seen


def _sentence(row: Forecast, old: Forecast | None) -> str:
    moved = old is not None and old.state.state is not row.state.state
    was = f"{old.state.state} → " if old is not None and moved else ""
    target = f" to {row.state.target}" if row.state.target else ""
    remedy = f". To do: {row.remedy}" if row.remedy else ""
    what = f"{was}{row.state.state}{target}: {of_row(row)}: {row.reason}{remedy}"
    return f"{name(row.vmi.full_name)} {what}"


def _left(before: _Moment, found: _Moment) -> Iterator[FollowChange]:
    vms = [key for key in before.rows if key not in found.rows]
    pods = [pod for pod in before.left.pods if pod not in found.left.pods]
    if vms or pods:
        targets = {key: before.rows[key].state.target for key in vms}
        words = [f"{key} has left" + (f" to {to}" if to else "") for key, to in targets.items()]
        words += [f"pod {pod} has left" for pod in pods]
        shown = ", ".join(words[:_MOST_LEFT]) + (
            f" and {len(words) - _MOST_LEFT} more" if words[_MOST_LEFT:] else ""
        )
        yield FollowChange("progress", f"{shown}; {_rest(found)}", _counted(found, (*vms, *pods)))


_MOST_LEFT: Final = 5


def _counted(found: _Moment, gone: tuple[str, ...]) -> DrainProgress:
    vms, pods = len(found.node.forecasts), len(found.left.pods)
    return DrainProgress(found.node.name, vms, pods, gone, found.ends_in)


def _rest(found: _Moment) -> str:
    return f"{count(len(found.node.forecasts), 'VM')} and {count(len(found.left.pods), 'pod')} left"


def _verdict_key(found: _Moment) -> Hashable:
    node = found.node
    blockers = tuple((item.subject, item.now) for item in node.pods.blockers)
    control = tuple((part.component, part.healthy) for part in node.control)
    waits = tuple(item.subject for item in node.pods.waits)
    return node.drainable, blockers, waits, control, len(found.held)


_ANSWER: Final = {
    True: "a drain ends",
    False: "a drain does not end",
    None: "whether a drain ends cannot be determined",
}


def _verdict(found: _Moment) -> str:
    node = found.node
    causes = [f"{item.subject}: {item.reason}. To do: {item.remedy}" for item in node.pods.blockers]
    unknown = f": {names(node.doubts)}" if node.doubts and node.drainable is None else ""
    causes += [f"its end is not known: {each}" for each in found.held]
    answer = f"{node.name}: {_ANSWER[node.drainable]}{unknown}"
    return "; ".join((answer, *causes))


# --- the screen -----------------------------------------------------------------------------------


def _head(found: _Moment, most: int, cluster: Cluster) -> str:
    start, vms = found.start, len(found.node.forecasts)
    if start is None:
        by = "not cordoned: nothing drains it"
    else:
        since = f" for {age(start.since, cluster)}" if start.since is not None else ""
        by = (
            f"cordoned{since}"
            if start.cause is DrainCause.CORDON
            else f"drained by {start.by}{since}"
        )
    of = f"{vms} of {count(most, 'VM')}" if most > vms else count(vms, "VM")
    return f"{found.node.name}, {by}. {of} and {count(len(found.left.pods), 'pod')} left"


def _screen(
    found: _Moment, most: int, warnings: Mapping[tuple[str, State], str], cluster: Cluster
) -> Iterator[str]:
    yield f"{_head(found, most, cluster)}. {_end(found)}."
    yield from _table(found, cluster)
    yield from _actions(found, warnings, cluster)
    yield from (f"note: {note}" for note in found.node.notes)
    yield from not_available(found.node.unseen)


def _end(found: _Moment) -> str:
    """Return when the drain ends, else whether it does."""
    if found.held and not _done(found):
        return f"Its end is not known: {found.held[0]}"
    if found.ends_in is None or _done(found):
        return _ANSWER[found.node.drainable].capitalize()
    return f"Ends in {range_words(found.ends_in)}"


def _next_step(state: VmState, cluster: Cluster) -> str:
    """Return the time of KubeVirt's next step, else the place in the queue."""
    if is_over(state.until, cluster):
        return "overdue"
    if state.until is not None or not state.holders:
        return moment(state.until, clock.now(cluster)) if state.until is not None else ""
    place = "one" if state.unordered else ordinal(state.place)
    return f"{place} of {state.waiting}"


def _table(found: _Moment, cluster: Cluster) -> Iterator[str]:
    rows = [("VM", "STATE", "SINCE", "NEXT STEP", "TARGET")]
    for key, row in found.rows.items():
        state = row.state
        times = age(state.since, cluster), _next_step(state, cluster)
        rows.append((name(key), state.state, *times, state.target or state.source))
    if len(rows) > 1:
        yield from columns(rows)


def _actions(
    found: _Moment, warnings: Mapping[tuple[str, State], str], cluster: Cluster
) -> Iterator[str]:
    """Yield what keeps the node from becoming empty and what to do, the worst first."""
    for item in found.node.pods.blockers:
        yield f"{item.subject}: {cut(item.reason, 500)}"
        yield f"  to do: {item.remedy}"
    for key, row in found.rows.items():
        if (
            row.outcome is not VmOutcome.MIGRATES
            or row.remedy
            or row.state.holders
            or is_stuck(row, cluster)
        ):
            yield f"{name(key)}: {of_row(row)}: {row.reason}"
            if warnings.get((key, row.state.state)):
                yield f"  last event: {warnings[key, row.state.state]}"
            if row.remedy:
                yield f"  to do: {row.remedy}"
    for wait in found.node.pods.waits:
        yield f"waits for: {wait.subject}: {wait.reason}"
