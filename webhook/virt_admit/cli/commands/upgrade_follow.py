"""``virt-admit upgrade --follow``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from virt_admit.forecasts.upgrade.planned_upgrade import PlannedUpgrade
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.sanitize import line

if TYPE_CHECKING:
    from virt_admit.cli.follow_options import FollowOptions
    from virt_admit.cli.options import ClusterOptions

_LARGEST: Final = 64 * 2**20
"""Bytes of a plan; 10,000 VMs on 500 nodes make 4 MB."""


def run(
    options: Options,
    following: FollowOptions,
    against: str | None,
    sources: Sequence[tuple[str, ClusterOptions]],
    form: str,
) -> int:
    """Follow an upgrade, and return the exit code.

    Raises:
        UsageError: options exclude each other, or the plan is not valid.
        ClickException: no cluster is named.
    """
    from virt_admit.cli import following as loop  # noqa: PLC0415 - importing kubernetes takes 0.3 s
    from virt_admit.reports.upgrade.follow import READS, UpgradeFollower  # noqa: PLC0415

    (_, source), *others = sources
    if others or source.cluster is not None:
        raise click.UsageError("--follow needs one live cluster")
    if options.from_start:
        raise click.UsageError("--follow excludes --from-start: it follows what is under way")
    planned = read(against) if against is not None else None
    display = following.display(form)
    limits = loop.FollowLimits(timeout=following.timeout, stalled=following.stalled)
    return loop.follow(
        loop.live_cluster(source, READS), UpgradeFollower(options, planned), display, limits
    )


def read(file: str) -> PlannedUpgrade:
    """Return the plan in a file.

    Raises:
        BadParameter: it cannot be read, or is something else.
    """
    try:
        if Path(file).stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST // 2**20} MiB")
        return PlannedUpgrade.of_report(json.loads(Path(file).read_text()))
    except OSError as error:
        why = error.strerror or "it cannot be read"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = f"it is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
    raise click.BadParameter(line(f"{file}: {why}"), param_hint="--against")
