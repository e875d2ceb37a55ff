"""An outage as JSON data (docs/outage.schema.json)."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.outage.outages import Outages
from virt_admit.reports.outage.report import report
from virt_admit.reports.values import as_data as values


def as_data(found: Outages) -> dict[str, Any]:
    """Return an answer as JSON data."""
    data: dict[str, Any] = values(report(found))
    return data
