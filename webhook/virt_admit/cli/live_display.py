"""Where ``--follow`` shows what it finds: a terminal that is redrawn, lines of text,
or lines of JSON.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TextIO

import click

from virt_admit.model.sanitize import indented
from virt_admit.reports.following import End, FollowChange, json_line, text_line

REDRAW: Final = 1.0
"""Seconds: a terminal is redrawn at most so often."""


class Display(Protocol):
    """Receives changes and screens in their order."""

    def change(self, time: str | None, change: FollowChange) -> None:
        """Show one change."""

    def screen(self, lines: Sequence[str]) -> None:
        """Remember the whole state."""

    def refresh(self, warning: str) -> None:
        """Show the whole state if it is due, with a warning (empty: none)."""

    def end(self, time: str | None, end: End, state: object) -> None:
        """Show how it ended."""

    def close(self) -> None:
        """Leave the terminal in order."""


class JsonLines:
    """One JSON object a line."""

    def change(self, time: str | None, change: FollowChange) -> None:
        _print(json_line(time, change.type, change.value))

    def screen(self, _lines: Sequence[str]) -> None:
        pass

    def refresh(self, _warning: str) -> None:
        pass

    def end(self, time: str | None, end: End, state: object) -> None:
        _print(json_line(time, "end", end, state))

    def close(self) -> None:
        pass


class Lines:
    """One line for each change; the whole state at the end if nothing ended well."""

    def __init__(self) -> None:
        self._lines: Sequence[str] = ()
        self._warning = ""

    def change(self, time: str | None, change: FollowChange) -> None:
        if change.text:
            _print(text_line(time, change.text))

    def screen(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def refresh(self, warning: str) -> None:
        kind = warning.partition("(")[0]
        if kind != self._warning and (kind or self._warning) and not kind.startswith("reading"):
            click.echo(warning or "The API server sends changes again.", err=True)
        self._warning = "" if kind.startswith("reading") else kind

    def end(self, time: str | None, end: End, _state: object) -> None:
        if end.exit:
            for each in self._lines:
                _print(indented(each))
        _print(text_line(time, end.reason))

    def close(self) -> None:
        pass


class Redrawn:
    """The whole state on a terminal, redrawn in place. The last one stays, uncut."""

    def __init__(
        self, out: TextIO, size: Callable[[], tuple[int, int]] = shutil.get_terminal_size
    ) -> None:
        self._out, self._size = out, size
        self._lines: Sequence[str] = ()
        self._shown: list[str] | None = None
        self._height = 0
        self._due = 0.0

    def change(self, _time: str | None, _change: FollowChange) -> None:
        pass

    def screen(self, lines: Sequence[str]) -> None:
        self._lines = tuple(map(indented, lines))

    def refresh(self, warning: str) -> None:
        current = time.monotonic()
        if current < self._due:
            return
        columns, rows = self._size()
        lines = [
            part
            for each in (*([warning] if warning else ()), *self._lines)
            for part in _wrap(each, columns)
        ]
        if len(lines) >= rows:
            lines = [*lines[: max(rows - 2, 1)], f"… {len(lines) - rows + 2} more lines"]
        if lines != self._shown:
            self._draw(lines)
            self._due = current + REDRAW

    def end(self, time: str | None, end: End, _state: object) -> None:
        self._draw([*self._lines, text_line(time, end.reason)])

    def close(self) -> None:
        self._out.flush()

    def _draw(self, lines: list[str]) -> None:
        """Replace what was drawn: the cursor goes up to its first line,
        and everything below is erased.
        """
        up = f"\x1b[{self._height}F" if self._height else ""
        self._out.write(f"{up}\x1b[J" + "".join(f"{each}\n" for each in lines))
        self._out.flush()
        self._shown, self._height = lines, len(lines)


def _wrap(text: str, columns: int) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text, max(columns - 1, 20), subsequent_indent=indent, drop_whitespace=False
    ) or [""]


def _print(text: str) -> None:
    click.echo(text)  # flushes
