"""The page of ``watch``: nodes that cannot be drained and findings,
as of the latest judgement of the cluster.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.forecasts.drain.ongoing_drains import OngoingDrain
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.messages import count, names
from virt_admit.reports.drain.words import range_words
from virt_admit.reports.findings import html as findings_html
from virt_admit.reports.findings.report import Report
from virt_admit.reports.html.causes import worst_first
from virt_admit.reports.html.levels import BAD, GOOD, LEVELS, NOTICE, SEVERE, UNKNOWN
from virt_admit.reports.html.page import TIME, Page, PageVerdict, Table, Tile

_NOT_YET = PageVerdict(UNKNOWN, "Not judged yet", "Objects are still being listed.")
EMPTY = Page(title="Cluster", subject="", verdict=_NOT_YET)
"""The page before the first judgement."""


def page(
    report: Report,
    plan: Plan,
    drained: Page,
    unreadable: Collection[str],
    judged_at: datetime.datetime,
    drains: Collection[OngoingDrain] = (),
    ends_in: Mapping[str, Range] = MappingProxyType({}),
) -> Page:
    """Return the page of one judgement.

    Args:
        report: the findings.
        plan: the drains of all nodes.
        drained: their page.
        unreadable: the kinds (``plural.group``) that could not be listed.
        judged_at: the time of the judgement. The page reads no clock, so that equal input gives
            equal bytes.
        drains: the nodes that are being drained.
        ends_in: how long the drain of each node lasts from then, as far as it ends.
    """
    found = findings_html.page(report)
    blocked = sum(node.drainable is False for node in plan.nodes)
    unknown = sum(node.drainable is None for node in plan.nodes)
    return Page(
        title="Cluster",
        subject="",
        verdict=_verdict(
            found.verdict, drained.verdict, incomplete=bool(unreadable) or report.crashed
        ),
        tiles=(
            Tile(BAD, blocked, "nodes that cannot be drained"),
            Tile(UNKNOWN, unknown, "nodes not determined"),
            Tile(GOOD, len(plan.nodes) - blocked - unknown, "nodes that can be drained"),
            *(tile for tile in found.tiles if tile.level != NOTICE),
        ),
        leading=tuple(_under_way(drains, ends_in)),
        causes_title="What to act on",
        causes=worst_first(
            cause for cause in (*drained.causes, *found.causes) if cause.level != GOOD
        ),
        figures=(*drained.figures, *found.figures),
        tables=drained.tables,
        notes=tuple(_notes(unreadable, (*drained.notes, *found.notes))),
        evidence=(*found.evidence, (TIME, judged_at.isoformat())),
    )


def _under_way(drains: Collection[OngoingDrain], ends_in: Mapping[str, Range]) -> Iterator[Table]:
    """Yield the table of nodes that are being drained and not empty yet,
    those with stuck VMs first.
    """
    not_empty = (each for each in drains if not each.empty)
    left = sorted(not_empty, key=lambda each: (-each.stuck, each.node))
    rows = tuple(
        (
            each.node,
            each.start.by,
            _clock(each.start.since) if each.start.since is not None else "not known",
            len(each.vms),
            each.stuck,
            each.others,
            range_words(ends_in[each.node]) if each.node in ends_in else "not known, or never",
        )
        for each in left
    )
    if rows:
        yield Table("Drains under way", _UNDER_WAY, rows)


_UNDER_WAY: Final = (
    "Node",
    "Drained by",
    "Since",
    "VMs left",
    "VMs stuck",
    "Other pods",
    "Ends in",
)


def _clock(time: datetime.datetime) -> str:
    return f"{time.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def _verdict(found: PageVerdict, drained: PageVerdict, *, incomplete: bool) -> PageVerdict:
    """Return the worse of the two answers, with both sentences."""
    text = f"{drained.text} {found.text}"
    if incomplete:
        return PageVerdict(UNKNOWN, "Incomplete", f"Some data cannot be read: see below. {text}")
    if drained.level == BAD:
        return PageVerdict(BAD, "Drains are blocked", text)
    level = min(found.level, drained.level, key=LEVELS.index)
    words = {BAD: found.word, SEVERE: "Needs attention", UNKNOWN: "Unknown", GOOD: "Ready"}
    return PageVerdict(level, words[level], text)


def _notes(
    unreadable: Collection[str], notes: Iterable[tuple[str, tuple[str, ...]]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if unreadable:
        lines = (
            f"{kind}: their number and their findings are unknown" for kind in sorted(unreadable)
        )
        yield "Not readable", tuple(lines)
    merged: dict[str, list[str]] = {}
    for title, texts in notes:
        merged.setdefault(title, []).extend(texts)
    for title, several in merged.items():
        yield title, tuple(dict.fromkeys(several))


def outdated(page: Page, kinds: Collection[str]) -> Page:
    """Return the page with the statement that changes of these kinds do not arrive."""
    if not kinds:
        return page
    which = f"{names(sorted(kinds))} ({count(len(kinds), 'kind')})"
    text = f"The API server sends no changes of {which}."
    text += f" Last known: {page.verdict.word}. {page.verdict.text}"
    verdict = PageVerdict(UNKNOWN, "Not current", text)
    return replace(page, verdict=verdict)
