"""``virt-admit outage``: whether the cluster survives the loss of nodes,
and what becomes of each VM.
"""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from virt_admit.cli import html_output, multi_cluster, processes, snapshot_age
from virt_admit.cli.cluster_source import load_cluster, print_forbidden
from virt_admit.cli.options import (
    ClusterOptions,
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
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.sanitize import line
from virt_admit.reports.outage import report
from virt_admit.reports.outage import text as outage_text
from virt_admit.reports.values import as_data

if TYPE_CHECKING:
    from virt_admit.kube.cache import ClusterCache

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
    jobs: int,
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
    form, file = output.parse()
    if summary and form != "text":
        raise click.UsageError("--summary is for text output only")
    sources = clusters.each()
    if len(sources) > 1:
        answers = multi_cluster.ask_each(
            sources, lambda source: _answer(source, question, summary, form, max_age)
        )
        return multi_cluster.publish(answers, "Outage", form, file, output.pages_by)
    cluster = load_cluster(sources[0][1], LOOKS_UP, further=True)
    found = _outages(question, cluster, processes.sharing(cluster, jobs))
    if form == "html":
        html_output.publish(_pages(found, cluster, sources[0][1]), file, output.pages_by)
    else:
        click.echo(render(found, form, summary=summary).rstrip("\n"))
        print_forbidden(cluster, LOOKS_UP, form)
    return snapshot_age.judged(EXIT_CODES[found.survives], cluster, sources[0][1], max_age)


def _outages(question: Question, cluster: Cluster, in_order: InOrder = map) -> Outages:
    try:
        return outages(question, cluster, in_order)
    except LookupError as error:
        raise click.ClickException(line(str(error))) from None


def render(found: Outages, output: str, *, summary: bool = False) -> str:
    """Return an answer as ``text`` or ``json``."""
    if output == "json":
        return json.dumps(as_data(report.report(found)), indent=2)
    return outage_text.summary(found) if summary else outage_text.text(found)


def _answer(
    source: ClusterOptions, question: Question, summary: bool, form: str, max_age: timedelta | None
) -> multi_cluster.ClusterAnswer:
    """Return the answer about one of several clusters."""
    cluster = load_cluster(source, LOOKS_UP, further=True)
    found = _outages(question, cluster)
    code = snapshot_age.judged(EXIT_CODES[found.survives], cluster, source, max_age)
    verdicts = {
        "survives": outage_text.WORDS[found.survives].lower(),
        "losses": str(len(found.outages)),
    }
    if form == "html":
        return multi_cluster.ClusterAnswer(code, verdicts, pages=_pages(found, cluster, source))
    rendered = render(found, "text", summary=summary)
    return multi_cluster.ClusterAnswer(code, verdicts, as_data(report.report(found)), rendered)


def _pages(
    found: Outages, cluster: Snapshot | ClusterCache, source: ClusterOptions
) -> html_output.OwnerPages:
    from virt_admit.reports.outage import html  # noqa: PLC0415 - importing Jinja2 takes time

    evidence = html_output.evidence(source, cluster)
    return html_output.OwnerPages.of(
        html.page(found, evidence),
        partial(html.split, found),
        lambda part, owner: html.page(part, evidence, owner),
    )
