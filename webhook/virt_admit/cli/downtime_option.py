"""``--fail-on-downtime[=DURATION]``: exit code 1 where guests would stand still."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from virt_admit.cli.options import duration
from virt_admit.forecasts.drain.vm_downtime import Downtime
from virt_admit.model.kubernetes.units import SECOND

_FLAG: Final = "--fail-on-downtime"
_ANY: Final = "0s"


class DowntimeCommand(click.Command):
    """A command whose flag has an optional value.

    Only ``FLAG=VALUE`` is one: the next word may be a node.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        flags = [f"{_FLAG}={_ANY}" if word == _FLAG else word for word in args[:end]]
        return super().parse_args(ctx, [*flags, *args[end:]])


def _seconds(_context: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else duration(value) / SECOND


fail_on_downtime: Final = click.option(
    _FLAG,
    "longest_downtime",
    metavar="[=DURATION]",
    callback=_seconds,
    help=(
        "Exit with 1 also if a VM would be shut down; with a duration such as =10m only if it may "
        "be down longer."
    ),
)


def judged(code: int, downtimes: Iterable[Downtime | None], longest: float | None) -> int:
    """Return the exit code: 1 instead of 0 if a guest would be down, and may be for longer than
    ``longest`` seconds.
    """
    if code or longest is None:
        return code
    return int(any(found is not None and found.exceeds(longest) for found in downtimes))
