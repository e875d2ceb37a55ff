"""A drain plan as JSON data (docs/drain.schema.json)."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.drain.drain_plan import Plan
from virt_admit.reports.drain.report import report
from virt_admit.reports.values import as_data as values


def as_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON data."""
    data: dict[str, Any] = values(report(plan))
    return data
