"""What reports look like: one module for each format. Bytes are deterministic: no clock, always sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from virt_admit.reports.formats import github, gitlab, json, junit, markdown, policy_reports, sarif, text
from virt_admit.reports.report import Report

FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": text.render,
    "json": json.render,
    "sarif": sarif.render,
    "junit": junit.render,
    "github": github.render,
    "gitlab": gitlab.render,
    "markdown": markdown.render,
    "openreports": partial(policy_reports.render, policy_reports.OPENREPORTS),
    "policyreport": partial(policy_reports.render, policy_reports.POLICYREPORT),
}


def parse_output(options: Sequence[str]) -> list[tuple[str, str | None]]:
    """``-o FORMAT[=FILE]`` options as pairs of format and file (None: stdout).

    Raises:
        ValueError: an unknown format, or two for stdout.
    """
    outputs = []
    for option in options or ("text",):
        name, _, file = option.partition("=")
        if name not in FORMATS:
            raise ValueError(f"unknown output format {name}; known are {', '.join(FORMATS)}")
        outputs.append((name, file or None))
    if sum(file is None for _, file in outputs) > 1:
        raise ValueError("only one output can go to stdout; give the others a file: -o json=report.json")
    return outputs
