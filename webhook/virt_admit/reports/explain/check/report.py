"""The report of ``explain`` about a health check as one value: its fields are the keys of the JSON,
in order.

Times are seconds after the moment in which a node stops reporting. None means that the value cannot
be determined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virt_admit.forecasts.outage.check_restarts import VmRestart
from virt_admit.forecasts.outage.explanation import Explanation
from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Budget, Span
from virt_admit.forecasts.remediation.timeline import Event, Stage, Timeline
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.reports.findings.findings_report import ObjectName
from virt_admit.reports.findings.report import identity


@dataclass(frozen=True, slots=True)
class SelectedTargets:
    """The nodes or machines that the check watches."""

    kind: Literal["Node", "Machine"]
    count: int
    complete: bool
    """Whether all of them could be read."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemediationLimit:
    """The numbers of unhealthy nodes or machines on which the check acts."""

    text: str
    """The setting as written."""
    least: int
    most: int | None
    never: bool
    everything: bool
    controlPlaneOneByOne: bool  # noqa: N815 - the key of the JSON


@dataclass(frozen=True, slots=True)
class UnhealthyCondition:
    """A condition that makes a node or machine unhealthy after a time."""

    type: str
    status: str
    seconds: float | None
    """None: the duration is not valid."""


@dataclass(frozen=True, slots=True)
class UnhealthyTarget:
    """A node or machine that is unhealthy now."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class OverlappingCheck:
    """Another check that selects some of the same objects."""

    name: str
    shared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondsSpan:
    """A range of seconds; ``most`` is None if it has no known upper bound."""

    least: float
    most: float | None


@dataclass(frozen=True, slots=True)
class RemediationStep:
    """The run of one remediator."""

    name: str
    takes: SecondsSpan
    timeout: float | None
    """The time after which the next step begins. None: it has no time limit."""
    cancelled: bool
    """Whether it is cancelled before it can finish."""
    fails: str | None
    """Why it can act on none of the selected nodes."""


@dataclass(frozen=True, slots=True)
class TimelineMoment:
    """An event after a node stops reporting."""

    at: SecondsSpan
    event: Event
    what: str


@dataclass(frozen=True, slots=True)
class RestartTime(SecondsSpan):
    """When the VMs of the node can start elsewhere, and its parts."""

    grace: float
    """Until the node controller notices."""
    patience: float
    """Until the check acts."""
    wasted: float
    """Spent on remediators that are cancelled before they finish."""
    remediator: SecondsSpan


@dataclass(frozen=True, slots=True)
class VmAfterRemediation:
    """What becomes of a VM after its node is confirmed down."""

    namespace: str
    name: str
    node: str | None
    restarted: bool | None
    nowhere: str | None
    """Why no other node can run it now, although it would restart."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheckReport:
    """One health check: what it watches, when it acts, and when VMs run again."""

    version: Literal[1] = 1
    object: ObjectName
    selected: SelectedTargets
    limit: RemediationLimit
    conditions: tuple[UnhealthyCondition, ...]
    machineConditions: tuple[UnhealthyCondition, ...]  # noqa: N815 - the keys of the JSON
    startup: float | None
    """The time in which a machine must become a node; 0: no limit. None: not valid,
    or not of this kind.
    """
    unhealthy: tuple[UnhealthyTarget, ...]
    unhealthyComplete: bool  # noqa: N815
    obstacles: tuple[str, ...]
    """Why the check does nothing now."""
    notes: tuple[str, ...]
    overlaps: tuple[OverlappingCheck, ...]
    steps: tuple[RemediationStep, ...]
    timeline: tuple[TimelineMoment, ...]
    restart: RestartTime | None
    never: str | None
    """Why the VMs never restart."""
    vms: tuple[VmAfterRemediation, ...]
    unseen: tuple[str, ...]


def report(explanation: Explanation) -> HealthCheckReport:
    """Return the report of an explanation."""
    check = explanation.check
    return HealthCheckReport(
        object=ObjectName(**identity(check.obj)),
        selected=_selected(explanation),
        limit=_limit(explanation.budget),
        conditions=tuple(map(_condition, remediation_steps.symptoms(check))),
        machineConditions=tuple(map(_condition, remediation_steps.machine_symptoms(check))),
        startup=None if check.kind is kinds.NHC else _time(check.known_startup_time()),
        unhealthy=tuple(UnhealthyTarget(name, reason) for name, reason in explanation.unhealthy),
        unhealthyComplete=explanation.all_unhealthy,
        obstacles=explanation.obstacles,
        notes=explanation.notes,
        overlaps=tuple(OverlappingCheck(other, shared) for other, shared in explanation.overlaps),
        steps=tuple(map(_step, explanation.stages)),
        timeline=tuple(
            TimelineMoment(_span(one.at), one.event, one.what)
            for one in explanation.timeline.moments
        ),
        restart=_restart(explanation.timeline),
        never=explanation.timeline.never or None,
        vms=tuple(map(_vm, explanation.fates)),
        unseen=explanation.unseen,
    )


def _selected(explanation: Explanation) -> SelectedTargets:
    selection = explanation.selection
    kind: Literal["Node", "Machine"] = "Node" if explanation.check.kind is kinds.NHC else "Machine"
    names = tuple(target.name for target in selection.objects)
    return SelectedTargets(kind, len(selection), not selection.unseen, names)


def _limit(budget: Budget) -> RemediationLimit:
    numbers = budget.limit, budget.least, budget.most
    return RemediationLimit(*numbers, budget.never, budget.everything, budget.one_by_one > 1)


def _step(stage: Stage) -> RemediationStep:
    return RemediationStep(
        stage.name, _span(stage.takes), _time(stage.timeout), stage.cut_off, stage.fails or None
    )


def _restart(timeline: Timeline) -> RestartTime | None:
    restart = timeline.restart
    return restart and RestartTime(
        _seconds(restart.at.least),
        _time(restart.at.most),
        _seconds(restart.grace),
        _seconds(restart.patience),
        _seconds(restart.wasted),
        _span(restart.takes),
    )


def _vm(fate: VmRestart) -> VmAfterRemediation:
    node = fate.vmi.at("status", "nodeName").text
    return VmAfterRemediation(
        fate.vmi.namespace, fate.vmi.name, node, fate.comes, fate.nowhere or None, fate.why
    )


def _condition(symptom: remediation_steps.Symptom) -> UnhealthyCondition:
    return UnhealthyCondition(symptom.type, symptom.status, _time(symptom.time))


def _span(span: Span) -> SecondsSpan:
    return SecondsSpan(_seconds(span.least), _time(span.most))


def _time(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else _seconds(nanoseconds)


def _seconds(nanoseconds: int) -> float:
    """Return seconds: an integer if they are whole, so that the JSON has no ``.0``."""
    whole, rest = divmod(nanoseconds, SECOND)
    return nanoseconds / SECOND if rest else whole
