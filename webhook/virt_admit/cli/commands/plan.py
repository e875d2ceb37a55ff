"""``virt-admit plan``: the ordered changes after which every node can be drained. Only reads."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Final, NamedTuple

import click

from virt_admit.cli import plan_output, snapshot_age
from virt_admit.cli.cluster_source import load_cluster, print_forbidden
from virt_admit.cli.options import ClusterOptions, cluster_options, combined, grouped
from virt_admit.cli.output import EXIT_CODES
from virt_admit.cli.plan_output import PlanOutput, plan_output_options
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
from virt_admit.reports.values import as_data

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
    output: PlanOutput,
) -> int:
    """Plan the changes after which every node, or each NODE, can be drained. Changes nothing.

    Each step is applied to the cluster in memory and judged again. Exit 0 the goal holds already, 1
    it does not hold today, 2 the answer rests on data that could not be read.
    """
    form, file = output.parse()
    if summary and form != "text":
        raise click.UsageError("--summary is for text output only")
    allowed = wishes.wishes()
    _accept(Goal(goal), nodes)
    cluster = load_cluster(source, LOOKS_UP, further=True)
    plan = _repair(cluster, Goal(goal), nodes, allowed)
    if form in ("html", "folder"):
        plan_output.publish(plan, cluster, source, form, file, output.pages_by)
    else:
        click.echo(render(plan, form, summary=summary).rstrip("\n"))
        print_forbidden(cluster, LOOKS_UP, form)
    return snapshot_age.judged(EXIT_CODES[plan.holds], cluster, source, max_age)


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


def render(plan: RepairPlan, output: str, *, summary: bool = False) -> str:
    """Return a plan as ``text`` or ``json``."""
    if output == "json":
        return json.dumps(as_data(report.report(plan)), indent=2)
    return plan_text.summary(plan) if summary else plan_text.text(plan)
