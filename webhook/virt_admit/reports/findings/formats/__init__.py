"""Report formats, one module each. Equal results give equal bytes: sorted, without timestamps."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from virt_admit.model.messages import did_you_mean
from virt_admit.reports.findings.report import Report


def _render(name: str, report: Report) -> str:
    """Return the report in a format.

    Its module is imported on first use, because one run prints one or two formats.
    """
    render: Callable[[Report], str] = importlib.import_module(f"{__name__}.{name}").render
    return render(report)


FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    name: partial(_render, name)
    for name in (
        "text",
        "json",
        "sarif",
        "junit",
        "github",
        "gitlab",
        "markdown",
        "html",
        "openreports",
        "policyreport",
    )
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
            meant = did_you_mean(name, list(FORMATS))
            remedy = f"Did you mean {meant}?" if meant else f"Use one of {', '.join(FORMATS)}"
            raise ValueError(f"unknown output format {name}. {remedy}")
        outputs.append((name, file or None))
    if sum(file is None for _, file in outputs) > 1:
        raise ValueError(
            "several outputs go to stdout. Write all but one to a file: -o json=report.json"
        )
    return outputs
