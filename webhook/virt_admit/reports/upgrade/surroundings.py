"""What objects around the stops of an upgrade report as wrong, beside its verdict."""

from __future__ import annotations

from dataclasses import replace

from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.model.evidence import reported
from virt_admit.model.evidence.reported import WholeCluster


def with_reported(result: Rehearsal, cluster: WholeCluster) -> Rehearsal:
    """Return a rehearsal with what the objects that its stops name, and those around them, report."""
    stops = tuple(text for stop in result.stops for text in (stop.reason, stop.remedy))
    held = tuple(text for operator in result.operators for text in (operator.reason, operator.remedy))
    said = (*stops, *held)
    return replace(result, reported=reported.around_named(cluster, said) if said else ())
