"""``virt-admit drain``: what draining a node would do to its VMs,
and whether the cluster can be upgraded today.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from virt_admit.cli import downtime_option, html_output, multi_cluster, processes, snapshot_age
from virt_admit.cli.cluster_source import load_cluster, print_forbidden
from virt_admit.cli.commands import drain_follow, live_events
from virt_admit.cli.follow_options import FollowOptions, follow_options
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
from virt_admit.forecasts.drain import selection, vm_downtime
from virt_admit.forecasts.drain.drain_plan import READS, Plan, plan
from virt_admit.forecasts.drain.selection import NodeQuery
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.sanitize import line
from virt_admit.reports.drain import report, surroundings
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.values import as_data

if TYPE_CHECKING:
    from virt_admit.kube.cache import ClusterCache

LOOKS_UP: Final[tuple[Kind, ...]] = tuple(union(READS, selection.READS))
"""The kinds that a plan needs from a live cluster."""


class NodeOptions(NamedTuple):
    """The nodes that are drained, one at a time."""

    nodes: tuple[str, ...]
    every: bool
    selector: str
    pool: str

    def query(self) -> NodeQuery | None:
        """Return the nodes that are asked for; None: all of them.

        Raises:
            UsageError: no node is named, or some nodes and all nodes.
        """
        query = NodeQuery(self.nodes, self.selector, self.pool)
        if any(query) and self.every:
            raise click.UsageError("--all excludes NODE, --selector and --pool: choose one")
        if not any(query) and not self.every:
            raise click.UsageError("give a NODE, --selector, --pool or --all")
        return None if self.every else query

    def single(self) -> str:
        """Return the name of the only node.

        Raises:
            UsageError: it is not one node.
        """
        if len(self.nodes) != 1 or self.every or self.selector or self.pool:
            raise click.UsageError("--follow needs one NODE")
        return selection.bare_name(self.nodes[0])


_node_options: Final = combined(
    click.argument("nodes", nargs=-1, metavar="[NODE]..."),
    click.option(
        "--all",
        "every",
        is_flag=True,
        help="Show every node, the worst first, and whether the cluster can be upgraded.",
    ),
    click.option(
        "-l",
        "--selector",
        default="",
        metavar="LABELS",
        help="Nodes with these labels, as in kubectl.",
    ),
    click.option(
        "--pool",
        default="",
        metavar="NAME",
        help="Nodes of this MachineConfigPool or MachineDeployment.",
    ),
    grouped("nodes", NodeOptions),
)


@click.command(
    "drain",
    cls=downtime_option.DowntimeCommand,
    short_help="Show what draining a node would do to its virtual machines.",
)
@_node_options
@follow_options
@click.option(
    "--summary",
    is_flag=True,
    help="Group by cause and owner instead of listing every VM. Text only.",
)
@downtime_option.fail_on_downtime
@snapshot_age.max_age_option
@jobs_option
@clusters_options
@page_output_options
def command(
    nodes: NodeOptions,
    following: FollowOptions,
    summary: bool,
    longest_downtime: float | None,
    max_age: timedelta | None,
    jobs: int,
    clusters: ClustersOptions,
    output: OutputOptions,
) -> int:
    """Show what draining NODE would do to each of its virtual machines, why, and what to do about
    it. Changes nothing.

    Several nodes are judged one at a time, as if each of them alone were drained. Several clusters
    (--cluster or --context repeated) need --all. Exit 0 every named node can be drained, 1
    something blocks, 2 the answer cannot be determined; of several clusters the highest exit code.
    With --fail-on-downtime a VM that is shut down makes 0 a 1. With --follow: 0 NODE is empty, 1
    --timeout or --stalled has passed, 2 rights are missing or the API server does not answer.
    """
    query = nodes.query()
    form, file = output.parse()
    if following.chosen():
        return drain_follow.run(nodes.single(), following, clusters.each(), form)
    if summary and form != "text":
        raise click.UsageError("--summary is for text output only")
    sources = clusters.each()
    if len(sources) > 1:
        if query is not None:
            raise click.UsageError("several clusters need --all")
        answers = multi_cluster.ask_each(
            sources, lambda source: _answer(source, summary, form, longest_downtime, max_age)
        )
        return multi_cluster.publish(answers, "Drain", form, file, output.pages_by)
    cluster = load_cluster(sources[0][1], LOOKS_UP, further=True)
    result = _with_events(cluster, query, sources[0][1], jobs)
    if form == "html":
        html_output.publish(_pages(result, cluster, sources[0][1]), file, output.pages_by)
    else:
        click.echo(render(result, form, clock.now(cluster), summary=summary).rstrip("\n"))
        print_forbidden(cluster, LOOKS_UP, form)
    return snapshot_age.judged(_code(result, longest_downtime), cluster, sources[0][1], max_age)


def _code(result: Plan, longest_downtime: float | None) -> int:
    downtimes = (vm_downtime.of(row) for node in result.nodes for row in node.forecasts)
    return downtime_option.judged(EXIT_CODES[result.drainable], downtimes, longest_downtime)


def _with_events(
    cluster: Snapshot | ClusterCache, query: NodeQuery | None, source: ClusterOptions, jobs: int
) -> Plan:
    """Return the plan of drains.

    Where VMs of single nodes wait, the events of a live cluster say why.
    """
    events = None if query is None else live_events.of(cluster, source)
    result = _plan(cluster, query, processes.sharing(cluster, jobs))
    if events is None:
        return surroundings.with_reported(result, cluster)
    if events.read(result.nodes):
        result = _plan(cluster, query, processes.sharing(cluster, jobs))
    return surroundings.with_reported(result, cluster, events.read_about)


def _plan(cluster: Cluster, query: NodeQuery | None, in_order: InOrder) -> Plan:
    if query is None:
        return plan(cluster, in_order=in_order)
    try:
        selected = selection.select(query, cluster)
    except (LookupError, ValueError) as error:
        raise click.ClickException(line(str(error))) from None
    return plan(cluster, *selected.names, unseen=selected.unseen, in_order=in_order)


def render(result: Plan, output: str, now: datetime | None, *, summary: bool = False) -> str:
    """Return a plan as ``text`` or ``json``. ``now``: the time of the listing, if it is known."""
    if output == "json":
        return json.dumps(as_data(report.report(result)), indent=2)
    return drain_text.summary(result) if summary else drain_text.text(result, now)


def _answer(
    source: ClusterOptions,
    summary: bool,
    form: str,
    longest_downtime: float | None,
    max_age: timedelta | None,
) -> multi_cluster.ClusterAnswer:
    """Return the answer about all nodes of one of several clusters."""
    cluster = load_cluster(source, LOOKS_UP, further=True)
    result = plan(cluster)
    code = snapshot_age.judged(_code(result, longest_downtime), cluster, source, max_age)
    drainable = [node.drainable for node in result.nodes]
    verdicts = {word: str(drainable.count(value)) for word, value in _VERDICTS.items()}
    if form == "html":
        return multi_cluster.ClusterAnswer(code, verdicts, pages=_pages(result, cluster, source))
    rendered = render(result, "text", clock.now(cluster), summary=summary)
    return multi_cluster.ClusterAnswer(code, verdicts, as_data(report.report(result)), rendered)


_VERDICTS: Final = {"drainable": True, "blocked": False, "unknown": None}


def _pages(
    result: Plan, cluster: Snapshot | ClusterCache, source: ClusterOptions
) -> html_output.OwnerPages:
    from virt_admit.reports.drain import html  # noqa: PLC0415 - importing Jinja2 takes time

    evidence = html_output.evidence(source, cluster)
    return html_output.OwnerPages.of(
        html.page(result, html.placed(cluster), evidence),
        partial(html.split, result),
        lambda part, owner: html.page(part, None, evidence, owner),
    )
