"""The page of ``drain``: whether nodes can be drained, what keeps them, nodes × VMs,
and memory before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.pod_evictions import PodEvictions
from virt_admit.forecasts.drain.targets import closed_targets
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import capital, count, names
from virt_admit.model.scheduler.packing import Packing
from virt_admit.model.scheduler.resources import MEMORY, show
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot
from virt_admit.reports.drain.report import verdict
from virt_admit.reports.drain.words import in_words, of_row, without_node
from virt_admit.reports.html import svg
from virt_admit.reports.html.causes import CauseItem, PageCause, grouped, joined, shown, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.owners import Owners
from virt_admit.reports.html.page import Cell, Figure, Page, PageVerdict, Table, Tile
from virt_admit.reports.unavailable_data import may_lack_vms

LEVEL_OF: Final = {
    VmOutcome.BLOCKS: BAD,
    VmOutcome.STOPS: SEVERE,
    VmOutcome.AWAITS_NODE: SEVERE,
    VmOutcome.UNKNOWN: UNKNOWN,
    VmOutcome.RESTARTS: NOTICE,
    VmOutcome.MIGRATES: GOOD,
}
"""The color of each outcome."""
_TILE: Final = {
    VmOutcome.BLOCKS: "VMs block the drain",
    VmOutcome.STOPS: "VMs stay stopped",
    VmOutcome.AWAITS_NODE: "VMs wait for their node",
    VmOutcome.UNKNOWN: "VMs unknown",
    VmOutcome.RESTARTS: "VMs restart",
    VmOutcome.MIGRATES: "VMs migrate",
}
LEGEND: Final = tuple((level, in_words(outcome)) for outcome, level in LEVEL_OF.items())
_MOST_NODES: Final = 50
"""Nodes in the picture of all VMs."""
_MOST_SQUARES: Final = 400
"""VMs of one node that are drawn one by one."""
_MOST_MEMORY: Final = 12
"""Nodes in the picture of memory, besides the drained one."""
_FEWEST_MEMORY: Final = 4
"""Nodes in that picture even if a drain changes fewer."""
_YES: Final = {True: "yes", False: "no", None: "unknown"}


def placed(cluster: Cluster) -> SchedulerSnapshot:
    """Return the nodes and what their pods request, for the picture of memory."""
    return candidates.scheduler(cluster).state


def page(
    plan: Plan,
    state: SchedulerSnapshot | None,
    evidence: Iterable[tuple[str, str]] = (),
    subject: str = "",
) -> Page:
    """Return the page of a plan.

    Without ``placed`` it has no picture of memory. It reads no cluster.
    """
    figures = [_squares(plan)] if any(node.forecasts for node in plan.nodes) else []
    if state is not None:
        figures += _memory(plan, state)
    return Page(
        title="Drain" if len(plan.nodes) != 1 else f"Drain of {plan.nodes[0].name}",
        subject=subject,
        verdict=_verdict(plan),
        tiles=tuple(_tiles(plan)),
        causes_title="Causes and what to do",
        causes=worst_first((*joined(_blockers(plan)), *_no_room(plan), *vm_causes(plan))),
        figures=tuple(figures),
        tables=(_nodes(plan),) if plan.nodes else (),
        notes=tuple((title, lines) for title, lines in _notes(plan) if lines),
        evidence=tuple(evidence),
    )


def _tiles(plan: Plan) -> Iterator[Tile]:
    """Yield the number of VMs by outcome; no zero where there may be more VMs than are known."""
    for outcome, level in LEVEL_OF.items():
        number = len(plan.having(outcome))
        if number or not may_lack_vms(plan.unseen):
            yield Tile(level, number, _TILE[outcome])


def _verdict(plan: Plan) -> PageVerdict:
    found = verdict(plan)
    level = {False: BAD, None: UNKNOWN, True: SEVERE if found.costs else GOOD}[found.answer]
    return PageVerdict(level, found.word, capital(found.sentence))


def vm_causes(plan: Plan) -> Iterator[PageCause]:
    """Yield one cause for VMs with the same outcome, reason and remedy."""
    rows = ((row, node.name) for node in plan.nodes for row in (*node.forecasts, *node.visitors))
    return grouped(_vm_cause(row, name) for row, name in rows)


def _vm_cause(row: Forecast, node: str) -> tuple[PageCause, str]:
    command = row.problems[0].command if row.problems else ""
    item = CauseItem(shown(_name, row), node, command)
    words = row.remedy.replace(f": {command}", "", 1) if command else row.remedy
    level = GOOD if row.removed else LEVEL_OF[row.outcome]
    word = of_row(row)
    return PageCause(level, word, "", row.reason, words, (item,)), row.vmi.name


def _name(row: Forecast) -> str:
    return row.vmi.full_name


def _blockers(plan: Plan) -> Iterator[PageCause]:
    for node in plan.nodes:
        for found in node.pods.blockers:
            item = CauseItem(node.name)
            yield PageCause(BAD, found.effect, found.subject, found.reason, found.remedy, (item,))


def _no_room(plan: Plan) -> Iterator[PageCause]:
    moving = [(node, found) for node in plan.nodes if (found := node.crowded(node.moving))]
    among = {node.name for node, _ in moving}
    rest = (node for node in plan.nodes if node.name not in among)
    others = [(node, found) for node in rest if (found := node.crowded(node.packing))]
    for level, kind, crowded in ((BAD, "that migrate", moving), (NOTICE, "that restart", others)):
        if crowded:
            items = tuple(CauseItem(vm, node.name) for node, left in crowded for vm in left)
            where = names(node.name for node, _ in crowded)
            text = f"The VMs of {where} {kind} do not fit on the other nodes at the same time."
            remedy = "Free room for them, or stop or move some of these VMs."
            yield PageCause(level, "no room", "", text, remedy, items)


def _squares(plan: Plan) -> Figure:
    occupied = [node for node in plan.nodes if node.forecasts]
    drawn = occupied[:_MOST_NODES]
    rows = [svg.Bar(node.name, _parts(node), f"{len(node.forecasts):,}") for node in drawn]
    caption = (
        "A square for each VM, by what a drain of its node does to it; the number of VMs on the "
        "right."
    )
    if len(occupied) > len(drawn):
        caption += f" The worst {len(drawn)} of {len(occupied)} nodes with VMs are shown."
    if any(len(node.forecasts) > _MOST_SQUARES for node in drawn):
        caption = f"{caption.replace('A square for each VM', 'VMs')} The lengths are proportional."
        return Figure("Nodes and VMs", caption, svg.bars(rows), LEGEND)
    return Figure("Nodes and VMs", caption, svg.grid(rows), LEGEND)


def _parts(node: NodePlan) -> tuple[svg.BarPart, ...]:
    having = ((level, len(node.having(outcome))) for outcome, level in LEVEL_OF.items())
    return tuple(svg.BarPart(level, number) for level, number in having)


# --- memory ---------------------------------------------------------------------------------------


def _memory(plan: Plan, state: SchedulerSnapshot) -> list[Figure]:
    """Return the memory of the nodes before and after a drain: of the named node,
    or of the fullest of all.
    """
    open_nodes = [node for node in plan.nodes if node.forecasts]
    if not open_nodes:
        return []
    node = max(open_nodes, key=lambda one: (_leaving(one), one.name))
    after = _after(node)
    touched = sorted(after.keys() - {node.name}, key=lambda name: (-after[name], name))
    untouched = (name for name in sorted(state.nodes) if name not in after)
    others = [*touched, *islice(untouched, max(0, _FEWEST_MEMORY - len(touched)))]
    bars: list[svg.Bar] = []
    for name in (node.name, *others[:_MOST_MEMORY]):
        known = state.nodes.get(name)
        size = (known.allocatable or {}).get(MEMORY) if known else None
        if size is not None:
            used = state.used.get(name, {}).get(MEMORY, 0)
            bars.append(_memory_bar(f"{name} before", used, size))
            bars.append(_memory_bar("after", max(used + after.get(name, 0), 0), size))
    if not bars:
        return []
    which = f"Memory that pods request before and after a drain of {node.name}"
    most = ", whose VMs request most" if len(plan.nodes) > 1 else ""
    hidden = len(state.nodes) - 1 - min(len(others), _MOST_MEMORY)
    more = f" {count(hidden, 'further node')} not shown." if hidden > 0 else ""
    homeless = count(len(node.packing.left), "VM")
    left = f" {homeless} without a place are not counted." if node.packing.left else ""
    legend = (("used", "requested"), ("free", "free"), ("bad", "more than there is"))
    caption = f"{which}{most}.{left}{more}"
    return [Figure("Memory before and after", caption, svg.bars(bars), legend)]


def _memory_bar(label: str, used: int, size: int) -> svg.Bar:
    fits = min(used, size)
    sizes = {"used": fits, "free": size - fits, "bad": used - fits}
    parts = tuple(svg.BarPart(level, length) for level, length in sizes.items())
    return svg.Bar(label, parts, f"{show(MEMORY, used)} of {show(MEMORY, size)}")


def _leaving(node: NodePlan) -> int:
    leaving = (row for row in node.forecasts if row.outcome is not VmOutcome.BLOCKS)
    return sum(row.target.pod.requests.get(MEMORY, 0) for row in leaving)


def _after(node: NodePlan) -> dict[str, int]:
    """Return the change of requested memory by node: VMs that block stay,
    those without a place just leave.
    """
    change: dict[str, int] = {node.name: 0}
    for row in node.forecasts:
        if row.outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN):
            continue
        memory = row.target.pod.requests.get(MEMORY, 0)
        change[node.name] -= memory
        target = node.packing.placed.get(row.target.pod.full_name, "") if row.needs_room else ""
        if target:
            change[target] = change.get(target, 0) + memory
    return change


# --- tables ---------------------------------------------------------------------------------------


def _nodes(plan: Plan) -> Table:
    of_node = ("Node", "Drainable", "Room elsewhere", "State", "VMs")
    columns = (*of_node, *map(str, VmOutcome), "Other blockers")
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            node.name,
            _YES[node.drainable],
            _YES[node.packing.fits],
            ", ".join(node.state) or "normal",
            len(node.forecasts),
            *(len(node.having(outcome)) for outcome in VmOutcome),
            len(node.pods.blockers),
        )
        for node in plan.nodes
    )
    return Table("Nodes", columns, rows)


def _notes(plan: Plan) -> Iterator[tuple[str, tuple[str, ...]]]:
    needs = (
        f"{node.name}: {need.flag} for {names(need.pods)}. {need.cost}"
        for node in plan.nodes
        for need in node.pods.needs
    )
    yield "Flags that kubectl drain needs", tuple(needs)
    every = [(node.name, wait) for node in plan.nodes for wait in node.pods.waits]
    waits = [(f"{wait.subject}: {wait.reason}", name) for name, wait in every]
    yield "What the drain waits for", _by_text(waits)
    yield "Notes", _by_cause(plan)
    yield "What the platform reports besides", tuple(map(str, plan.reported))
    yield closed_targets.TITLE, tuple(closed_targets.lines(plan.closed))
    if plan.methods is not None:
        missed = _by_text(
            [
                (f"{update.reach}: {update.reason}", update.vmi.full_name)
                for update in plan.updates
                if update.reason
            ]
        )
        yield "Updates of running VMs", missed
    yield "Not available", plan.unseen


def _by_cause(plan: Plan) -> tuple[str, ...]:
    """Return each note once with its nodes, in the words of the first of them."""
    first: dict[str, str] = {}
    pairs = (
        (first.setdefault(without_node(note, node.name), note), node.name)
        for node in plan.nodes
        for note in node.notes
    )
    return _by_text(list(pairs))


def _by_text(pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each text once with the names that it is about."""
    groups: dict[str, list[str]] = {}
    for text, name in pairs:
        groups.setdefault(text, []).append(name)
    return tuple(f"{text} ({names(some)})" for text, some in groups.items())


