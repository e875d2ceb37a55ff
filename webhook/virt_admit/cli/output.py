"""What a verb prints: reports on stdout or in files; progress, summaries and errors on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from virt_admit.cli.options import ReportOptions
from virt_admit.model.kinds import Kind
from virt_admit.model.sanitize import line
from virt_admit.model.sanitize import name as safe_name
from virt_admit.policy.policy import Policy
from virt_admit.reports.formats import FORMATS
from virt_admit.reports.report import Report
from virt_admit.rule import Action

if TYPE_CHECKING:
    from virt_admit.reports.html.owners import Owners
    from virt_admit.reports.html.page import Page

Progress = Callable[[Kind, int], None]
"""Receives a kind and the number of its objects that are done; 0 at its beginning."""


def tell(text: str) -> None:
    """Print one line on stderr."""
    click.echo(line(text), err=True)


def failure(error: Exception) -> click.ClickException:
    """Return the exception that ends a verb with exit code 2. Its message has no errno."""
    if isinstance(error, OSError) and error.strerror:
        return click.ClickException(
            ": ".join(safe_name(str(part)) for part in (error.filename, error.strerror) if part)
        )
    return click.ClickException(str(error))


@contextlib.contextmanager
def progress(label: str, length: int, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar on stderr that moves with each of ``length`` kinds. Print nothing if stderr is not a terminal."""
    hidden = quiet or not sys.stderr.isatty()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, hidden=hidden, item_show_func=lambda item: item or ""
    ) as bar:

        def show(kind: Kind, count: int) -> None:
            bar.update(int(count == 0), f"{kind} {count or ''}")
            bar.render_progress()

        yield show


def publish(
    result: Report, outputs: Sequence[tuple[str, str | None]], reporting: ReportOptions, *, grouped_text: bool = False
) -> None:
    """Write the report in each format to its file or to stdout.

    Raises:
        ClickException: a file cannot be written.
    """
    grouped = not reporting.all_lines
    for name, file in outputs:
        if name == "html" and reporting.pages_by:
            _publish_pages(result, file, reporting.pages_by)
            continue
        render = FORMATS[name]
        if name == "text":
            from virt_admit.reports.formats import text  # noqa: PLC0415 - one run prints one or two formats

            paint = _paint(reporting.color, file)
            render = partial(text.render, paint=paint, grouped=grouped and grouped_text)
        elif name == "markdown":
            render = partial(_markdown, grouped=grouped)
        write(render(result), file)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if name == "github" and summary:
            write(_markdown(result, grouped=grouped), summary, "ab")


def _markdown(result: Report, *, grouped: bool) -> str:
    from virt_admit.reports.formats import markdown  # noqa: PLC0415 - one run prints one or two formats

    return markdown.render(result, grouped=grouped)


def _publish_pages(result: Report, file: str | None, pages_by: str) -> None:
    from virt_admit.cli import pages  # noqa: PLC0415 - importing Jinja2 takes time
    from virt_admit.reports.html import findings  # noqa: PLC0415

    def split(by: Owners) -> dict[str, Page]:
        return {owner: findings.page(part, by.subject(owner)) for owner, part in findings.split(result, by).items()}

    pages.publish(pages.Pages(findings.page(result), split), file, pages_by)


def print_summary(result: Report, policy: Policy) -> None:
    """Print the summary line, the policy unless it is ``default``, and the expired exemptions on stderr."""
    tell(result.summary())
    if policy.name != "default":
        tell(f"policy: {policy.name}")
    for exemption in policy.expired:
        tell(f"exemption for {exemption.match} expired on {exemption.until}: {exemption.reason}")


def has_findings(result: Report, fail_on: str) -> bool:
    """Return whether the report has findings at or above ``--fail-on``."""
    return fail_on != "never" and result.at_least(Action[fail_on.upper()])


def _paint(color: str, file: str | None) -> Callable[[str, Action | None], str]:
    if color == "never" or (color == "auto" and (file or not wants_color())):
        return lambda word, _action: word
    colors = {Action.DENY: "red", Action.WARN: "yellow", Action.AUDIT: "cyan"}

    def paint(word: str, action: Action | None) -> str:
        return click.style(word, fg=colors.get(action) if action else "bright_black", bold=action is Action.DENY)

    return paint


def wants_color() -> bool:
    """Return whether stdout shows colors: a terminal, unless the environment says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0")) or sys.stdout.isatty()


def write(rendered: str, file: str | None, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write a report to a file or to stdout.

    Raises:
        ClickException: the file cannot be written.
    """
    content = rendered.encode(errors="backslashreplace")  # JSON may hold halves of surrogate pairs
    if file is None:
        click.echo(content, nl=False)
        return
    try:
        with open(file, mode) as output:
            output.write(content)
    except OSError as error:
        raise failure(error) from None
