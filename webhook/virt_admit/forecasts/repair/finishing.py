"""The order of steps, what each of them solves, and what the cluster in memory says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.repair import patching, prerequisites, queries
from virt_admit.forecasts.repair.causes import disk_copies
from virt_admit.forecasts.repair.judging import GoalJudgement
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    ObjectChange,
    ObjectRef,
    Patched,
    PlannedCheck,
    Proof,
    RepairStep,
    RootProblem,
    TakesEffect,
)
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find

_DISKS = "DisksNotLiveMigratable"


def solving(steps: Sequence[RepairStep], found: Iterable[RootProblem]) -> list[RepairStep]:
    """Return the steps of one way with the ids of the problems that each of them solves."""
    ids = [(problem.id, problem.cause) for problem in found]
    if len([step for step in steps if not step.id.startswith(disk_copies.AFTER)]) == 1:
        return [replace(steps[0], solves=tuple(name for name, _ in ids)), *steps[1:]]
    return [
        step
        if step.id.startswith(disk_copies.AFTER)
        else replace(
            step,
            solves=tuple(name for name, cause in ids if (cause == _DISKS) == bool(step.copies)),
        )
        for step in steps
    ]


def ordered(steps: Iterable[RepairStep]) -> list[RepairStep]:
    """Return the steps by stage, then by owner and name.

    Live changes of a VM come before its restart.
    """
    return sorted(
        steps, key=lambda step: (step.stage, step.owner, step.subject.name, _turn(step), step.id)
    )


def _turn(step: RepairStep) -> int:
    """Return the turn of a step among those of its VM: copies need a VM that can migrate."""
    return 2 if step.id.startswith(disk_copies.AFTER) else int(bool(step.copies))


def without_unused(steps: Sequence[RepairStep]) -> list[RepairStep]:
    """Return the steps without those that only serve steps which are gone."""
    needed = {name for step in steps for name in step.needs}
    return [
        step for step in steps if not step.id.startswith(prerequisites.PREFIX) or step.id in needed
    ]


def proven(
    steps: Sequence[RepairStep],
    found: Mapping[str, RootProblem],
    last: GoalJudgement,
    cluster: Cluster,
) -> list[RepairStep]:
    """Return the steps with their patches, and with what holds after all of them."""
    left = {problem.id: problem for problem in last.problems}
    state: dict[ObjectRef, Object] = {}
    result: list[RepairStep] = []
    for index, step in enumerate(steps):
        later = any(each.subject == step.subject and each.solves for each in steps[index + 1 :])
        earlier = tuple(each.id for each in result if each.subject == step.subject)
        proof, finding = _proof(step, left, last, later=later)
        served = {name for each in steps if step.id in each.needs for name in each.solves}
        solves = step.solves or tuple(sorted(served))
        own = find(cluster, *step.subject)
        result.append(
            replace(
                step,
                solves=solves,
                frees=_frees(solves, found, last),
                needs=tuple(dict.fromkeys((*step.needs, *earlier))),
                proof=proof,
                finding=finding,
                gitops=_hint(own) if own is not None else "",
                verify=_verified(step, own),
                patched=_patched(step, state, cluster),
            )
        )
    return result


def _hint(obj: Object) -> str:
    """Return which tool writes an object and would revert a change of it, and what to do about
    that; empty: nothing says that one does.
    """
    writer = writers.of(obj)
    if writer is None:
        return ""
    return (
        f"{writer.tool} writes this object: change it in the repository, or the change is "
        "reverted. Pause the sync only for a data copy."
    )


def _verified(step: RepairStep, vm: Object | None) -> tuple[PlannedCheck, ...]:
    """Return the checks of a step.

    Until the VMI has the new values, the others are those of the VM before.
    """
    if vm is None or step.takes_effect not in (
        TakesEffect.LIVE,
        TakesEffect.RESTART,
        TakesEffect.COPY,
    ):
        return step.verify
    running = queries.running(step, vm)
    return (running, *step.verify) if running is not None else step.verify


def _proof(
    step: RepairStep, left: Mapping[str, RootProblem], last: GoalJudgement, *, later: bool
) -> tuple[Proof, str]:
    if not step.solves:
        return Proof.PART, ""
    unsolved = [left[name] for name in step.solves if name in left]
    if unsolved:
        return Proof.DOES_NOT_FLIP, unsolved[0].reason
    row = last.rows.get(step.subject._replace(kind=VMI)) if step.subject.kind is VM else None
    if row is not None and row.outcome is VmOutcome.UNKNOWN:
        return Proof.UNKNOWN, row.reason
    if row is not None and row.outcome is VmOutcome.BLOCKS:
        return Proof.PART, row.reason
    return (Proof.PART if later else Proof.FLIPS), ""


def _frees(
    solves: Iterable[str], found: Mapping[str, RootProblem], last: GoalJudgement
) -> tuple[str, ...]:
    """Return the nodes that the problems of a step kept, and that can be drained in the end."""
    nodes = {node for name in solves if name in found for node in found[name].nodes}
    return tuple(sorted(node for node in nodes if last.drainable.get(node)))


def _patched(
    step: RepairStep, state: dict[ObjectRef, Object], cluster: Cluster
) -> tuple[Patched, ...]:
    """Return the changes with their patches, made for the object as the steps before leave it."""
    result: list[Patched] = []
    for change in map(_typable, step.changes):
        if change.command is not Command.PATCH:
            result.append(Patched(change))
            continue
        found = state.get(change.subject) or find(cluster, *change.subject)
        if found is None:
            continue
        patch, undo = patching.patches(found, change.edits)
        state[change.subject] = patching.edited(found, change.edits)
        if patch:
            result.append(Patched(change, patch, undo))
    for change in step.followed:
        found = state.get(change.subject) or find(cluster, *change.subject)
        if found is not None:
            state[change.subject] = patching.edited(found, change.edits)
    return tuple(result)


def _typable(change: ObjectChange) -> ObjectChange:
    """Return a change that has names which are no DNS names as the work of a person:
    such names must not be typed.
    """
    names = (
        change.subject.name,
        *(part for part in (change.subject.namespace,) if part),
        *change.arguments,
    )
    if change.command is Command.PERSON or all(map(selectors.is_dns_name, _names(names))):
        return change
    return replace(
        change, command=Command.PERSON, text="its name is not a DNS name: change it by hand"
    )


def _names(words: Iterable[str]) -> Iterator[str]:
    return (word for word in words if word != "-n")
