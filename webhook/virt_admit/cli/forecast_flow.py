"""What the verbs that judge whole clusters share: read each, print what they say of it, and the
exit code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import click

from virt_admit.cli import html_output, multi_cluster, snapshot_age
from virt_admit.cli.cluster_source import AnyCluster, load_cluster, print_forbidden
from virt_admit.cli.html_output import Evidence, OwnerPages
from virt_admit.cli.multi_cluster import ClusterAnswer
from virt_admit.cli.options import ClusterOptions, Destination
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.reports import remedy_steps
from virt_admit.reports.values import as_data


class ClusterForecast(NamedTuple):
    """What a verb says about one cluster, in every form."""

    code: int
    report: Callable[[], object]
    """Returns the value of the JSON."""
    text: Callable[[], str]
    pages: Callable[[Evidence], OwnerPages]
    verdicts: Mapping[str, str] = {}
    """The columns of the matrix of several clusters."""

    def render(self, form: str) -> str:
        """Return it as ``text`` or ``json``."""
        return json.dumps(as_data(self.report()), indent=2) if form == "json" else self.screen()

    def screen(self) -> str:
        """Return the text as a terminal shows it."""
        return remedy_steps.spread(self.text())

    def publish(self, to: Destination, source: ClusterOptions, cluster: AnyCluster) -> None:
        """Print it, or write its pages."""
        if to.form == "html":
            pages = self.pages(html_output.evidence(source, cluster))
            html_output.publish(pages, to.file, to.pages_by)
        else:
            click.echo(self.render(to.form).rstrip("\n"))


Judge = Callable[[AnyCluster], ClusterForecast]


def run(
    source: ClusterOptions,
    looks_up: Sequence[Kind],
    judge: Judge,
    to: Destination,
    max_age: timedelta | None,
) -> int:
    """Judge one cluster. Return the exit code."""
    cluster = load_cluster(source, looks_up)
    found = judge(cluster)
    found.publish(to, source, cluster)
    if to.form != "html":
        print_forbidden(cluster, looks_up, to.form)
    return snapshot_age.judged(found.code, cluster, source, max_age)


def run_each(
    title: str,
    sources: Sequence[multi_cluster.Named],
    looks_up: Sequence[Kind],
    judge: Judge,
    to: Destination,
    max_age: timedelta | None,
) -> int:
    """Judge several clusters. Return the highest exit code."""

    def ask(source: ClusterOptions) -> ClusterAnswer:
        cluster = load_cluster(source, looks_up)
        found = judge(cluster)
        code = snapshot_age.judged(found.code, cluster, source, max_age)
        if to.form == "html":
            pages = found.pages(html_output.evidence(source, cluster))
            return ClusterAnswer(code, found.verdicts, pages=pages)
        return ClusterAnswer(code, found.verdicts, as_data(found.report()), found.screen())

    return multi_cluster.publish(multi_cluster.ask_each(sources, ask), title, to)
