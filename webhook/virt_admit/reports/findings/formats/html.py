"""HTML for people: one page that needs nothing else.

Jinja2 is imported only here, when a page is written.
"""

from __future__ import annotations

from virt_admit.reports.findings.report import Report


def render(report: Report) -> str:
    """Return the report as a page."""
    # importing Jinja2 takes time
    from virt_admit.reports.findings import html as findings_html  # noqa: PLC0415
    from virt_admit.reports.html import page  # noqa: PLC0415 - importing Jinja2 takes time

    return page.render(findings_html.page(report))
