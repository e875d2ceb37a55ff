"""JSON for scripts: everything that is known. Keys are only added, never removed."""

from __future__ import annotations

from virt_admit.reports.findings.findings_report import findings_report
from virt_admit.reports.findings.report import Report
from virt_admit.reports.values import as_data, json_text


def render(report: Report) -> str:
    """Return the report as one JSON object (docs/check.schema.json)."""
    return json_text(as_data(findings_report(report))) + "\n"
