"""An explanation of ``virt-admit explain`` as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.outage.check_restarts import VmRestart
from virt_admit.forecasts.outage.explanation import Explanation
from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Budget, Span
from virt_admit.forecasts.remediation.timeline import Stage, Timeline
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.int_or_percent import allowed_unhealthy
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.messages import count, names
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.sanitize import name
from virt_admit.reports.columns import table


def text(explanation: Explanation) -> str:
    """Return an explanation as text: tables of facts, steps, moments and VMs."""
    check, noun = explanation.check, _noun(explanation.check)
    steps = [("", "remediator", "takes", "next step after")] if explanation.stages else []
    steps += [(f"{number}.", *_stage(stage)) for number, stage in enumerate(explanation.stages, 1)]
    moments = [(str(moment.at), moment.what) for moment in explanation.timeline.moments]
    fates = "after their node is confirmed down"
    if explanation.timeline.never:
        fates = "if an administrator confirms that their node is down"
    parts: tuple[tuple[str, Sequence[tuple[str, ...]]], ...] = (
        (name(f"{check.obj.kind} {check.obj.full_name}"), list(_facts(explanation))),
        (f"Remediation of a {noun}", steps),
        (f"When a node stops reporting, and {_IF_ACTS[bool(explanation.obstacles)]}", moments),
        (f"VMs {fates}", list(_vms(explanation.fates))),
        ("Not available", [(what,) for what in explanation.unseen]),
    )
    return "\n".join(line for title, rows in parts if rows for line in (title, *table(rows), ""))


def facts(explanation: Explanation) -> tuple[tuple[str, str], ...]:
    """Return the facts about a health check, with names."""
    return tuple(_facts(explanation))


def stages(explanation: Explanation) -> tuple[tuple[str, str, str], ...]:
    """Return the remediators: name, duration, time until the next one."""
    return tuple(map(_stage, explanation.stages))


_IF_ACTS: Final = ("the limit lets the check act", "the check acts again")
"""On what the timeline rests: whether something keeps the check from acting now."""
_UNKNOWN: Final = "cannot be determined"


def _noun(check: HealthCheck) -> str:
    return "node" if check.kind is kinds.NHC else "machine"


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    check, selection = explanation.check, explanation.selection
    yield "selects", _selected(selection, _noun(check))
    limit = f"{explanation.budget.limit}: {_meaning(explanation.budget, _noun(check))}"
    yield "limit", limit + _raised(check, explanation.budget.total or 0)
    conditions = remediation_steps.symptoms(check)
    yield "unhealthy if", "; ".join(map(_condition, conditions)) or "(no condition is listed)"
    if check.kind is not kinds.NHC:
        yield "or a machine", "; ".join(_machine(check))
    yield "unhealthy now", _sick(explanation.unhealthy, complete=explanation.all_unhealthy)
    yield "VMs restart", _restart(explanation.timeline, acts=not explanation.obstacles)
    for other, shared in explanation.overlaps:
        yield "overlaps with", f"{other}: both watch {names(shared)}"
    for blocking_constraint in explanation.obstacles:
        yield "does nothing", blocking_constraint
    for note in explanation.notes:
        yield "note", note


def _selected(selection: Selection, noun: str) -> str:
    if selection.unseen and not selection:
        return _UNKNOWN
    visible = " that can be read" if selection.unseen else ""
    which = f": {names(obj.name for obj in selection.objects)}" if selection else ""
    return f"{count(len(selection), noun)}{visible}{which}"


def _sick(unhealthy: Sequence[tuple[str, str]], *, complete: bool) -> str:
    if not unhealthy:
        return "none" if complete else _UNKNOWN
    which = names(f"{name} ({why})" for name, why in unhealthy)
    return f"{len(unhealthy)}{'' if complete else ' that can be read'}: {which}"


def _meaning(budget: Budget, noun: str) -> str:
    is_limited = budget.one_by_one > 1 and not budget.never
    one_by_one = f", on one control-plane {noun} at a time" if is_limited else ""
    return f"{_allowed(budget)}{one_by_one}"


def _allowed(budget: Budget) -> str:
    of = "" if budget.total is None else f" of {budget.total}"
    if budget.never:
        return f"never acts, because it {budget.limit_text}"
    if budget.least > 1:
        return f"acts while {budget.least} to {budget.most}{of} are unhealthy"
    if budget.everything:
        target = "all" if budget.total is None else f"all {budget.total}"
        return f"sets no limit, may remediate {target} at once"
    if budget.most is None:
        return "cannot be determined"
    return f"acts while no more than {budget.most}{of} are unhealthy"


def _raised(check: HealthCheck, total: int) -> str:
    """Return the lowest limits that let a check act whose percentage rounds down to none; empty:
    it has another limit.

    A limit of 0 may be meant, and one object needs none.
    """
    known = check.known_limit()
    if (
        check.range.present
        or check.kind is kinds.NHC
        or known is None
        or not known.percent
        or total < 2
    ):
        return ""
    rounds_to_zero = known.number and not allowed_unhealthy(known, total, check.limit_of)
    return f". Set 1, or at least {math.ceil(100 / total)}%" if rounds_to_zero else ""


def _condition(condition: remediation_steps.Symptom) -> str:
    time = _duration(condition.time)
    return f"{condition.type or '?'}={condition.status or '?'} for {time}"


def _duration(time: int | None) -> str:
    return "a duration that is not valid" if time is None else format_duration(time)


def _machine(check: HealthCheck) -> Iterator[str]:
    """Yield what makes a machine unhealthy independently of its node's conditions."""
    for symptom in remediation_steps.machine_symptoms(check):
        yield f"reports {_condition(symptom)}"
    failed = "" if check.kind is kinds.CAPI_MHC else "is Failed, or "
    yield f"{failed}its node does not exist"
    startup = check.known_startup_time()
    if startup != 0:
        yield f"has no node for {_duration(startup)}"


def _stage(stage: Stage) -> tuple[str, str, str]:
    following = "" if stage.timeout is None else format_duration(stage.timeout)
    late = f"{following}: too short" if stage.cut_off else following
    return stage.name, _lasting(stage.takes), late


def _lasting(span: Span) -> str:
    if span.most is None:
        return "depends on the platform"
    return str(span) if span.least else f"up to {format_duration(span.most)}"


def _restart(course: Timeline, *, acts: bool) -> str:
    restart = course.restart
    if restart is None:
        return f"never: {course.never}"
    if not acts:  # the next lines say why
        return f"not while the check does nothing; else {_restart(course, acts=True)}"
    parts = [
        f"{format_duration(restart.grace)} until noticed",
        f"{format_duration(restart.patience)} Ready=Unknown",
    ]
    if restart.wasted:
        parts.append(f"{format_duration(restart.wasted)} wasted")
    remediator = f"{_lasting(restart.takes)} remediator"
    if restart.takes.most is None:
        remediator = "the time that the platform needs"
    return f"after {restart.at} = {' + '.join([*parts, remediator])}"


_OUTCOME: Final = {True: "restarted", False: "stays off", None: "unknown"}


def _vms(fates: Sequence[VmRestart]) -> Iterator[tuple[str, str, str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for fate in fates:
        outcome = "waits for a node" if fate.nowhere else _OUTCOME[fate.comes]
        groups.setdefault((outcome, fate.why), []).append(fate.vmi.full_name)
    for (outcome, why), vms in sorted(groups.items()):
        yield outcome, why, f"{count(len(vms), 'VM')}: {names(sorted(vms))}"
