"""PolicyReport, the predecessor of OpenReports."""

from __future__ import annotations

from virt_admit.reports.findings.formats import policy_reports
from virt_admit.reports.findings.report import Report


def render(report: Report) -> str:
    """Return the reports about all objects as one List."""
    return policy_reports.render(policy_reports.POLICYREPORT, report)
