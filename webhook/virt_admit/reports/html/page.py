"""A report as one self-contained page: the same parts for every report,
so that one template renders them all.

No text of an object is trusted. Jinja2 escapes it, ``sanitize`` removes what would reorder or hide
it, and the Content-Security-Policy admits only our style and script, by their hashes. Equal input
gives equal bytes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from virt_admit import __version__
from virt_admit.model import sanitize

T = TypeVar("T")

BAD: Final = "bad"
SEVERE: Final = "severe"
UNKNOWN: Final = "unknown"
NOTICE: Final = "notice"
GOOD: Final = "good"
LEVELS: Final = (BAD, SEVERE, UNKNOWN, NOTICE, GOOD)
"""The classes of color, worst first. A word always stands next to the color."""

_NUMBER: Final = re.compile(r"\d+")
TIME: Final = "time"
"""The name of the evidence that says when the data was read;
with several clusters ``time of NAME``.
"""
MOST_CAUSES: Final = 400
MOST_ITEMS: Final = 20_000
"""Objects that a page names. Beyond, it names some of each cause and the number of the others."""
MOST_ROWS: Final = 1_000
"""Rows of a table."""


class PageVerdict(NamedTuple):
    """The answer that a page begins with."""

    level: str
    word: str
    text: str


class Tile(NamedTuple):
    """A count."""

    level: str
    number: int
    label: str


class CauseItem(NamedTuple):
    """An object of a cause."""

    name: str
    place: str = ""
    """A node, or a file with a line."""
    command: str = ""
    """What to type about it."""


class PageCause(NamedTuple):
    """One cause with all its objects."""

    level: str
    word: str
    title: str
    text: str
    remedy: str = ""
    items: tuple[CauseItem, ...] = ()
    total: int = 0
    """The number of objects if not all are listed."""

    @property
    def number(self) -> int:
        return self.total or len(self.items)


class Figure(NamedTuple):
    """A picture. Its caption says what it shows, and what was left out."""

    title: str
    caption: str
    svg: Markup
    legend: tuple[tuple[str, str], ...] = ()
    """Classes of color with their meaning."""


class Link(NamedTuple):
    """A cell that leads to another page of the same folder."""

    text: str
    href: str


Cell = str | int | Link


class Table(NamedTuple):
    """A table that the reader can sort."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows, in the order in which people read it."""

    title: str
    subject: str
    verdict: PageVerdict
    tiles: tuple[Tile, ...] = ()
    leading: tuple[Table, ...] = ()
    """Tables that stand before the causes."""
    causes_title: str = "Causes"
    causes: tuple[PageCause, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further lists with their titles."""
    evidence: tuple[tuple[str, str], ...] = ()
    """What the report rests on: policy, source, version."""

    @property
    def time(self) -> str:
        """When the data was read (RFC 3339); of several clusters the oldest. Empty: not known."""
        return min(
            (value for name, value in self.evidence if f"{name} ".startswith(f"{TIME} ")),
            default="",
        )


def render(page: Page) -> str:
    """Return a page as HTML."""
    causes, left_out = bounded(page.causes)
    tables = tuple(table._replace(rows=table.rows[:MOST_ROWS]) for table in page.tables)
    context = {
        "page": replace(page, causes=causes, tables=tables),
        "sizes": [len(table.rows) for table in page.tables],
        "left_out": left_out,
        "version": __version__,
        "levels": LEVELS,
    }
    return _environment().get_template("page.html").render(context)


def bounded(causes: Sequence[PageCause]) -> tuple[tuple[PageCause, ...], int]:
    """Return the causes with as many objects as a page can show,
    and the number of objects that are only counted.
    """
    shown = [*causes[:MOST_CAUSES], *_merged(causes[MOST_CAUSES:])]
    total = sum(len(cause.items) for cause in shown)
    if total <= MOST_ITEMS:
        return tuple(shown), 0
    most = max(1, MOST_ITEMS // len(shown))
    cut = tuple(cause._replace(items=cause.items[:most], total=cause.number) for cause in shown)
    return cut, total - sum(len(cause.items) for cause in cut)


def _merged(causes: Iterable[PageCause]) -> list[PageCause]:
    """Return one cause for each class and title."""
    found: dict[tuple[str, str, str], list[PageCause]] = {}
    for cause in causes:
        found.setdefault(cause[:3], []).append(cause)
    return [
        PageCause(
            *key,
            f"{len(some)} further causes",
            items=tuple(item for cause in some for item in cause.items),
        )
        for key, some in found.items()
    ]


def pattern(text: str, name: str) -> str:
    """Return a text without what differs from object to object: its own name, and numbers."""
    return _NUMBER.sub("#", text.replace(name, "*") if name else text)


def grouped(causes: Iterable[tuple[PageCause, str]]) -> Iterator[PageCause]:
    """Join causes whose texts differ only in names and numbers of their objects; the text of the
    first is the example.

    Args:
        causes: causes with one object each, and the name of that object.
    """
    pairs = list(causes)
    equal = Counter(cause[:5] for cause, _ in pairs)
    groups: dict[tuple[str, ...], list[PageCause]] = {}
    for cause, own_name in pairs:
        # a text of several objects contains none of their names
        name = "" if equal[cause[:5]] > 1 else own_name
        key = (*cause[:3], pattern(cause.text, name), pattern(cause.remedy, name))
        groups.setdefault(key, []).append(cause)
    for some in groups.values():
        first = min(some, key=lambda cause: cause.items)
        differ = any(cause.text != first.text for cause in some)
        items = tuple(sorted(item for cause in some for item in cause.items))
        yield first._replace(
            text=f"For example: {first.text}" if differ else first.text, items=items
        )


def worst_first(causes: Iterable[PageCause]) -> tuple[PageCause, ...]:
    """Return the causes by level, the one with most objects first."""
    return tuple(
        sorted(causes, key=lambda cause: (LEVELS.index(cause.level), -cause.number, cause[1:5]))
    )


def shown(build: Callable[[T], str], value: T) -> str:
    """Return a text about a value; if it cannot be made, one that says so.

    One object never costs the whole page.
    """
    try:
        return build(value)
    except Exception as error:
        return f"cannot be shown ({type(error).__name__})"


def _printable(value: Any) -> Any:
    """Return what a template prints: texts without control characters and marks of direction."""
    return (
        sanitize.cell(value) if isinstance(value, str) and not isinstance(value, Markup) else value
    )


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for kind in ("css", "js"):
        environment.globals[kind] = Markup(_source(environment, kind))  # noqa: S704 - our own file
    hashes = {
        kind: hashlib.sha256(_source(environment, kind).encode()).digest() for kind in ("css", "js")
    }
    css, js = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes.values())
    environment.globals["policy"] = Markup(  # noqa: S704 - our own text
        f"default-src 'none'; style-src {css}; script-src {js}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return environment


def _source(environment: Environment, kind: str) -> str:
    source, _, _ = environment.loader.get_source(environment, f"page.{kind}")  # type: ignore[union-attr]
    return source


def content_security_policy() -> str:
    """Return the policy of every page: only its own style and script, by their hashes."""
    return str(_environment().globals["policy"])
