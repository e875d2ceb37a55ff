"""``virt-admit plan``: the ordered changes after which every node can be drained. Only reads."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from virt_admit.cli import forecast_flow, plan_output, snapshot_age
from virt_admit.cli.cluster_source import load_cluster
from virt_admit.cli.forecast_flow import ClusterForecast
from virt_admit.cli.options import ClusterOptions, OutputOptions, cluster_options, combined, grouped
from virt_admit.cli.output import EXIT_CODES
from virt_admit.cli.plan_output import plan_output_options
from virt_admit.forecasts.repair import planning
from virt_admit.forecasts.repair.repair_plan import Goal, RepairPlan
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.sanitize import line
from virt_admit.reports.plan import report
from virt_admit.reports.plan import text as plan_text

LOOKS_UP: Final[tuple[Kind, ...]] = tuple(planning.READS)
"""The kinds that a plan needs from a live cluster."""


class WishOptions(NamedTuple):
    """What an administrator allows."""

    may_restart: str | None
    may_copy: str | None
    prefer: str
    storage_class: str

    def wishes(self) -> Wishes:
        """Return the wishes.

        Raises:
            UsageError: labels are not valid.
        """
        return Wishes(
            _labels("--may-restart", self.may_restart),
            _labels("--may-copy", self.may_copy),
            "restart" if self.prefer == "restart" else "copy",
            self.storage_class,
        )


def _labels(flag: str, text: str | None) -> Selector | None:
    if text is None:
        return None
    try:
        return selectors.parse_text(text)
    except ValueError as error:
        raise click.BadParameter(line(str(error)), param_hint=flag) from None


_wish_options: Final = combined(
    click.option(
        "--may-restart",
        metavar="LABELS",
        help="Restart only VMs with these labels.  [default: any VM]",
    ),
    click.option(
        "--may-copy",
        metavar="LABELS",
        help="Copy disks only of VMs with these labels.  [default: any VM]",
    ),
    click.option(
        "--prefer",
        type=click.Choice(["copy", "restart"]),
        default="copy",
        show_default=True,
        help="What is cheaper: a copy of disks without downtime, or a restart without a copy.",
    ),
    click.option(
        "--storage-class", default="", metavar="NAME", help="Storage class of the copies."
    ),
    grouped("wishes", WishOptions),
)


@click.command("plan", short_help="Plan the changes after which nodes can be drained.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option(
    "--for",
    "goal",
    type=click.Choice([goal.value for goal in Goal]),
    default=Goal.DRAIN.value,
    show_default=True,
    help="The goal: each node can be drained, an upgrade passes, or a lost node is survived.",
)
@_wish_options
@click.option("--summary", is_flag=True, help="Count the steps by stage and owner. Text only.")
@snapshot_age.max_age_option
@cluster_options
@plan_output_options
def command(
    nodes: tuple[str, ...],
    goal: str,
    wishes: WishOptions,
    summary: bool,
    max_age: timedelta | None,
    source: ClusterOptions,
    output: OutputOptions,
) -> int:
    """Plan the changes after which every node, or each NODE, can be drained. Changes nothing.

    Each step is applied to the cluster in memory and judged again. Exit 0 the goal holds already, 1
    it does not hold today, 2 the answer rests on data that could not be read.
    """
    to = output.parse(plan_output.FORMS)
    to.accept_summary(summary)
    allowed = wishes.wishes()
    _accept(Goal(goal), nodes)
    if to.form == "folder":
        cluster = load_cluster(source, LOOKS_UP)
        plan = _repair(cluster, Goal(goal), nodes, allowed)
        plan_output.write_folder(plan, Path(to.file or "."), source, cluster)
        return snapshot_age.judged(EXIT_CODES[plan.holds], cluster, source, max_age)

    def judge(cluster: Cluster) -> ClusterForecast:
        plan = _repair(cluster, Goal(goal), nodes, allowed)
        return ClusterForecast(
            EXIT_CODES[plan.holds],
            lambda: report.report(plan),
            lambda: plan_text.summary(plan) if summary else plan_text.text(plan),
            partial(plan_output.pages, plan, cluster),
        )

    return forecast_flow.run(source, LOOKS_UP, judge, to, max_age)


def _accept(goal: Goal, nodes: tuple[str, ...]) -> None:
    """Accept a goal.

    Raises:
        UsageError: it is not available, or takes no nodes.
    """
    if goal is not Goal.DRAIN and nodes:
        raise click.UsageError(f"--for {goal.value} is about all nodes: name none")


def _repair(cluster: Cluster, goal: Goal, nodes: tuple[str, ...], wishes: Wishes) -> RepairPlan:
    try:
        return planning.repair(
            cluster, goal, [name.removeprefix("node/") for name in nodes], wishes
        )
    except LookupError as error:
        raise click.ClickException(line(str(error))) from None
