"""A rehearsal as JSON data (docs/upgrade.schema.json)."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.reports.upgrade.report import report
from virt_admit.reports.values import as_data as values


def as_data(result: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal as JSON data."""
    data: dict[str, Any] = values(report(result))
    return data
