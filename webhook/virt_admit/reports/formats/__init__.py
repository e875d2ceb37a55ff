"""Report formats, one module each. Equal results give equal bytes: sorted, without timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from virt_admit.reports.formats import github, gitlab, html, json, junit, markdown, policy_reports, sarif, text
from virt_admit.reports.report import Report

FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": text.render,
    "json": json.render,
    "sarif": sarif.render,
    "junit": junit.render,
    "github": github.render,
    "gitlab": gitlab.render,
    "markdown": markdown.render,
    "html": html.render,
    "openreports": partial(policy_reports.render, policy_reports.OPENREPORTS),
    "policyreport": partial(policy_reports.render, policy_reports.POLICYREPORT),
}


def parse_output(options: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return ``-o FORMAT[=FILE]`` options as pairs of format and file (None: stdout).

    Raises:
        ValueError: a format is unknown, or two go to stdout.
    """
    outputs = []
    for option in options or ("text",):
        name, _, file = option.partition("=")
        if name not in FORMATS:
            raise ValueError(f"unknown output format {name}. Use one of {', '.join(FORMATS)}")
        outputs.append((name, file or None))
    if sum(file is None for _, file in outputs) > 1:
        raise ValueError("several outputs go to stdout. Write all but one to a file: -o json=report.json")
    return outputs
