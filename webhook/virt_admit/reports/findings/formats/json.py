"""JSON for scripts: everything that is known. Keys are only added, never removed."""

from __future__ import annotations

import json

from virt_admit.model.sanitize import escape_json
from virt_admit.reports.findings.findings_report import findings_report
from virt_admit.reports.findings.report import Report
from virt_admit.reports.values import as_data


def render(report: Report) -> str:
    """Return the report as one JSON object (docs/check.schema.json)."""
    return (
        escape_json(json.dumps(as_data(findings_report(report)), indent=2, ensure_ascii=False))
        + "\n"
    )
