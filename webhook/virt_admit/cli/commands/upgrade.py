"""``virt-admit upgrade``: rehearse the roll-out of nodes before it starts. Only reads."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from virt_admit.cli import downtime_option, forecast_flow, processes, snapshot_age
from virt_admit.cli.cluster_source import AnyCluster
from virt_admit.cli.commands import upgrade_follow
from virt_admit.cli.follow_options import FollowOptions, follow_options
from virt_admit.cli.forecast_flow import ClusterForecast
from virt_admit.cli.html_output import Evidence, OwnerPages
from virt_admit.cli.options import (
    ClustersOptions,
    OutputOptions,
    clusters_options,
    combined,
    grouped,
    jobs_option,
    page_output_options,
)
from virt_admit.cli.output import EXIT_CODES
from virt_admit.forecasts.upgrade import estimate_basis, stop_layers
from virt_admit.forecasts.upgrade.rehearsal import READS, Options, Rehearsal, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VMI, Kind
from virt_admit.model.sanitize import line
from virt_admit.reports.upgrade import report, surroundings
from virt_admit.reports.upgrade import text as upgrade_text

if TYPE_CHECKING:
    from virt_admit.reports.html.owners import Owners

LOOKS_UP: Final[tuple[Kind, ...]] = tuple(READS)
"""The kinds that a rehearsal needs from a live cluster."""


def _say(step: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{step} …", err=True)


class RehearsalOptions(NamedTuple):
    """What is rehearsed, and when it begins."""

    by: str | None
    max_unavailable: str | None
    node_minutes: int | None
    from_start: bool
    start: str | None
    all_stops: bool
    assume_fixed: tuple[str, ...]

    def options(self, cluster: Cluster | None = None) -> Options:
        """Return what an administrator tries out; ``cluster``: what tells the time of a node."""
        options = Options(
            Driver(self.by) if self.by else None, self.max_unavailable, from_start=self.from_start
        )
        minutes = self.node_minutes
        if minutes is None and cluster is not None:
            minutes = estimate_basis.node_minutes(options.driver, cluster)
        return options if minutes is None else replace(options, node_minutes=minutes)

    def rehearse(
        self,
        cluster: Cluster,
        progress: Callable[[str], None] = lambda _: None,
        in_order: InOrder = map,
    ) -> Rehearsal:
        """Rehearse the upgrade of a cluster. ``in_order`` does the drains and the runs.

        Raises:
            BadParameter: an option is not valid.
        """
        try:
            if not self.all_stops and not self.assume_fixed:
                return rehearse(cluster, self.options(cluster), progress, in_order=in_order)
            from virt_admit.reports.explain import judged_rules  # noqa: PLC0415 - loads all rules

            of_rule = partial(judged_rules.problems_of_rule, cluster)
            return stop_layers.rehearse(
                cluster,
                self.options(cluster),
                self.assume_fixed,
                of_rule,
                every=self.all_stops,
                in_order=in_order,
            )
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--max-unavailable") from None
        except LookupError as error:
            raise click.BadParameter(line(str(error)), param_hint="--assume-fixed") from None


_rehearsal_options: Final = combined(
    click.option(
        "--by",
        type=click.Choice([driver.value for driver in Driver]),
        help=(
            "Who updates the nodes. Default: machineconfig with MachineConfigPools, cluster-api "
            "with MachineDeployments, else plain."
        ),
    ),
    click.option(
        "--max-unavailable",
        metavar="N|P%",
        help="Nodes of each pool that are updated at the same time.",
    ),
    click.option(
        "--node-minutes",
        type=click.IntRange(0, 100_000),
        help=(
            "Minutes for the update and reboot of one node, or for its replacement. Default: as "
            "the last replacements of Cluster API took, else 10."
        ),
    ),
    click.option(
        "--from-start", is_flag=True, help="Rehearse all nodes: ignore what is under way."
    ),
    click.option(
        "--start",
        metavar="TIME",
        help="Begin of the upgrade (ISO 8601), for wall-clock times in text.",
    ),
    click.option(
        "--all-stops",
        is_flag=True,
        help="Also show what would stop it after the first stops are fixed.",
    ),
    click.option(
        "--assume-fixed",
        multiple=True,
        metavar="ID|RULE|NAMESPACE/NAME",
        help="Rehearse as if these problems were fixed. The exit code stays that of today.",
    ),
    grouped("rehearsed", RehearsalOptions),
)


@click.command(
    "upgrade",
    cls=downtime_option.DowntimeCommand,
    short_help="Rehearse an upgrade: order, waves, hours, and what stops it.",
)
@_rehearsal_options
@follow_options
@click.option(
    "--against", metavar="FILE", help="With --follow: compare with the JSON of an earlier upgrade."
)
@downtime_option.fail_on_downtime
@snapshot_age.max_age_option
@jobs_option
@clusters_options
@page_output_options
def command(
    rehearsed: RehearsalOptions,
    following: FollowOptions,
    against: str | None,
    longest_downtime: float | None,
    max_age: datetime.timedelta | None,
    jobs: int | None,
    clusters: ClustersOptions,
    output: OutputOptions,
) -> int:
    """Rehearse the update of all nodes: order, waves, duration, moves of each VM, and what stops
    it. Changes nothing.

    Where nodes are being updated already, it goes on from there: the duration is what is left. It
    is an estimate between the shortest and the longest run. Exit 0 the upgrade is possible, 1
    something stops it or an operator is held, 2 the answer cannot be determined; of several
    clusters the highest exit code. With --fail-on-downtime a VM that is shut down makes 0 a 1. With
    --follow: 0 all nodes are done, 1 --timeout or --stalled has passed, 2 rights are missing or the
    API server does not answer.
    """
    begin = _time(rehearsed.start)
    to = output.parse()
    sources = clusters.each()
    if following.chosen():
        return upgrade_follow.run(rehearsed.options(), following, against, sources, to.form)
    if against is not None:
        raise click.UsageError("--against needs --follow")
    if len(sources) > 1:
        return forecast_flow.run_each(
            "Upgrade",
            sources,
            LOOKS_UP,
            lambda cluster: forecast(rehearsed.rehearse(cluster), cluster, begin, longest_downtime),
            to,
            max_age,
        )

    def judge(cluster: AnyCluster) -> ClusterForecast:
        say = _say if to.form != "json" else lambda _: None
        result = rehearsed.rehearse(cluster, say, processes.sharing(cluster, jobs))
        result = surroundings.with_reported(result, cluster)
        return forecast(result, cluster, begin, longest_downtime)

    return forecast_flow.run(sources[0][1], LOOKS_UP, judge, to, max_age)


def forecast(
    result: Rehearsal,
    cluster: Cluster,
    start: datetime.datetime | None,
    longest_downtime: float | None = None,
) -> ClusterForecast:
    """Return what the verb says about a cluster."""

    def pages(evidence: Evidence) -> OwnerPages:
        from virt_admit.reports.upgrade import html  # noqa: PLC0415 - importing Jinja2 takes time

        def split(by: Owners) -> dict[str, Rehearsal]:
            owners = {(vmi.namespace, vmi.name): by.of(vmi) for vmi in cluster.known(VMI)}
            return html.split(result, lambda vm: owners.get((vm.namespace, vm.name), ""))

        return OwnerPages.of(
            html.page(result, start, evidence),
            split,
            lambda part, owner: html.page(part, start, evidence, owner),
        )

    downtimes, ends = (vm.downtime for vm in result.vms), result.ends
    return ClusterForecast(
        downtime_option.judged(EXIT_CODES[result.possible], downtimes, longest_downtime),
        lambda: report.report(result),
        lambda: upgrade_text.text(result, start),
        pages,
        {
            "possible": {True: "yes", False: "no", None: "unknown"}[result.possible],
            "duration": upgrade_text.span(ends) if ends is not None else "-",
            "stops": str(len(result.stops)),
        },
    )


def _time(text: str | None) -> datetime.datetime | None:
    try:
        start = datetime.datetime.fromisoformat(text) if text else None
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2027-01-31T22:00", param_hint="--start"
        ) from None
    if start is not None and start.year > _LAST_YEAR:
        raise click.BadParameter(f"{text} is after the year {_LAST_YEAR}", param_hint="--start")
    return start


_LAST_YEAR: Final = 9000
"""No upgrade that starts by then ends after the last year of Python's calendar, 9999."""
