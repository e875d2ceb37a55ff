"""Steps with the same id as one: two problems may ask for two changes, or one restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from virt_admit.forecasts.repair.repair_plan import (
    Command,
    FieldEdit,
    ObjectChange,
    RepairStep,
    StepCost,
)

T = TypeVar("T")


def merged(steps: Iterable[RepairStep]) -> list[RepairStep]:
    """Return each step once."""
    by_id: dict[str, RepairStep] = {}
    for step in steps:
        before = by_id.get(step.id)
        by_id[step.id] = step if before is None else _joined(before, step)
    return list(by_id.values())


def _joined(one: RepairStep, other: RepairStep) -> RepairStep:
    if _number(other) < _number(one):
        one, other = other, one
    cost = StepCost(
        other.cost.class_,
        max(one.cost.gib, other.cost.gib),
        max(one.cost.downtime, other.cost.downtime),
        max(one.cost.quota_gib, other.cost.quota_gib),
        max(one.cost.pods, other.cost.pods),
    )
    return replace(
        one,
        title=_title(one.title, other.title),
        cost=cost,
        changes=_changes((*one.changes, *other.changes)),
        solves=_once((*one.solves, *other.solves)),
        needs=_once((*one.needs, *other.needs)),
        preconditions=_once((*one.preconditions, *other.preconditions)),
        verify=_once((*one.verify, *other.verify)),
        risk="; ".join(_once(part for part in (one.risk, other.risk) if part)),
        alternatives=_once((*one.alternatives, *other.alternatives)),
        predicted=tuple(
            {(obj.kind, obj.full_name): obj for obj in (*one.predicted, *other.predicted)}.values()
        ),
        copies=_once((*one.copies, *other.copies)),
        followed=_changes((*one.followed, *other.followed)),
    )


def _number(step: RepairStep) -> int:
    return len(step.predicted)


_RESTART = ", and restart it while its node is cordoned"


def _title(one: str, other: str) -> str:
    if one == other or one.startswith("add "):
        return other
    if one.endswith(_RESTART):
        return f"{one.removesuffix(_RESTART)}, {other}"
    return f"{one}, {other}"


def _changes(changes: Iterable[ObjectChange]) -> tuple[ObjectChange, ...]:
    """Return the changes with all edits of one object in one patch, at the place of the first."""
    found: list[ObjectChange] = []
    for change in changes:
        same = next(
            (
                index
                for index, each in enumerate(found)
                if each.command is Command.PATCH
                and change.command is Command.PATCH
                and each.subject == change.subject
            ),
            None,
        )
        if same is not None:
            found[same] = replace(found[same], edits=_edits((*found[same].edits, *change.edits)))
        elif change.command is Command.PERSON and found and found[-1].command is Command.PERSON:
            found[-1] = change
        elif change not in found:
            found.append(change)
    return tuple(found)


def _edits(edits: Iterable[FieldEdit]) -> tuple[FieldEdit, ...]:
    """Return the edits, of each field the last one."""
    by_path: dict[tuple[str | int, ...], FieldEdit] = {}
    for edit in edits:
        by_path.pop(edit.path, None)
        by_path[edit.path] = edit
    return tuple(by_path.values())


def _once(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))
