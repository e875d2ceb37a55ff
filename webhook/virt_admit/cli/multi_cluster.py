"""One verb over several clusters: a matrix of clusters and verdicts,
then the answer for each cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from virt_admit.cli import html_output
from virt_admit.cli.html_output import OwnerPages
from virt_admit.cli.options import ClusterOptions, Destination
from virt_admit.model.sanitize import line

if TYPE_CHECKING:
    from virt_admit.reports.html.owners import Owners
    from virt_admit.reports.html.page import Page

Named = tuple[str, ClusterOptions]
"""The name of a cluster, which is its context or path as given, and its options."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """The answer of a verb about one cluster, or why there is none."""

    code: int
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """The columns of the matrix."""
    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    error: str = ""
    pages: OwnerPages | None = None
    """For HTML, in place of data and text."""


def ask_each(
    sources: Sequence[Named], ask: Callable[[ClusterOptions], ClusterAnswer]
) -> dict[str, ClusterAnswer]:
    """Return the answer about each cluster.

    A cluster that cannot be read has an error, and exit code 2.
    """
    answers = {}
    for name, source in sources:
        try:
            answers[name] = ask(source)
        except click.UsageError:
            raise
        except click.ClickException as error:
            answers[name] = ClusterAnswer(2, error=error.message)
    return answers


def worst_code(answers: Mapping[str, ClusterAnswer]) -> int:
    """Return the highest exit code: 2 if a cluster could not be read or its answer is unknown."""
    return max(answer.code for answer in answers.values())


def publish(answers: Mapping[str, ClusterAnswer], title: str, to: Destination) -> int:
    """Print the answers, or write their pages. Return the worst exit code.

    Raises:
        ClickException: a page cannot be written.
    """
    if to.form == "html":
        html_output.publish(_combined(title, answers), to.file, to.pages_by)
    elif to.form == "json":
        clusters = [
            {"cluster": name, "error": one.error or None, **one.data}
            for name, one in answers.items()
        ]
        click.echo(json.dumps({"version": 1, "clusters": clusters}, indent=2))
    else:
        click.echo("\n".join(_lines(answers)).rstrip("\n"))
    return worst_code(answers)


def _combined(title: str, answers: Mapping[str, ClusterAnswer]) -> OwnerPages:
    from virt_admit.reports.html import clusters  # noqa: PLC0415 - importing Jinja2 takes time

    def part(name: str, one: ClusterAnswer) -> clusters.ClusterPart:
        whole = one.pages.whole if one.pages else None
        return clusters.ClusterPart(name, whole, one.verdicts, one.error)

    def split(by: Owners) -> dict[str, Page]:
        """Return a page for each owner of any cluster. Each says which clusters cannot be read."""
        own = {name: one.pages.split(by) if one.pages else {} for name, one in answers.items()}
        owners = {owner for of_cluster in own.values() for owner in of_cluster}
        return {
            owner: clusters.combine(
                title,
                [
                    clusters.ClusterPart(name, own[name].get(owner), error=one.error)
                    for name, one in answers.items()
                    if one.error or owner in own[name]
                ],
                by.subject(owner),
            )
            for owner in owners
        }

    parts = [part(name, one) for name, one in answers.items()]
    return OwnerPages(clusters.combine(title, parts), split)


def _lines(answers: Mapping[str, ClusterAnswer]) -> Iterator[str]:
    yield from matrix(answers)
    for name, answer in answers.items():
        if not answer.error:
            yield from ("", f"cluster {line(name)}", answer.text.rstrip("\n"))


def matrix(answers: Mapping[str, ClusterAnswer]) -> Iterator[str]:
    """Yield the lines of a table: a row for each cluster,
    a column for each verdict or the error.
    """
    every = (column for answer in answers.values() for column in answer.verdicts)
    columns = list(dict.fromkeys(every))
    rows = [("cluster", *columns)]
    rows += [
        (line(name), *(one.verdicts.get(column, "-") for column in columns))
        for name, one in answers.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    errors = ["", *(one.error for one in answers.values())]
    for row, error in zip(rows, errors, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([*cells[:1], f"cannot be read: {line(error)}"] if error else cells).rstrip()
