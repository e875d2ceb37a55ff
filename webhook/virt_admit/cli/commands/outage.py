"""``virt-admit outage``: whether the cluster survives the loss of nodes,
and what becomes of each VM.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import click

from virt_admit.cli import forecast_flow, processes, snapshot_age
from virt_admit.cli.cluster_source import AnyCluster
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
from virt_admit.forecasts.outage import loss
from virt_admit.forecasts.outage.outages import READS, Outages, Question, outages
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.sanitize import line
from virt_admit.reports.outage import report
from virt_admit.reports.outage import text as outage_text

LOOKS_UP: Final[tuple[Kind, ...]] = tuple(READS)
"""The kinds that the forecast needs from a live cluster."""


class LossOptions(NamedTuple):
    """The nodes that are lost at the same moment."""

    nodes: tuple[str, ...]
    zone: str | None
    worst: int | None
    zone_key: str

    def question(self) -> Question:
        """Return the question.

        Raises:
            UsageError: no node is named, or nodes are named in two ways.
        """
        if sum((bool(self.nodes), self.zone is not None, self.worst is not None)) != 1:
            raise click.UsageError("give NODE..., --zone or --worst")
        return Question(self.nodes, self.zone, self.worst, self.zone_key)


_loss_options: Final = combined(
    click.argument("nodes", nargs=-1, metavar="[NODE]..."),
    click.option("--zone", metavar="NAME", help="All nodes of this zone are lost."),
    click.option(
        "--worst",
        type=click.IntRange(min=1),
        metavar="N",
        help="Try the loss of every N nodes, and show those that the cluster does not survive.",
    ),
    click.option(
        "--zone-key",
        default=loss.ZONE,
        show_default=True,
        metavar="LABEL",
        help="The label with the zone.",
    ),
    grouped("lost", LossOptions),
)


@click.command("outage", short_help="Show whether the cluster survives the loss of nodes.")
@_loss_options
@click.option(
    "--summary", is_flag=True, help="One line for each loss instead of every VM. Text only."
)
@snapshot_age.max_age_option
@jobs_option
@clusters_options
@page_output_options
def command(
    lost: LossOptions,
    summary: bool,
    max_age: timedelta | None,
    jobs: int | None,
    clusters: ClustersOptions,
    output: OutputOptions,
) -> int:
    """Show whether each virtual machine restarts after NODE is lost, where, when,
    and what to do about it.

    Several nodes are lost at the same moment and do not return. Changes nothing. Exit 0 the cluster
    survives, 1 it does not, 2 the answer cannot be determined; of several clusters the highest exit
    code.
    """
    question = lost.question()
    to = output.parse()
    to.accept_summary(summary)
    sources = clusters.each()
    if len(sources) > 1:
        return forecast_flow.run_each(
            "Outage",
            sources,
            LOOKS_UP,
            lambda cluster: _forecast(_outages(question, cluster), summary),
            to,
            max_age,
        )

    def judge(cluster: AnyCluster) -> ClusterForecast:
        return _forecast(_outages(question, cluster, processes.sharing(cluster, jobs)), summary)

    return forecast_flow.run(sources[0][1], LOOKS_UP, judge, to, max_age)


def _outages(question: Question, cluster: Cluster, in_order: InOrder = map) -> Outages:
    try:
        return outages(question, cluster, in_order)
    except LookupError as error:
        raise click.ClickException(line(str(error))) from None


def _forecast(found: Outages, summary: bool) -> ClusterForecast:
    def pages(evidence: Evidence) -> OwnerPages:
        from virt_admit.reports.outage import html  # noqa: PLC0415 - importing Jinja2 takes time

        return OwnerPages.of(
            html.page(found, evidence),
            partial(html.split, found),
            lambda part, owner: html.page(part, evidence, owner),
        )

    return ClusterForecast(
        EXIT_CODES[found.survives],
        lambda: report.report(found),
        lambda: outage_text.summary(found) if summary else outage_text.text(found),
        pages,
        {"survives": outage_text.WORDS[found.survives].lower(), "losses": str(len(found.outages))},
    )
