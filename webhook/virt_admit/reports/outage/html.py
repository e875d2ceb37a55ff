"""The page of ``outage``: whether the cluster survives, what is short, who acts,
and a time line for each VM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.outage.lost_vms import LostVm
from virt_admit.forecasts.outage.outages import Outage, Outages, amount
from virt_admit.forecasts.outage.restarts import next_vmis
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.model.messages import count, names, sentence
from virt_admit.reports.html import svg
from virt_admit.reports.html.causes import CauseItem, PageCause, grouped, worst_first
from virt_admit.reports.html.levels import BAD, GOOD, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.owners import Owners
from virt_admit.reports.html.page import Cell, Figure, Page, PageVerdict, Table, Tile
from virt_admit.reports.outage.memory_figure import memory
from virt_admit.reports.outage.text import headline, outcome_words, period, subject

LEVEL_OF: Final = {
    LossOutcome.LOST: BAD,
    LossOutcome.NEVER: BAD,
    LossOutcome.NODE: SEVERE,
    LossOutcome.ROOM: SEVERE,
    LossOutcome.UNKNOWN: UNKNOWN,
    LossOutcome.OFF: NOTICE,
    LossOutcome.RESTARTS: GOOD,
}
"""The color of each outcome."""
_MOST_LANES: Final = 40
_YES: Final = {True: "yes", False: "no", None: "unknown"}
_PHASES: Final = {
    "detected": NOTICE,
    "waited": UNKNOWN,
    "earlier remediators": UNKNOWN,
    "remediated": SEVERE,
    "pod gone": SEVERE,
    next_vmis.MARKED: SEVERE,
    next_vmis.ENDED: SEVERE,
    next_vmis.FAILED_OVER: SEVERE,
    next_vmis.BACKOFF: UNKNOWN,
    "detached": BAD,
}
"""The color of each part of a time line; the start is good."""


def page(found: Outages, evidence: Iterable[tuple[str, str]] = (), owner: str = "") -> Page:
    """Return the page of an answer."""
    level, word = {False: (BAD, "No"), None: (UNKNOWN, "Unknown"), True: (GOOD, "Yes")}[
        found.survives
    ]
    rows = (vm for one in found.outages for vm in one.vms)
    number = Counter(vm.outcome for vm in rows if not vm.removed)
    figures = [_gantt(one) for one in found.outages[:1] if one.having(LossOutcome.RESTARTS)]
    figures += [figure for one in found.outages[:1] if (figure := memory(one)) is not None]
    return Page(
        title=f"Loss {subject(found)}",
        subject=owner,
        verdict=PageVerdict(level, word, headline(found)),
        tiles=tuple(
            Tile(LEVEL_OF[outcome], number[outcome], f"VMs: {outcome}") for outcome in LossOutcome
        ),
        causes_title="Causes and what to do",
        causes=worst_first((*_short(found), *_vms(found))),
        figures=tuple(figures),
        tables=tuple(_tables(found)),
        notes=tuple((title, lines) for title, lines in _notes(found) if lines),
        evidence=tuple(evidence),
    )


def _short(found: Outages) -> Iterator[PageCause]:
    for one in found.outages:
        for short in one.room.short:
            text = (
                f"{amount(short.resource, short.amount)} short: at least {count(short.vms, 'VM')} "
                "without a place."
            )
            item, remedy = CauseItem(names(one.nodes)), "Free room, stop VMs or add a node."
            yield PageCause(BAD, "no room", "", text, remedy, (item,))


def _vms(found: Outages) -> Iterator[PageCause]:
    """Yield one cause for VMs with the same outcome, reason and remedy."""
    rows = (vm for one in found.outages for vm in one.vms)
    return grouped(
        (
            PageCause(
                LEVEL_OF[vm.outcome],
                outcome_words(vm),
                "",
                sentence(vm.reason),
                vm.remedy,
                (CauseItem(vm.vmi.full_name, vm.node),),
            ),
            vm.vmi.name,
        )
        for vm in rows
    )


def _gantt(one: Outage) -> Figure:
    rows = one.having(LossOutcome.RESTARTS)
    drawn = rows[:_MOST_LANES]
    end = max((_ends(vm) for vm in drawn), default=1)
    caption = (
        f"The earliest restart of each VM after the loss of {names(one.nodes)}, in seconds from "
        "the loss."
    )
    if len(rows) > len(drawn):
        caption += f" The slowest {len(drawn)} of {len(rows)} VMs are shown."
    legend = (
        (NOTICE, "detect"),
        (UNKNOWN, "wait"),
        (SEVERE, "remediate"),
        (BAD, "detach volumes"),
        (GOOD, "start"),
    )
    return Figure("Time lines", caption, svg.lanes([_lane(vm) for vm in drawn], end), legend)


def _ends(vm: LostVm) -> int:
    return sum(part.low for part in vm.parts)


def _lane(vm: LostVm) -> svg.Lane:
    stretches, begin = [], 0
    for part in vm.parts:
        if part.low:
            stretches.append(svg.Stretch(_PHASES.get(part.what, GOOD), begin, begin + part.low))
        begin += part.low
    text = period(vm.at) if vm.at is not None else ""
    return svg.Lane(vm.vmi.full_name, tuple(stretches), text)


def _tables(found: Outages) -> Iterator[Table]:
    losses: tuple[tuple[Cell, ...], ...] = tuple(
        (
            names(one.nodes),
            _YES[one.survives],
            _YES[one.room.fits],
            len(one.vms),
            "; ".join(one.because),
        )
        for one in found.outages
    )
    if losses:
        yield Table("Losses", ("Nodes", "Survives", "Room", "VMs", "Because"), losses)
    actors = tuple(
        (
            actor.node,
            actor.check,
            actor.remediator,
            period(actor.at) if actor.at is not None else "not known" if actor.waits else "never",
            actor.refuses or actor.waits,
        )
        for one in found.outages
        for actor in one.actors
    )
    if actors:
        columns = ("Node", "Check", "Remediator", "Pods gone after", "Refuses")
        yield Table("Health checks", columns, actors)
    rows = tuple(
        (
            vm.vmi.full_name,
            vm.node,
            outcome_words(vm),
            vm.to or "",
            period(vm.at) if vm.at is not None else "",
            period(vm.by_hand) if vm.by_hand is not None else "",
        )
        for one in found.outages
        for vm in one.vms
    )
    if rows:
        yield Table("VMs", ("VM", "Node", "Outcome", "To", "After", "By hand"), rows)


def _notes(found: Outages) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Why", found.because
    yield "Not available", found.unseen


def split(found: Outages, owners: Owners) -> dict[str, Outages]:
    """Return the answer for each owner of VMs: the owner's VMs,
    and the losses that concern them.
    """
    every = sorted({owners.of(vm.vmi) for one in found.outages for vm in one.vms})
    parts: dict[str, Outages] = {}
    for owner in every:
        own = (
            replace(one, vms=tuple(vm for vm in one.vms if owners.of(vm.vmi) == owner))
            for one in found.outages
        )
        parts[owner] = replace(found, outages=tuple(one for one in own if one.vms))
    return parts
