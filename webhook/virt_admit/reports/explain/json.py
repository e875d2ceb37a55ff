"""An explanation of ``virt-admit explain`` as JSON data."""

from __future__ import annotations

from typing import Any

from virt_admit.forecasts.outage.check_restarts import VmRestart
from virt_admit.forecasts.outage.explanation import Explanation
from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Budget, Span
from virt_admit.forecasts.remediation.timeline import Stage, Timeline
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.reports.findings.report import identity


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON data. Times are in seconds after the moment in which a node stops reporting."""
    check = explanation.check
    return {
        "version": 1,
        "object": identity(check.obj),
        "selected": _selected(explanation),
        "limit": _limit(explanation.budget),
        "conditions": list(map(_symptom, remediation_steps.symptoms(check))),
        "machineConditions": list(map(_symptom, remediation_steps.machine_symptoms(check))),
        "startup": None if check.kind is kinds.NHC else _seconds(check.known_startup_time()),
        "unhealthy": [{"name": name, "why": reason} for name, reason in explanation.unhealthy],
        "unhealthyComplete": explanation.all_unhealthy,
        "obstacles": list(explanation.obstacles),
        "notes": list(explanation.notes),
        "overlaps": [{"name": other, "shared": list(shared)} for other, shared in explanation.overlaps],
        "steps": list(map(_step, explanation.stages)),
        "timeline": [
            {"at": _span(moment.at), "event": str(moment.event), "what": moment.what}
            for moment in explanation.timeline.moments
        ],
        "restart": _restart(explanation.timeline),
        "never": explanation.timeline.never or None,
        "vms": list(map(_vm, explanation.fates)),
        "unseen": list(explanation.unseen),
    }


def _selected(explanation: Explanation) -> dict[str, Any]:
    selection = explanation.selection
    return {
        "kind": "Node" if explanation.check.kind is kinds.NHC else "Machine",
        "count": len(selection),
        "complete": not selection.unseen,
        "names": [obj.name for obj in selection.objects],
    }


def _limit(budget: Budget) -> dict[str, Any]:
    return {
        "text": budget.limit,
        "least": budget.least,
        "most": budget.most,
        "never": budget.never,
        "everything": budget.everything,
        "controlPlaneOneByOne": budget.one_by_one > 1,
    }


def _step(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "takes": _span(stage.takes),
        "timeout": _seconds(stage.timeout),
        "cancelled": stage.cut_off,
        "fails": stage.fails or None,
    }


def _restart(timeline: Timeline) -> dict[str, Any] | None:
    restart = timeline.restart
    return restart and {
        **_span(restart.at),
        "grace": _seconds(restart.grace),
        "patience": _seconds(restart.patience),
        "wasted": _seconds(restart.wasted),
        "remediator": _span(restart.takes),
    }


def _vm(fate: VmRestart) -> dict[str, Any]:
    return {
        "namespace": fate.vmi.namespace,
        "name": fate.vmi.name,
        "node": fate.vmi.at("status", "nodeName").text,
        "restarted": fate.comes,
        "nowhere": fate.nowhere or None,
        "why": fate.why,
    }


def _symptom(symptom: remediation_steps.Symptom) -> dict[str, Any]:
    return {"type": symptom.type, "status": symptom.status, "seconds": _seconds(symptom.time)}


def _span(span: Span) -> dict[str, float | None]:
    return {"least": _seconds(span.least), "most": _seconds(span.most)}


def _seconds(nanoseconds: int | None) -> float | None:
    if nanoseconds is None:
        return None
    whole, rest = divmod(nanoseconds, SECOND)
    return nanoseconds / SECOND if rest else whole
