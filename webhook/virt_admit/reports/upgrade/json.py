"""A rehearsal as JSON data. All times are whole seconds from the beginning."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal


def as_data(result: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal as JSON data (docs/upgrade.schema.json)."""
    return {
        "version": 1,
        "by": str(result.driver),
        "possible": result.possible,
        "unseen": list(result.unseen),
        "duration": None if result.duration is None else {**_range(result.duration), "rests_on": list(result.rests_on)},
        "waves": [
            {"nodes": list(wave.nodes), "start": _range(wave.start), "end": _range(wave.end)} for wave in result.waves
        ],
        "vms": [
            {"namespace": vm.namespace, "name": vm.name, "moves": vm.moves, "outcome": str(vm.outcome)}
            for vm in result.vms
        ],
        "stops": [{"node": stop.node, "reason": stop.reason, "remedy": stop.remedy} for stop in result.stops],
        "faster": [
            {"setting": saving.setting, "from": saving.before, "to": saving.after, "saves": saving.seconds}
            for saving in result.faster
        ],
        "health_checks": [
            {
                "kind": check.kind,
                "namespace": check.namespace,
                "name": check.name,
                "nodes": list(check.nodes),
                "acts": check.acts,
                "after": check.after,
                "reason": check.reason,
            }
            for check in result.health_checks
        ],
    }


def _range(seconds: Range) -> dict[str, int]:
    return {"low": seconds.low, "high": seconds.high}
