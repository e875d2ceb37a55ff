"""``--max-age``: how old a snapshot may be,
because a forecast tells what a drain would do at that time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import click

from virt_admit.cli.options import ClusterOptions, Decorator, duration
from virt_admit.cli.output import tell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.units import MICROSECOND, SECOND, format_duration

SAVE: Final = "Save a new one: virt-admit scan --save FILE"
DEFAULT: Final = timedelta(hours=24)
_CLOCKS: Final = timedelta(minutes=10)
"""How far the clocks of this machine and of the API server may differ."""
_UNREADABLE: Final = 2


def _parse(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> timedelta | None:
    return None if text is None else timedelta(microseconds=duration(text) // MICROSECOND)


max_age_option: Final[Decorator] = click.option(
    "--max-age",
    metavar="DURATION",
    callback=_parse,
    help=(
        "Warn of a snapshot without time, or older than this; if given, such a snapshot is exit "
        "code 2.  [default: 24h]"
    ),
)


def judged(code: int, cluster: Cluster, source: ClusterOptions, max_age: timedelta | None) -> int:
    """Print one line on stderr about a snapshot that is too old or has no time,
    and return the exit code.

    Args:
        code: the exit code of the report.
        cluster: the cluster that was read.
        source: where it comes from; a live cluster is never too old.
        max_age: the value of ``--max-age``; None: not given, so that the exit code stays.
    """
    if source.cluster is None:
        return code
    if not cluster.known(NODE) and not clock.exact(cluster):  # a manifest, or half of a snapshot
        tell(f"{source.cluster}: no node and no time: this is not a snapshot of a cluster. {SAVE}")
        return code if max_age is None else _UNREADABLE
    problem = _problem(cluster, DEFAULT if max_age is None else max_age) or (
        max_age is not None and _early(cluster)
    )
    if not problem:
        return code
    tell(f"{source.cluster}: {problem}. {SAVE}")
    return code if max_age is None else _UNREADABLE


def _problem(cluster: Cluster, longest: timedelta) -> str:
    time = clock.exact(cluster)
    if time is None:
        return "this snapshot has no time, so its age is not known"
    age = datetime.now(UTC) - time
    if age <= longest:
        return ""
    return f"this snapshot is {_words(age)} old, and --max-age is {_words(longest)}"


def _early(cluster: Cluster) -> str:
    """Return what is wrong with a time in the future, of which the age is not known; empty:
    it is not.
    """
    time = clock.exact(cluster)
    ahead = time - datetime.now(UTC) if time is not None else timedelta()
    if ahead <= _CLOCKS:
        return ""
    remedy = "Correct the clock that is wrong"
    return f"the time of this snapshot is {_words(ahead)} in the future. {remedy}"


def _words(length: timedelta) -> str:
    if length >= _IN_DAYS:
        return clock.duration(length)
    seconds = int(length.total_seconds())
    return format_duration((seconds - seconds % 60 if seconds >= _ROUNDED else seconds) * SECOND)


_ROUNDED: Final = 3600
"""Seconds from which an age is shown in minutes."""
_IN_DAYS: Final = timedelta(days=3)
"""From here hours say nothing any more; below, an age is written as the flag is."""
