"""The browser tests are skipped where the browser is missing;
a line at the end of the run says how to get it.
"""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once how to run these tests, because a quiet run does not show reasons."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if report.nodeid.startswith("tests/browser/")
    ]
    for reason in sorted({report.longrepr[2] for report in skipped}):
        terminalreporter.write_line(
            f"browser tests skipped: {reason.removeprefix('Skipped: ')}", yellow=True
        )
