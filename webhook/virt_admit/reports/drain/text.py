"""A drain plan as text: for one node, for a whole cluster, and as a summary by cause and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.changes.readiness import Readiness
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.pod_evictions import Need
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.states.vm_states_times import moment
from virt_admit.forecasts.drain.targets import closed_targets
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.forecasts.placement.components import busy_volumes
from virt_admit.forecasts.placement.refusals import dying_claims
from virt_admit.model.messages import count, names
from virt_admit.model.node_updates import config_pool_updates
from virt_admit.model.sanitize import indented, name
from virt_admit.reports.drain.report import verdict
from virt_admit.reports.drain.words import in_words, next_step, of_row, state_words, without_node
from virt_admit.reports.unavailable_data import may_lack_vms, not_available, vms


def text(result: Plan, now: datetime | None = None) -> str:
    """Return a plan as text: a table for each node with VMs, and conclusions for a whole cluster.

    ``now``: the time of the listing, if it is known.
    """
    lines = [_ready(result), ""] if result.whole else []
    elsewhere: dict[tuple[str, str], str] = {}
    shared = _sharing(result) if result.whole else {}
    for node in result.nodes:
        if _has_lines(node) or not result.whole:
            rows = (*node.forecasts, *node.visitors)
            lines += [_headline(node), *_table(rows, now, times=not result.whole)]
            lines += _others(node, elsewhere)
            lines += _notes(node, shared)
            lines += [""] if result.whole else [_answer(node), ""]
    if result.reported:
        lines += [PLATFORM, *(f"  {each}" for each in result.reported), ""]
    if result.whole:
        lines += [*_whole(result), ""]
    if result.unseen:
        lines += [*not_available(result.unseen), ""]
    return "\n".join(map(indented, lines))


PLATFORM: Final = "The platform reports besides, though it is not known to hold a drain:"


def _has_lines(node: NodePlan) -> bool:
    """Return whether a node has lines of its own among those of all nodes."""
    return bool(node.forecasts or node.visitors or node.pods.blockers)


def _ready(result: Plan) -> str:
    """Return which nodes can be drained now: the first question of an administrator."""
    free = [node for node in result.nodes if node.drainable and not node.is_guarded]
    now = [node.name for node in free if node.readiness is Readiness.NOW]
    later = [node.name for node in free if node.readiness is Readiness.LATER]
    waits = f"; after a wait: {_most(later)}" if later else ""
    if now:
        return f"Nodes that can be drained now: {_most(now)}{waits}"
    return f"No node can certainly be drained now{waits or '.'}"


def _most(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST_READY} more" if len(nodes) > _MOST_READY else ""
    return f"{', '.join(sorted(nodes)[:_MOST_READY])}{more}"


_MOST_READY: Final = 20


def _headline(node: NodePlan) -> str:
    state = f" ({', '.join(node.state)})" if node.state else ""
    rows = (*node.forecasts, *node.visitors)
    counts = Counter((row.outcome, of_row(row)) for row in rows if not row.removed)
    crowded = len(node.without_room)
    counts[VmOutcome.MIGRATES, in_words(VmOutcome.MIGRATES)] -= crowded
    words = [_counted(counts[each], each[1]) for each in _in_order(counts) if counts[each]]
    verb = "finds" if crowded == 1 else "find"
    words += [f"{crowded} {verb} no place with the others"] if crowded else []
    removed = sum(row.removed for row in rows)
    words += [f"{removed} {'is' if removed == 1 else 'are'} being deleted"] if removed else []
    outcomes = ", ".join(words)
    later = f", {len(node.waiting)} of them only once there is room" if node.waiting else ""
    number = vms(len(node.forecasts), node.unseen)
    if others := len(node.visitors):  # most of them arrive, some have left a pod behind
        number += f" and {others} of {'another node' if others == 1 else 'other nodes'}"
    return f"node {node.name}{state}: {number}{': ' if outcomes else ''}{outcomes}{later}"


def _in_order(counts: Iterable[tuple[VmOutcome, str]]) -> list[tuple[VmOutcome, str]]:
    every = list(VmOutcome)
    return sorted(counts, key=lambda each: (every.index(each[0]), each[1]))


def _counted(number: int, words: str) -> str:
    """Return ``1 blocks the drain`` or ``2 block the drain``."""
    verb, *rest = words.split()
    return " ".join((str(number), verb if number == 1 else verb.removesuffix("s"), *rest))


def _answer(node: NodePlan) -> str:
    """Return whether a drain that starts now ends: what the exit code says."""
    if node.drainable is None:
        return f"It cannot be determined whether a drain of {name(node.name)} ends."
    if node.drainable and node.is_guarded:
        return (
            f"A drain of {name(node.name)} would end, but do not start it: see the note about its "
            "Machine."
        )
    empty = " It has nothing to evict." if node.drainable and node.is_empty else ""
    if node.drainable and any(busy_volumes.MAY_RUN in note for note in node.notes):
        empty = f" But {busy_volumes.MAY_RUN}: see the note."
    if node.drainable and any(config_pool_updates.WITHOUT_CORDON in note for note in node.notes):
        empty = " But that of its MachineConfigPool may not: see the note."
    if node.drainable and any(dying_claims.GOES in note for note in node.notes):
        empty = " But it deletes data: see the note about the claim."
    return f"A drain of {name(node.name)} {'ends' if node.drainable else 'does not end'}.{empty}"


def _state(row: Forecast, now: datetime | None) -> str:
    """Return the state of a VM, since when it has it, and when its next step follows; empty:
    it is at rest.
    """
    state = row.state
    if state.state is State.STILL and not state.flags:
        return ""
    since = f" since {moment(state.since, now)}" if state.since is not None else ""
    due = "was due" if state.until is not None and now is not None and state.until < now else "at"
    end = moment(state.until, now) if state.until is not None else ""
    until = f", {next_step(state.state)} {due} {end}" if end else ""
    return f"{state_words(state.state, state.flags)}{since}{until}"


def _table(forecasts: Sequence[Forecast], now: datetime | None, *, times: bool) -> Iterator[str]:
    width = max((len(of_row(row)) for row in forecasts), default=0)
    vms = [name(row.vmi.full_name) for row in forecasts]
    name_width = max(map(len, vms), default=0)
    said: dict[str, tuple[str, str]] = {}
    told: dict[str, str] = {}
    for row, vm in zip(forecasts, vms, strict=True):
        first, remedy = said.setdefault(row.reason, (vm, row.remedy))
        is_said = first != vm and len(row.reason) >= _LONG
        reason = f"the same as {first}" if is_said else row.reason
        yield f"  {of_row(row):{width}}  {vm:{name_width}}  {reason}"
        if times and (state := _state(row, now)):
            yield f"  {'':{width}}  {'':{name_width}}  state: {state}"
        if row.remedy and not (is_said and row.remedy == remedy):
            same = told.setdefault(row.remedy, vm)
            is_told = same != vm and len(row.remedy) >= _LONG
            todo = f"the same as for {same}" if is_told else row.remedy
            yield f"{_INDENT}to do: {todo}"


_INDENT: Final = "      "
"""Of a remedy, whose commands are long: more would break them on a narrow terminal."""
_LONG: Final = 60
"""A reason or a remedy of so many characters is written once."""


def _others(node: NodePlan, elsewhere: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield lines about everything but single VMs: room for all, other pods, flags, notes.

    ``elsewhere``: the nodes for which these blockers were told first.
    """
    crowded = node.crowded(node.packing)
    if crowded and node.packing.in_turn:
        yield (
            f"  no place for {names(crowded)} once the others have left: topology spread counts "
            "the cordoned node"
        )
        yield (
            "    to do: raise parallelOutboundMigrationsPerNode for this drain, or set "
            "nodeTaintsPolicy: Honor in the VMs"
        )
    elif crowded:
        yield f"  no room at the same time for {names(crowded)}"
    # the first of the table says it: the others refer to that one
    rows = (*node.forecasts, *node.visitors)[::-1]
    told = {row.remedy.rstrip(".").casefold(): row.vmi.full_name for row in rows if row.remedy}
    reasons = {row.reason: row.vmi.full_name for row in rows}
    yield from _blockers(node, told, reasons, elsewhere)
    for wait in node.pods.waits:
        yield f"  waits for: {wait.subject}: {wait.reason}"
    for need in node.pods.needs:
        yield f"  kubectl drain needs {need.flag} for {names(need.pods)}. {need.cost}"


