"""The causes of a page: each once, with all its objects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from virt_admit.reports.html.levels import LEVELS

T = TypeVar("T")

MOST_CAUSES: Final = 400
MOST_ITEMS: Final = 20_000
"""Objects that a page names. Beyond, it names some of each cause and the number of the others."""
_NUMBER: Final = re.compile(r"\d+")


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


def joined(causes: Iterable[PageCause]) -> Iterator[PageCause]:
    """Yield causes that differ only in their objects as one, in the place of the first."""
    items: dict[tuple[str, str, str, str, str], list[CauseItem]] = {}
    for cause in causes:
        items.setdefault(cause[:5], []).extend(cause.items)
    yield from (PageCause(*key, tuple(some)) for key, some in items.items())


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
        text = f"For example: {first.text}" if differ else first.text
        yield first._replace(text=text, items=items)


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
