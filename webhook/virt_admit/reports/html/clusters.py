"""One page about several clusters: a matrix of clusters and verdicts first,
then the parts of each cluster's page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from virt_admit.model.messages import count, names
from virt_admit.reports.html.causes import CauseItem, PageCause, joined, worst_first
from virt_admit.reports.html.levels import BAD, LEVELS, UNKNOWN
from virt_admit.reports.html.page import Figure, Page, PageVerdict, Table, Tile

_MOST_FIGURES: Final = 20
"""Pictures of one page."""


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """What is known of one cluster: its page, or why it could not be read."""

    cluster: str
    page: Page | None = None
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """Further columns of the matrix."""
    error: str = ""


def combine(title: str, parts: Sequence[ClusterPart], subject: str = "") -> Page:
    """Return the page about several clusters."""
    read = [(part.cluster, part.page) for part in parts if part.page is not None]
    away = [part for part in parts if part.error]
    ranked = (each for of_rank in _by_rank(read) for each in of_rank)
    figures = [each._replace(title=f"{each.title}: {name}") for name, each in ranked]
    notes = [(f"{heading}: {name}", lines) for name, page in read for heading, lines in page.notes]
    if len(figures) > _MOST_FIGURES:
        shown = f"The first {_MOST_FIGURES} of {len(figures)} pictures are shown."
        notes.append(("Pictures", (shown,)))
    return Page(
        title=f"{title} of {count(len(parts), 'cluster')}",
        subject=subject,
        verdict=_verdict(read, away),
        tiles=(
            *_tiles(page for _, page in read),
            Tile(BAD, len(away), "clusters that cannot be read"),
        ),
        leading=(_matrix(parts),),
        causes_title=next((page.causes_title for _, page in read), "Causes"),
        causes=worst_first((*_unreadable(away), *joined(_causes(read)))),
        figures=tuple(figures[:_MOST_FIGURES]),
        tables=tuple(
            table._replace(title=f"{table.title}: {name}")
            for name, page in read
            for table in page.tables
        ),
        notes=tuple(notes),
        evidence=tuple(
            (f"{key} of {name}", value) for name, page in read for key, value in page.evidence
        ),
    )


def _by_rank(read: Sequence[tuple[str, Page]]) -> Iterator[list[tuple[str, Figure]]]:
    """Yield the first picture of each cluster, then the second of each."""
    for rank in range(max((len(page.figures) for _, page in read), default=0)):
        yield [(name, page.figures[rank]) for name, page in read if rank < len(page.figures)]


def _verdict(read: Sequence[tuple[str, Page]], away: Sequence[ClusterPart]) -> PageVerdict:
    by_word: dict[tuple[str, str], list[str]] = {}
    for name, page in read:
        by_word.setdefault((page.verdict.level, page.verdict.word), []).append(name)
    ranked = sorted(by_word.items(), key=lambda one: LEVELS.index(one[0][0]))
    sentences = [f"{word}: {names(clusters)}." for (_, word), clusters in ranked]
    if away:
        sentences.insert(0, f"Cannot be read: {names(part.cluster for part in away)}.")
    worst = ranked[0][0] if ranked else (UNKNOWN, "Unknown")
    if away and worst[0] != BAD:
        worst = (UNKNOWN, "Incomplete")
    return PageVerdict(*worst, " ".join(sentences))


def _tiles(pages: Iterable[Page]) -> Iterator[Tile]:
    """Yield the counts of all clusters together."""
    totals: dict[tuple[str, str], int] = {}
    for page in pages:
        for tile in page.tiles:
            totals[tile.level, tile.label] = totals.get((tile.level, tile.label), 0) + tile.number
    for (level, label), number in totals.items():
        yield Tile(level, number, label)


def _matrix(parts: Sequence[ClusterPart]) -> Table:
    columns = list(dict.fromkeys(column for part in parts for column in part.verdicts))
    rows = tuple(
        (
            part.cluster,
            part.page.verdict.word if part.page else "cannot be read",
            *(part.verdicts.get(column, "-") for column in columns),
            part.page.verdict.text if part.page else part.error,
        )
        for part in parts
    )
    return Table("Clusters", ("Cluster", "Verdict", *columns, "Summary"), rows)


def _unreadable(away: Iterable[ClusterPart]) -> Iterator[PageCause]:
    for part in away:
        yield PageCause(BAD, "cannot be read", "", part.error, "", (CauseItem(part.cluster),))


def _causes(read: Iterable[tuple[str, Page]]) -> Iterator[PageCause]:
    """Yield the causes of each cluster, with objects that name the cluster."""
    for name, page in read:
        for cause in page.causes:
            items = tuple(
                CauseItem(f"{name}: {item.name}", item.place) for item in cause.items
            ) or (CauseItem(name),)
            yield cause._replace(items=items)
