"""A repair plan as JSON data (docs/plan.schema.json)."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.repair.repair_plan import RepairPlan
from virt_admit.reports.plan.report import report
from virt_admit.reports.values import as_data as values


def as_data(plan: RepairPlan) -> dict[str, Any]:
    """Return a plan as JSON data."""
    data: dict[str, Any] = values(report(plan))
    return data
