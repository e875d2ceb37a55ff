"""``virt-admit upgrade``: rehearse the roll-out of nodes before it starts. Only reads."""

from __future__ import annotations

import datetime
import json
import sys
from typing import Final

import click

from virt_admit.cli import several, upgrade_data, upgrade_text
from virt_admit.cli.lookups import load_cluster
from virt_admit.cli.options import ClusterOptions, ClustersOptions, clusters_options, output_option
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import Kind
from virt_admit.model.rehearsal.rehearsal import READS, Options, rehearse
from virt_admit.model.rehearsal.rollouts import Driver

LOOKS_UP: Final[tuple[Kind, ...]] = tuple(READS)
"""The kinds that a rehearsal needs from a live cluster."""
CODES: Final = {True: 0, False: 1, None: 2}
"""The exit code of each verdict."""


def upgrade(
    cluster: Cluster, options: Options, output: str, start: datetime.datetime | None = None, *, quiet: bool = True
) -> tuple[str, int]:
    """Return the rehearsal as ``text`` or ``json``, and the exit code: 0 possible, 1 not possible, 2 unknown.

    Raises:
        ValueError: an option is not valid.
    """
    result = rehearse(cluster, options, _say if not quiet else lambda _: None)
    code = CODES[result.possible]
    if output == "json":
        return json.dumps(upgrade_data.as_data(result), indent=2), code
    return upgrade_text.text(result, start), code


def _say(step: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{step} …", err=True)


@click.command("upgrade", short_help="Rehearse an upgrade: order, waves, hours, and what stops it.")
@click.option(
    "--by",
    type=click.Choice([driver.value for driver in Driver]),
    help="Who updates the nodes. Default: machineconfig with MachineConfigPools, cluster-api with MachineDeployments, "
    "else plain.",
)
@click.option("--max-unavailable", metavar="N|P%", help="Nodes of each pool that are updated at the same time.")
@click.option(
    "--node-minutes",
    type=click.IntRange(0, 100_000),
    default=10,
    show_default=True,
    help="Minutes for the update and reboot of one node.",
)
@click.option("--start", metavar="TIME", help="Begin of the upgrade (ISO 8601), for wall-clock times in text.")
@clusters_options
@output_option
def command(
    by: str | None,
    max_unavailable: str | None,
    node_minutes: int,
    start: str | None,
    clusters: ClustersOptions,
    output: str,
) -> int:
    """Rehearse the update of all nodes: order, waves, duration, moves of each VM, and what stops it. Changes nothing.

    The duration is an estimate between the shortest and the longest run. Exit 0 the upgrade is possible, 1 something
    stops it, 2 the answer cannot be determined; of several clusters the highest exit code.
    """
    options = Options(Driver(by) if by else None, max_unavailable, node_minutes)
    begin = _time(start)
    sources = clusters.each()
    try:
        if len(sources) > 1:
            return several.print_answers(several.ask_each(sources, lambda one: _answer(one, options, begin)), output)
        cluster = load_cluster(sources[0][1], LOOKS_UP)
        rendered, code = upgrade(cluster, options, output, begin, quiet=output == "json")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--max-unavailable") from None
    click.echo(rendered.rstrip("\n"))
    return code


def _answer(source: ClusterOptions, options: Options, start: datetime.datetime | None) -> several.Answer:
    """Return the answer about one of several clusters."""
    result = rehearse(load_cluster(source, LOOKS_UP), options)
    verdicts = {
        "possible": {True: "yes", False: "no", None: "unknown"}[result.possible],
        "duration": upgrade_text.span(result.duration) if result.duration else "-",
        "stops": str(len(result.stops)),
    }
    text = upgrade_text.text(result, start)
    return several.Answer(CODES[result.possible], verdicts, upgrade_data.as_data(result), text)


def _time(text: str | None) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text) if text else None
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2027-01-31T22:00", param_hint="--start") from None
