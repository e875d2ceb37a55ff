"""Pictures as SVG: stacked bars, a grid of squares, lanes on a time axis.

Colors are classes of the page's style.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from virt_admit.model import sanitize
from virt_admit.model.messages import cut

WIDTH: Final = 960
LABEL: Final = 230
"""The width of the labels on the left."""
TEXT: Final = 170
"""The width of the texts on the right."""
ROW: Final = 24
SQUARE: Final = 10
PER_LINE: Final = (WIDTH - LABEL - 60) // (SQUARE + 2)
"""Squares in a line."""
_HOURS: Final = (1, 2, 4, 8, 12, 24)
TICKS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, *(3600 * n for n in _HOURS))
"""Distances of ticks on a time axis, in seconds."""


class BarPart(NamedTuple):
    """A part of a bar: a class of color and its size."""

    level: str
    size: int


class Bar(NamedTuple):
    """A row of a bar chart."""

    label: str
    parts: tuple[BarPart, ...]
    text: str


class Stretch(NamedTuple):
    """A stretch of time in seconds; ``end`` is None if it is open."""

    level: str
    start: int
    end: int | None


class Lane(NamedTuple):
    """A row on a time axis. Several stretches are drawn below each other."""

    label: str
    stretches: tuple[Stretch, ...]
    text: str = ""


def bars(rows: Sequence[Bar]) -> Markup:
    """Return a stacked bar for each row, on one scale."""
    most = max((sum(part.size for part in row.parts) for row in rows), default=0) or 1
    scale = (WIDTH - LABEL - TEXT) / most
    out: list[Markup] = []
    for number, row in enumerate(rows):
        top, left = number * ROW, float(LABEL)
        out.append(_label(row.label, top))
        for part in row.parts:
            width = part.size * scale
            if width > 0:
                out.append(_box(part.level, left, top + 4, max(width, 1), ROW - 8))
                left += width
        out.append(_text(row.text, left + 8, top))
    return _svg(len(rows) * ROW, out)


def grid(rows: Sequence[Bar]) -> Markup:
    """Return a row of squares for each bar, one for each unit; long rows wrap."""
    out: list[Markup] = []
    top = 0
    for row in rows:
        total = sum(part.size for part in row.parts)
        out.append(_label(row.label, top))
        position = 0
        for part in row.parts:
            steps = "".join(_square(position + index, top) for index in range(part.size))
            position += part.size
            if steps:
                # numbers
                out.append(Markup('<path class="{}" d="{}"/>').format(part.level, Markup(steps)))  # noqa: S704
        out.append(_text(row.text, WIDTH - 50, top))
        top += max(ROW, -(-total // PER_LINE) * (SQUARE + 2) + 12)
    return _svg(top, out)


def _square(index: int, top: int) -> str:
    line, column = divmod(index, PER_LINE)
    x, y = LABEL + column * (SQUARE + 2), top + 7 + line * (SQUARE + 2)
    return f"M{x} {y}h{SQUARE}v{SQUARE}h-{SQUARE}z"


def lanes(rows: Sequence[Lane], end: int) -> Markup:
    """Return lanes on a time axis from 0 to ``end`` seconds."""
    right = WIDTH - TEXT
    scale = (right - LABEL) / max(end, 1)
    height = len(rows) * ROW
    step = next((step for step in TICKS if end / step <= 8), 86400 * -(-end // (86400 * 8)))
    out: list[Markup] = []
    for tick in range(0, end + 1, step):
        x = LABEL + tick * scale
        out.append(
            Markup('<line class="tick" x1="{0}" x2="{0}" y1="0" y2="{1}"/>').format(_n(x), height)
        )
        out.append(
            Markup('<text class="axis" x="{}" y="{}">{}</text>').format(
                _n(x), height + 16, clock(tick)
            )
        )
    for number, row in enumerate(rows):
        top = number * ROW
        out.append(_label(row.label, top))
        thick = (ROW - 8) / max(len(row.stretches), 1)
        for index, stretch in enumerate(row.stretches):
            start = LABEL + stretch.start * scale
            stop = right if stretch.end is None else LABEL + stretch.end * scale
            out.append(
                _box(stretch.level, start, top + 4 + index * thick, max(stop - start, 4), thick - 1)
            )
        out.append(_text(row.text, right + 8, top))
    return _svg(height + 22, out)


def clock(seconds: int) -> str:
    """Return a time on an axis: ``0``, ``40 s``, ``5 min``, ``2 h 30 min``, ``3 d``."""
    return " ".join(_units(seconds)) or "0"


def _units(seconds: int) -> Iterator[str]:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        number, seconds = divmod(seconds, size)
        if number:
            yield f"{number} {unit}"


def _svg(height: int, parts: Sequence[Markup]) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" aria-hidden="true" focusable="false">')
    return head.format(WIDTH, height) + Markup("").join(parts) + Markup("</svg>")


def _label(text: str, top: int) -> Markup:
    short = _short(text, 32)
    squeeze = Markup(' textLength="{}" lengthAdjust="spacingAndGlyphs"')
    squeezed = squeeze.format(LABEL - 14) if len(short) > 28 else ""
    text = Markup('<text x="{}" y="{}" class="label"{}>{}</text>')
    return text.format(LABEL - 10, top + 16, squeezed, short)


def _text(text: str, x: float, top: int) -> Markup:
    return Markup('<text x="{}" y="{}">{}</text>').format(_n(x), top + 16, _short(text, 60))


def _box(level: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        level, _n(x), _n(y), _n(width), _n(height)
    )


def _short(text: str, length: int) -> str:
    return cut(sanitize.line(text), length)


def _n(value: float) -> str:
    """Return a number in as few characters as a picture needs."""
    return f"{value:.1f}".removesuffix(".0")
