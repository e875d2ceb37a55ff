"""Publishing a report of findings: each format to its file or to stdout,
and its summary on stderr.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import click

from virt_admit.cli.options import ReportOptions
from virt_admit.cli.output import failure, tell, wants_color, write
from virt_admit.policy.policy import Policy
from virt_admit.reports.findings.formats import FORMATS
from virt_admit.reports.findings.report import Report
from virt_admit.rule import Action
from virt_admit.settings import SettingError


def publish(
    result: Report,
    outputs: Sequence[tuple[str, str | None]],
    reporting: ReportOptions,
    *,
    grouped_text: bool = False,
) -> None:
    """Write the report in each format to its file or to stdout.

    Raises:
        ClickException: a file cannot be written, or a setting of a format is not valid.
    """
    grouped = not reporting.all_lines
    for name, file in outputs:
        if name == "html" and reporting.pages_by:
            _publish_pages(result, file, reporting.pages_by)
            continue
        render = FORMATS[name]
        if name == "text":
            # one run prints one or two formats
            from virt_admit.reports.findings.formats import text  # noqa: PLC0415

            paint = _paint(reporting.color, file)
            render = partial(text.render, paint=paint, grouped=grouped and grouped_text)
        elif name == "markdown":
            render = partial(_markdown, grouped=grouped)
        write(_rendered(render, result), file)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if name == "github" and summary:
            write(_rendered(partial(_markdown, grouped=grouped), result), summary, "ab")


def _rendered(render: Callable[[Report], str], result: Report) -> str:
    """Return the report in a format.

    Raises ClickException if a setting of the format is not valid.
    """
    try:
        return render(result)
    except SettingError as error:
        raise failure(error) from None


def _markdown(result: Report, *, grouped: bool) -> str:
    # one run prints one or two formats
    from virt_admit.reports.findings.formats import markdown  # noqa: PLC0415

    return markdown.render(result, grouped=grouped)


def _publish_pages(result: Report, file: str | None, pages_by: str) -> None:
    from virt_admit.cli import html_output  # noqa: PLC0415 - importing Jinja2 takes time
    from virt_admit.reports.findings import html as findings_html  # noqa: PLC0415

    whole, split = findings_html.page(result), partial(findings_html.split, result)
    pages = html_output.OwnerPages.of(whole, split, findings_html.page)
    html_output.publish(pages, file, pages_by)


STRICT_HINT: Final = "The exit code does not count rules without data: --strict makes it 1"
CLUSTER_HINT: Final = f"{STRICT_HINT}, --cluster FILE or --live gives them the data"


def missing_data_hint(strict: bool, has_cluster: bool) -> str:
    """Return what to say about rules that could not read the data they need."""
    if strict:
        return ""
    return STRICT_HINT if has_cluster else CLUSTER_HINT


def print_summary(result: Report, policy: Policy, hint: str = STRICT_HINT) -> None:
    """Print the summary line, the policy unless it is ``default``,
    and the expired exemptions on stderr.

    Args:
        result: the report.
        policy: the policy.
        hint: what to say if rules could not read the data they need.
    """
    tell(result.summary() + (f". {hint}" if hint and result.rules_without_data else ""))
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
        return click.style(
            word, fg=colors.get(action) if action else "bright_black", bold=action is Action.DENY
        )

    return paint