def split(plan: Plan, owners: Owners) -> dict[str, Plan]:
    """Return a plan for each owner of VMs: the owner's VMs, the nodes that they are on,
    the budgets in its namespace.
    """
    vms: dict[str, dict[str, list[Forecast]]] = {}
    for node in plan.nodes:
        for row in node.forecasts:
            vms.setdefault(owners.of(row.vmi), {}).setdefault(node.name, []).append(row)
    return {
        owner: replace(
            plan,
            nodes=tuple(
                _own(node, own[node.name], owner, owners) for node in plan.nodes if node.name in own
            ),
            updates=tuple(update for update in plan.updates if owners.of(update.vmi) == owner),
            reported=(),
        )
        for owner, own in vms.items()
    }


def _own_room(packing: Packing, forecasts: Sequence[Forecast]) -> Packing:
    """Return the part of a packing that concerns these VMs."""
    left = {pod.full_name for pod in packing.left}
    own = tuple(row.target.pod for row in forecasts if row.target.pod.full_name in left)
    return replace(packing, fits=packing.fits if own else True, left=own)


def _own(node: NodePlan, forecasts: Sequence[Forecast], owner: str, owners: Owners) -> NodePlan:
    """Return the part of a node's plan that concerns one owner."""
    found = () if owners.label else node.pods.blockers
    blockers = tuple(each for each in found if each.namespace == owner)
    packing, moving = _own_room(node.packing, forecasts), _own_room(node.moving, forecasts)
    return replace(
        node,
        forecasts=tuple(forecasts),
        pods=PodEvictions(blockers, ()),
        packing=packing,
        moving=moving,
        notes=(),
    )
