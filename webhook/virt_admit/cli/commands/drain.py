"""``virt-admit drain``: what draining a node would do to its VMs,
and whether the cluster can be upgraded today.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import click

from virt_admit.cli import downtime_option, forecast_flow, processes, snapshot_age
from virt_admit.cli.cluster_source import AnyCluster
from virt_admit.cli.commands import drain_follow, live_events
from virt_admit.cli.follow_options import FollowOptions, follow_options
from virt_admit.cli.forecast_flow import ClusterForecast
from virt_admit.cli.html_output import Evidence, OwnerPages
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
from virt_admit.forecasts.upgrade import drain_waits, pool_obstacles, rehearsal, rollouts
from virt_admit.forecasts.upgrade.drains import undrained_nodes
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.sanitize import line
from virt_admit.reports.drain import report, surroundings
from virt_admit.reports.drain import text as drain_text
from virt_admit.reports.explain.rehearsed import because

_OF_NODES: Final = union(READS, selection.READS)
LOOKS_UP: Final[tuple[Kind, ...]] = tuple(union(_OF_NODES, rehearsal.READS))
"""The kinds that a plan of all nodes needs from a live cluster; one of some nodes needs fewer."""


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
    jobs: int | None,
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
    to = output.parse()
    if following.chosen():
        return drain_follow.run(nodes.single(), following, clusters.each(), to.form)
    to.accept_summary(summary)
    sources = clusters.each()
    if len(sources) > 1:
        if query is not None:
            raise click.UsageError("several clusters need --all")
        return forecast_flow.run_each(
            "Drain",
            sources,
            LOOKS_UP,
            lambda cluster: forecast(
                rehearsed(plan(cluster), cluster), cluster, summary, longest_downtime
            ),
            to,
            max_age,
        )

    def judge(cluster: AnyCluster) -> ClusterForecast:
        found = _with_events(cluster, query, sources[0][1], jobs)
        return forecast(found, cluster, summary, longest_downtime)

    looks_up = LOOKS_UP if query is None else tuple(_OF_NODES)
    return forecast_flow.run(sources[0][1], looks_up, judge, to, max_age)


def _with_events(
    cluster: AnyCluster, query: NodeQuery | None, source: ClusterOptions, jobs: int | None
) -> Plan:
    """Return the plan of drains.

    Where VMs of single nodes wait, the events of a live cluster say why.
    """
    events = None if query is None else live_events.of(cluster, source)
    in_order = processes.sharing(cluster, jobs)
    result = _plan(cluster, query, in_order)
    if events is None:
        return surroundings.with_reported(rehearsed(result, cluster, in_order), cluster)
    if events.read(result.nodes):
        result = _plan(cluster, query, in_order)
    return surroundings.with_reported(result, cluster, events.read_about)


def _plan(cluster: Cluster, query: NodeQuery | None, in_order: InOrder) -> Plan:
    if query is None:
        return plan(cluster, in_order=in_order)
    try:
        selected = selection.select(query, cluster)
    except (LookupError, ValueError) as error:
        raise click.ClickException(line(str(error))) from None
    return plan(cluster, *selected.names, unseen=selected.unseen, in_order=in_order)


def rehearsed(result: Plan, cluster: Cluster, in_order: InOrder = map) -> Plan:
    """Return a plan of all nodes with what stops an upgrade although each of them can be drained,
    or may, by the words of ``upgrade``; and which nodes it brings back, for which others wait.
    """
    awaited = drain_waits.only_returns(result)
    if not result.whole or result.held or (result.unread_nodes and not awaited):
        return result
    blocked = {node.name for node in result.nodes if not node.drainable}
    driver = rollouts.default_driver(cluster)
    skipped = undrained_nodes.skips(driver, cluster) if blocked else []
    kept = [node for node in result.nodes if node.drainable is False]
    ends = bool(awaited or (kept and not undrained_nodes.without_unread(kept, driver, cluster)))
    if not (ends or blocked <= set(skipped)):
        return result
    blocked = set() if ends else blocked
    if blocked:
        result = replace(result, undrained=undrained_nodes.in_words(skipped, driver))
    if blocked and nodes.only_of_harvester(cluster):  # each of its updates stops the VMs before
        result = replace(result, methods=None, updates=())
    upgrade = rehearsal.run(cluster, Options(), result, forecast_only=True, in_order=in_order)
    if upgrade.possible:
        return replace(
            result,
            stopped=upgrade.stopped,
            before=upgrade.before_nodes,
            awaited=awaited,
            unsure=tuple(pool_obstacles.unread_silences(cluster)),
        )
    if ends and upgrade.possible is False:
        return result
    found = tuple(filter(None, (because(upgrade),)))
    return (
        replace(result, unsure=found) if upgrade.possible is None else replace(result, held=found)
    )


def forecast(
    result: Plan, cluster: AnyCluster, summary: bool = False, longest_downtime: float | None = None
) -> ClusterForecast:
    """Return what the verb says about a cluster."""

    def text() -> str:
        now = clock.now(cluster)
        return drain_text.summary(result) if summary else drain_text.text(result, now)

    def pages(evidence: Evidence) -> OwnerPages:
        from virt_admit.reports.drain import html  # noqa: PLC0415 - importing Jinja2 takes time

        return OwnerPages.of(
            html.page(result, html.placed(cluster), evidence),
            partial(html.split, result),
            lambda part, owner: html.page(part, None, evidence, owner),
        )

    downtimes = (vm_downtime.of(row) for node in result.nodes for row in node.forecasts)
    code = downtime_option.judged(EXIT_CODES[result.drainable], downtimes, longest_downtime)
    drainable = [node.drainable for node in result.nodes]
    verdicts = {word: str(drainable.count(value)) for word, value in _VERDICTS.items()}
    return ClusterForecast(code, lambda: report.report(result), text, pages, verdicts)


_VERDICTS: Final = {"drainable": True, "blocked": False, "unknown": None}