def _sharing(result: Plan) -> Mapping[str, Sequence[str]]:
    """Return for each note the nodes that it is about, those with lines of their own first."""
    found: dict[str, list[str]] = {}
    for node in sorted(result.nodes, key=_has_lines, reverse=True):
        for cause in dict.fromkeys(without_node(note, node.name) for note in node.notes):
            found.setdefault(cause, []).append(node.name)
    return found


def _notes(node: NodePlan, shared: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the notes about a node: one about several nodes is said at the first of them."""
    for note in node.notes:
        first, *others = shared.get(without_node(note, node.name), [node.name])
        if first == node.name:
            yield f"  note{f' (also for {names(sorted(others), 60)})' if others else ''}: {note}"


def _blockers(
    node: NodePlan,
    told: dict[str, str],
    reasons: Mapping[str, str],
    elsewhere: dict[tuple[str, str], str],
) -> Iterator[str]:
    """Yield what blocks, once for budgets with one reason and one remedy, and once for all nodes.

    ``told`` and ``reasons``: the VMs for which remedies and reasons were told.
    """
    groups: dict[tuple[str, str, str], list[Blocker]] = {}
    for blocker in node.pods.blockers:
        lead = blocker.reason.partition("; ")[0]
        key = blocker.effect, lead if len(lead) >= _LONG else blocker.subject, blocker.remedy
        groups.setdefault(key, []).append(blocker)
    pointers: dict[str, None] = {}
    for same_cause in groups.values():
        blocker = same_cause[0]
        subjects = list(dict.fromkeys(each.subject for each in same_cause))
        subject = _together(subjects)
        is_long = len(blocker.reason) >= _LONG
        first = reasons.get(blocker.reason, "") if is_long else ""
        before = elsewhere.setdefault((blocker.reason, blocker.remedy), node.name)
        if is_long and before != node.name:
            pointers.setdefault(f"  {blocker.effect}: {subject}: the same as for node {before}")
            continue
        why = f"the same as {first}" if first else blocker.reason
        if len(subjects) > 1 and why.startswith("it "):
            why = why.replace("it", "each", 1)
        yield f"  {blocker.effect}: {subject}: {why}"
        same = told.setdefault(blocker.remedy.rstrip(".").casefold(), subject)
        remedy = blocker.remedy if same == subject else f"the same as for {same}"
        yield f"    to do: {remedy}"
    yield from pointers


def _together(subjects: Sequence[str]) -> str:
    """Return subjects of one kind with the kind once."""
    first, *others = subjects
    kind = first.partition(" ")[0]
    return names([first, *(each.removeprefix(f"{kind} ") for each in others)])


def summary(result: Plan) -> str:
    """Return the causes, each with its nodes, and the owners (namespaces),
    instead of one line per VM.
    """
    lines = [_ready(result)] if result.whole else []
    for outcome in VmOutcome:
        rows = [row for row in result.having(outcome) if not row.removed]
        if rows:
            owners = Counter(row.vmi.namespace for row in rows)
            words = Counter(map(of_row, rows)).items()
            said = ", ".join(_counted(number, word) for word, number in words)
            lines.append(f"{said}: {_by_number(owners)}")
            if outcome is not VmOutcome.MIGRATES:
                causes = Counter(row.reason for row in rows)
                most = causes.most_common(_MOST_CAUSES)
                lines += [f"  {number:5} {cause}" for cause, number in most]
                more = len(causes) - _MOST_CAUSES
                lines += [f"  and {more} more causes"] if more > 0 else []
    others = (item for node in result.nodes for item in node.pods.blockers)
    blockers = Counter(f"{item.subject}: {item.reason}" for item in others)
    if blockers:
        lines.append(f"{count(len(blockers), 'other blocker')}:")
        most = blockers.most_common(_MOST_CAUSES)
        lines += [f"  on {count(number, 'node')}: {cause}" for cause, number in most]
    crowded = [node.name for node in result.nodes if node.crowded(node.packing)]
    if crowded:
        lines.append(f"no room elsewhere for all VMs of {names(crowded)}")
    lines += [*(_whole(result) if result.whole else ())]
    lines += not_available(result.unseen)
    return "\n".join(map(indented, lines))


_MOST_CAUSES: Final = 10


def _by_number(owners: Counter[str]) -> str:
    return names(f"{owner} ({number})" for owner, number in owners.most_common())


def _whole(result: Plan) -> Iterator[str]:
    known = (node for node in result.nodes if not may_lack_vms(node.unseen))
    empty = [node.name for node in known if not (node.forecasts or node.visitors)]
    if empty:
        yield f"{count(len(empty), 'node')} without VMs: {names(sorted(empty))}"
    yield from _pods_without_vms(result)
    yield from _notes_of(result)
    yield from closed_targets.lines(result.closed)
    if result.methods is not None:
        by_reach = Counter(update.reach for update in result.updates)
        # without a method that is what was asked for, and another step updates them
        label = {} if result.methods else {Reach.NEVER: "not by KubeVirt"}
        reaches = ", ".join(
            f"{by_reach[reach]} {label.get(reach, reach)}" for reach in Reach if by_reach[reach]
        )
        methods = ", ".join(result.methods) or "no method"
        yield f"Updates of running VMs ({methods}): {reaches or 'no VM is running'}"
        for reach in _OUT_OF_REACH:
            those = (each for each in result.updates if each.reach is reach)
            missed = [f"{each.vmi.full_name} ({each.reason})" for each in those]
            if missed:
                yield f"  {label.get(reach, reach)}: {names(missed)}"
    if result.uncovered:
        yield (
            f"No health check can remediate {count(len(result.uncovered), 'node')} with VMs"
            f"{_not_restarted(result, result.uncovered)}: {names(result.uncovered)}"
        )
    for by, on in result.otherwise.items():
        restored = names(sorted(chain.from_iterable(on.values())), 120)
        yield (
            f"Without a health check of their nodes ({names(on, 60)}), {restored} restart after a "
            f"loss by {by}"
        )
    yield f"Can the cluster be upgraded today? {verdict(result)}"


def _not_restarted(result: Plan, uncovered: Collection[str]) -> str:
    """Return how many VMs of these nodes would not restart after a loss, as a clause; empty:
    something else restarts each of them.
    """
    restored = {
        vm for on in result.otherwise.values() for node in uncovered for vm in on.get(node, ())
    }
    forecasts = (row for node in result.nodes if node.name in uncovered for row in node.forecasts)
    left = {row.vmi.full_name for row in forecasts} - restored
    if not left:
        return ""
    return f", {'some of which' if restored else 'which'} would not restart after a loss"


_MOST_NOTES: Final = 10


def _pods_without_vms(result: Plan) -> Iterator[str]:
    """Yield what the drains of nodes without lines of their own wait for, and for which pods they
    need ``--force``: once for nodes with the same words.
    """
    waits: dict[str, list[tuple[str, str]]] = {}
    forced: dict[str, list[tuple[str, Need]]] = {}
    for node in (each for each in result.nodes if not _has_lines(each)):
        for wait in node.pods.waits:
            words = f"waits for: {wait.subject}: {wait.reason}"
            waits.setdefault(without_node(words, node.name), []).append((node.name, words))
        for need in (each for each in node.pods.needs if each.flag == pod_evictions.FORCE):
            forced.setdefault(without_node(need.cost, node.name), []).append((node.name, need))
    for same in list(waits.values())[:_MOST_NOTES]:
        yield f"  {names(sorted(node for node, _ in same), 60)}: {min(same)[1]}"
    if len(waits) > _MOST_NOTES:
        yield f"  and {len(waits) - _MOST_NOTES} more waits (see -o json)"
    for needs in list(forced.values())[:_MOST_NOTES]:
        where = names(sorted(node for node, _ in needs), 60)
        pods = names(sorted(pod for _, need in needs for pod in need.pods))
        yield f"  {where}: kubectl drain needs {pod_evictions.FORCE} for {pods}. {needs[0][1].cost}"
    if len(forced) > _MOST_NOTES:
        yield f"  and pods of {len(forced) - _MOST_NOTES} more nodes (see -o json)"


def _notes_of(result: Plan) -> Iterator[str]:
    """Yield the notes about nodes that have no lines of their own, as most without VMs.

    Those of other nodes were said there.
    """
    shown = [node for node in result.nodes if _has_lines(node)]
    said = {without_node(note, node.name) for node in shown for note in node.notes}
    by_cause: dict[str, list[tuple[str, str]]] = {}
    for node in (each for each in result.nodes if not _has_lines(each)):
        for note in node.notes:
            if (cause := without_node(note, node.name)) not in said:
                by_cause.setdefault(cause, []).append((node.name, note))
    for same in list(by_cause.values())[:_MOST_NOTES]:
        yield f"  {names(sorted(node for node, _ in same), 60)}: {min(same)[1]}"
    if len(by_cause) > _MOST_NOTES:
        yield f"  and {len(by_cause) - _MOST_NOTES} more notes (see -o json)"


_OUT_OF_REACH: Final = (Reach.RETRIED, Reach.NEVER)
