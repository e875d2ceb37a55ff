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
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from virt_admit import __version__
from virt_admit.model import sanitize
from virt_admit.reports.html.causes import PageCause, bounded
from virt_admit.reports.html.levels import LEVELS

TIME: Final = "time"
"""The name of the evidence that says when the data was read;
with several clusters ``time of NAME``.
"""
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
        times = (value for name, value in self.evidence if f"{name} ".startswith(f"{TIME} "))
        return min(times, default="")


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


def _printable(value: Any) -> Any:
    """Return what a template prints: texts without control characters and marks of direction."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return sanitize.cell(value) if is_text else value


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
