"""From what keeps a goal from holding to an ordered list of steps,
each proven in a cluster in memory.

Judge, choose the best way for each VM and shared object, apply all of it, judge again: what shows
then is repaired too, or another way is chosen. At the end each step is left out once, and what is
not needed goes. There is no random choice: equal clusters give equal plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain import vm_outcomes
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.repair import disk_sizes, finishing, prerequisites, storage_classes
from virt_admit.forecasts.repair.applying import applied, unfinished
from virt_admit.forecasts.repair.causes import disk_copies, node_steps, shared_objects
from virt_admit.forecasts.repair.changed_cluster import ChangedCluster
from virt_admit.forecasts.repair.judging import GoalJudgement, judge
from virt_admit.forecasts.repair.merging import merged
from virt_admit.forecasts.repair.repair_plan import (
    Goal,
    ObjectRef,
    RemainingProblem,
    RepairPlan,
    RepairStep,
    RootProblem,
)
from virt_admit.forecasts.repair.vm_options import Option, ways
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.lookups import find
from virt_admit.model.problems import ProblemCause

READS: Final = union(
    outages.READS,
    rehearsal.READS,
    storage_classes.READS,
    disk_sizes.READS,
    dict.fromkeys(
        (
            kinds.VM,
            kinds.POOL,
            kinds.PVC,
            kinds.DATA_VOLUME,
            kinds.RESOURCE_QUOTA,
            kinds.LIMIT_RANGE,
            kinds.MIGRATION_POLICY,
            kinds.PDB,
            kinds.AUTOSCALER,
        ),
        (),
    ),
    dict.fromkeys(
        (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.REPLICA_SET),
        ("metadata.labels", "metadata.annotations"),
    ),
)
"""The fields that a plan reads."""

_NO_STEP: Final = "no step ends it"
ROUNDS: Final = 6
"""How often what shows after the steps is repaired too."""
_MOST_NODES: Final = 8
"""Nodes that a plan adds at most of one kind."""
_MOST_LEFT_OUT: Final = 24
"""Steps on shared objects that are left out once: each takes a judgement of the cluster."""


def repair(
    cluster: Cluster, goal: Goal, nodes: Sequence[str] = (), wishes: Wishes | None = None
) -> RepairPlan:
    """Return the steps after which a goal holds, as far as there are any.

    Raises:
        LookupError: a node does not exist.
    """
    first = judge(goal, cluster, nodes)
    if first.holds or not first.problems:
        return _without_steps(goal, first)
    return _Planner(cluster, goal, tuple(nodes), wishes or Wishes(), first).plan()


def _without_steps(goal: Goal, found: GoalJudgement) -> RepairPlan:
    """Return the plan where nothing has to be done, or nothing is known that could be."""
    left = () if found.holds else found.undetermined
    remaining = tuple(RemainingProblem(problem, problem.remedy or _NO_STEP) for problem in left)
    nodes = tuple(sorted(found.drainable))
    holds, notes = found.holds, found.notes if found.holds else ()
    return RepairPlan(goal, holds, holds, (), left, remaining, found.unseen, nodes, notes)


class _Planner:
    def __init__(
        self,
        cluster: Cluster,
        goal: Goal,
        nodes: tuple[str, ...],
        wishes: Wishes,
        first: GoalJudgement,
    ) -> None:
        self.cluster, self.goal, self.nodes = cluster, goal, nodes
        self.wishes, self.first = wishes, first
        self.chosen: dict[ObjectRef, list[tuple[Option, tuple[RootProblem, ...]]]] = {}
        """By VMI: the ways chosen, and the problems that each is for."""
        self.shared: dict[str, RepairStep] = {}
        self.tried: dict[ObjectRef, set[tuple[frozenset[str], str]]] = {}
        self.refused: dict[str, str] = {}
        """Why there is no step, by problem."""
        self.found: dict[str, RootProblem] = {}
        """Every problem that showed."""
        self.current: Cluster = cluster
        self.last = first

    def plan(self) -> RepairPlan:
        for _ in range(ROUNDS):
            self.found = {problem.id: problem for problem in self.last.problems} | self.found
            if not self.last.problems or not self._choose():
                break
            self._apply(self._steps())
        self._guard()
        chosen = self._steps()
        steps = self._needed(chosen)
        if steps != chosen:
            self._apply(steps)
        return self._result(steps)

    # --- choosing ---

    def _choose(self) -> bool:
        """Choose a way for each problem; return whether anything changed."""
        changed = False
        for vmi, own in sorted(self.last.by_vm.items(), key=lambda item: item[0].full_name):
            changed |= self._for_vm(vmi, own)
        for problem in self.last.problems:
            if not changed or problem.cause not in _AFTER_VMS:
                changed |= self._for_object(problem)
        return changed

    def _for_vm(self, vmi: ObjectRef, own: tuple[RootProblem, ...]) -> bool:
        running = find(self.current, kinds.VMI, vmi.namespace, vmi.name)
        if running is None or all(problem.cause in _SHARED for problem in own):
            return False
        found = ways(running, own, self.current, self.wishes)
        for problem in own:
            self.refused[problem.id] = "; ".join(found.refused)
        causes = frozenset(problem.cause for problem in own)
        tried = self.tried.setdefault(vmi, set())
        for option in found.options:
            if (causes, option.id) not in tried:
                tried.add((causes, option.id))
                self.chosen.setdefault(vmi, []).append((option, own))
                return True
        return self._back(vmi)

    def _back(self, vmi: ObjectRef) -> bool:
        """Take back the last way of a VM that did not help; return whether there was one."""
        if not self.chosen.get(vmi):
            return False
        self.chosen[vmi].pop()
        return True

    def _for_object(self, problem: RootProblem) -> bool:
        if problem.cause in _SHARED or not problem.vms:
            made = (
                self._room(problem)
                if problem.cause == ProblemCause.NO_ROOM
                else shared_objects.step(problem, self.current)
            )
            if isinstance(made, str):
                self.refused[problem.id] = made
                return False
            made = replace(made, solves=(problem.id,))
            before = self.shared.get(made.id)
            if before is not None:
                made = replace(made, solves=tuple(dict.fromkeys((*before.solves, *made.solves))))
                if (before.changes, before.solves) == (made.changes, made.solves):
                    return False
            self.shared[made.id] = made
            return True
        return False

    def _room(self, problem: RootProblem) -> RepairStep | str:
        """Return the fewest nodes like the one that is drained with which its VMs find room."""
        model = find(self.cluster, kinds.NODE, "", problem.nodes[0])
        if model is None:
            return "its node cannot be read"
        for number in range(1, _MOST_NODES + 1):
            made = node_steps.added(model, number, self.cluster)
            nodes = problem.nodes if self.goal is Goal.DRAIN else ()
            tried = judge(self.goal, applied([made], self.current), nodes)
            if problem.id not in {each.id for each in tried.problems}:
                return made
        return f"{_MOST_NODES} more nodes like {model.name} would not be enough"

    # --- applying ---

    def _steps(self) -> list[RepairStep]:
        """Return all chosen steps with what they need, in order."""
        every: list[RepairStep] = list(self.shared.values())
        for _vmi, taken in sorted(self.chosen.items(), key=lambda item: item[0].full_name):
            for option, own in taken:
                every += finishing.solving(option.steps, own)
        return finishing.ordered(prerequisites.added(merged(every), self.cluster))

    def _apply(self, steps: Sequence[RepairStep]) -> None:
        self.current = applied(steps, self.cluster)
        self.last = judge(self.goal, self.current, self.nodes)

    # --- what must never happen ---

    def _guard(self) -> None:
        """Take steps back, the last ones first,
        while a node that can be drained today could not be drained after them.
        """
        while self._worse():
            if self.shared:
                _id, step = self.shared.popitem()
                self._drop(step.solves)
            elif any(self.chosen.values()):
                vmi = max(
                    (vmi for vmi, taken in self.chosen.items() if taken),
                    key=lambda vmi: vmi.full_name,
                )
                _option, own = self.chosen[vmi].pop()
                self._drop([problem.id for problem in own])
            else:
                return
            self._apply(self._steps())

    def _worse(self) -> list[str]:
        return [
            name
            for name, before in self.first.drainable.items()
            if (before and self.last.drainable.get(name) is not True)
            or (before is None and self.last.drainable.get(name) is False)
        ]

    def _drop(self, ids: Iterable[str]) -> None:
        for name in ids:
            self.refused[name] = "its repair would keep another node from being drained"

    # --- what is not needed ---

    def _needed(self, steps: list[RepairStep]) -> list[RepairStep]:
        """Return the steps without those that change nothing about the goal."""
        final = (
            self.current
            if isinstance(self.current, ChangedCluster)
            else applied(steps, self.cluster)
        )
        moving = {
            step.id
            for step in steps
            if step.subject.kind is kinds.VM and unfinished(step.subject, self.cluster)
        }
        before = (
            applied([step for step in steps if step.id not in moving], self.cluster)
            if moving
            else final
        )
        kept = list(steps)
        left_out = 0
        for step in reversed(steps):
            if step.id.startswith((prerequisites.PREFIX, disk_copies.AFTER)):
                continue
            if step.subject.kind is kinds.VM and self.goal is not Goal.OUTAGE:
                # a restart ends migrations
                needed = self._vm_needs(step, kept, before if step.id in moving else final)
            elif left_out < _MOST_LEFT_OUT:
                left_out += 1
                needed = self._cluster_needs(step, kept)
            else:
                needed = True
            if not needed:
                kept.remove(step)
        return finishing.without_unused(kept)

    def _vm_needs(
        self, step: RepairStep, kept: Sequence[RepairStep], final: ChangedCluster
    ) -> bool:
        """Return whether the VM would keep its node without a step.

        The rest of the cluster is as after all steps.
        """
        own = [each for each in kept if each.subject == step.subject and each is not step]
        partial = applied(own, self.cluster)
        vmi = find(partial, kinds.VMI, step.subject.namespace, step.subject.name)
        if vmi is None:
            return True
        outcome = vm_outcomes.forecast(vmi, _As(partial, final)).outcome
        return outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN)

    def _cluster_needs(self, step: RepairStep, kept: Sequence[RepairStep]) -> bool:
        without = applied([each for each in kept if each is not step], self.cluster)
        tried = judge(self.goal, without, self.nodes)
        return tried.holds is not self.last.holds or {each.id for each in tried.problems} != {
            each.id for each in self.last.problems
        }

    # --- the result ---

    def _result(self, steps: list[RepairStep]) -> RepairPlan:
        left = (
            *self.last.problems,
            *(self.last.undetermined if self.last.holds is not True else ()),
        )
        found = {**{problem.id: problem for problem in left}, **self.found}
        proven = finishing.proven(steps, found, self.last, self.cluster)
        remaining = tuple(RemainingProblem(problem, self._why(problem)) for problem in left)
        return RepairPlan(
            goal=self.goal,
            holds=self.first.holds,
            reaches=self.last.holds,
            steps=tuple(proven),
            problems=tuple(problem for _, problem in sorted(found.items())),
            remaining=remaining,
            unseen=tuple(dict.fromkeys((*self.first.unseen, *self.last.unseen))),
            nodes=tuple(sorted(self.first.drainable)),
            notes=self.last.notes if self.last.holds else (),
        )

    def _why(self, problem: RootProblem) -> str:
        return self.refused.get(problem.id) or problem.remedy or _NO_STEP


class _As(ChangedCluster):
    """A cluster of which what was computed about another one is used: of both,
    only the objects of one VM differ.
    """

    def __init__(self, cluster: ChangedCluster, like: Cluster) -> None:
        super().__init__(cluster)
        self._like = like

    def cached(self, function):  # type: ignore[no-untyped-def]
        return self._like.cached(function)


_SHARED: Final = frozenset(
    (ProblemCause.QUOTA, ProblemCause.LIMIT_RANGE, ProblemCause.NO_MIGRATION)
)
"""Causes at objects that several VMs share, although VMs show them."""
_AFTER_VMS: Final = frozenset((ProblemCause.NO_ROOM,))
"""Causes that are repaired when no VM can be any more: room depends on what VMs do."""
