"""The options of ``--follow``, and the display that they ask for."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Final, NamedTuple

import click

from virt_admit.cli.live_display import Display, JsonLines, Lines, Redrawn
from virt_admit.cli.options import Decorator, combined, grouped
from virt_admit.model.kubernetes.units import MICROSECOND, parse_duration


class FollowOptions(NamedTuple):
    """Whether and how a live cluster is followed."""

    follow: bool
    lines: bool
    timeout: timedelta | None
    stalled: timedelta | None

    def chosen(self) -> bool:
        """Return whether to follow.

        Raises:
            UsageError: an option needs ``--follow``, which is not given.
        """
        for given, flag in (
            (self.lines, "--lines"),
            (self.timeout, "--timeout"),
            (self.stalled, "--stalled"),
        ):
            if given not in (False, None) and not self.follow:
                raise click.UsageError(f"{flag} needs --follow")
        return self.follow

    def display(self, form: str) -> Display:
        """Return where changes appear, by the output format.

        Raises:
            UsageError: the format is not possible.
        """
        if form not in ("text", "json"):
            raise click.UsageError(f"--follow prints text or json, not {form}")
        if form == "json":
            return JsonLines()
        return Redrawn(sys.stdout) if sys.stdout.isatty() and not self.lines else Lines()


def _duration(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> timedelta | None:
    if text is None:
        return None
    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if nanoseconds <= 0:
        raise click.BadParameter(f"{text} is not a positive duration")
    return timedelta(microseconds=nanoseconds // MICROSECOND)


follow_options: Final[Decorator] = combined(
    click.option(
        "--follow", is_flag=True, help="Follow a live cluster until nothing is left to do."
    ),
    click.option(
        "--lines", is_flag=True, help="With --follow: a line for each change, also on a terminal."
    ),
    click.option(
        "--timeout",
        metavar="DURATION",
        callback=_duration,
        help="With --follow: exit 1 after this time.",
    ),
    click.option(
        "--stalled",
        metavar="DURATION",
        callback=_duration,
        help=(
            "With --follow: exit 1 after this time without progress, if it does not end by itself."
        ),
    ),
    grouped("following", FollowOptions),
)
