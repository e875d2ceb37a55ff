"""What a drain of its node does to a VM, from facts where they exist.

A fact is what KubeVirt published on the running VMI: its frozen eviction strategy, its condition
``LiveMigratable``, migrations that failed. Where the VM could go is what kube-scheduler would
decide now (``room``), because KubeVirt does not check it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import (
    ending_namespaces,
    harvester_maintenance,
    migration_doubts,
    typed_remedies,
    vm_problems,
    vmi_evictions,
)
from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.drain.guests import ending_guests, paused_guests
from virt_admit.forecasts.drain.starting import starting_guests
from virt_admit.forecasts.drain.states import (
    dying_pods,
    lost_launchers,
    vm_states,
    vm_states_failures,
    vm_states_outcomes,
)
from virt_admit.forecasts.drain.states.evacuation_marks import mark_first, or_stays
from virt_admit.forecasts.drain.states.vm_states_kinds import AT_REST, State, StateEffect, VmState
from virt_admit.forecasts.drain.targets import rebuilt_volumes, rejected_targets
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import candidates, no_target, quotas, start_doubts
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model.commands import typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, first_known, gather
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import disruption_budgets, node_local_volumes, vmis
from virt_admit.model.kubevirt.launcher import missing_network_info
from virt_admit.model.kubevirt.settings import parallel_migrations, removed_operators
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pod_placement import Placement

READS: Final = union(
    disruption_budgets.READS,
    quotas.READS,
    priority_classes.READS,
    node_local_volumes.READS,
    migration_doubts.READS,
    vm_states.READS,
    lost_launchers.READS,
    ending_guests.READS,
    starting_guests.READS,
    vm_problems.READS,
    removed_operators.READS,
)
"""The fields that the forecast reads."""


class VmOutcome(enum.StrEnum):
    """The effect of a drain on a VM, worst first."""

    BLOCKS = "blocks the drain"
    STOPS = "stops for good"
    AWAITS_NODE = "waits for its node"
    UNKNOWN = "unknown"
    RESTARTS = "restarts elsewhere"
    MIGRATES = "migrates"


SHUT_DOWN: Final = (VmOutcome.STOPS, VmOutcome.AWAITS_NODE, VmOutcome.RESTARTS)
"""The outcomes of a VM whose guest the drain shuts down.
None of them keeps the drain from ending.
"""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The effect of a drain on one VM, its reason and the remedy (empty: none needed)."""

    vmi: Object
    outcome: VmOutcome
    reason: str
    remedy: str
    target: SchedulingTarget
    """Where it could go: the target pod of its migration, or a fresh pod for a VM that restarts."""
    unseen: str = ""
    """What could not be read, so that the outcome is unknown."""
    may_stop: bool = False
    """Whether the VM may need no room elsewhere, because what decides that could not be read."""
    state: VmState = AT_REST
    """What the VM is doing now."""
    problems: tuple[Problem, ...] = ()
    """One for each cause that keeps the VM on its node, each with its id.
    Empty unless it blocks the drain.
    """
    doubtful: bool = False
    """Whether a VM that is shut down may not start elsewhere, as its reason says."""
    unless: str = ""
    """When the VM stays off after all; empty: the outcome is certain."""
    by_owner: bool = False
    """Whether its owner stops the VM, so that it goes off without a drain, too."""
    removed: bool = False
    """Whether the VM is being deleted: it neither stays stopped nor starts again."""

    @property
    def placement(self) -> Placement:
        return self.target.placement

    @property
    def moves(self) -> bool:
        """Whether the VM needs a migration target: one that is shut down has a new pod, or none."""
        return self.outcome not in SHUT_DOWN

    @property
    def needs_room(self) -> bool:
        """Whether the drain needs room for the VM on another node."""
        # else its target pod goes with it
        has_room = self.moves and self.state.placed and not self.may_stop
        return self.outcome not in (VmOutcome.STOPS, VmOutcome.AWAITS_NODE) and not has_room


class _Verdict(NamedTuple):
    """What happens to a VM, before it is said where it could go."""

    outcome: VmOutcome
    reason: str
    remedy: str = ""
    unseen: str = ""
    may_stop: bool = False
    problems: tuple[Problem, ...] = ()
    doubtful: bool = False
    by_owner: bool = False
    removed: bool = False

    @classmethod
    def blocks(cls, problem: Problem, reason: str = "", more: Iterable[Problem] = ()) -> _Verdict:
        """Return that a problem blocks the drain, with a longer reason if one is given,
        and further problems.
        """
        reason = reason or problem.reason
        return cls(
            VmOutcome.BLOCKS,
            reason,
            problem.remedy,
            problems=(problem._replace(reason=reason), *more),
        )

    @classmethod
    def unread(cls, blind: Unseen, *, may_stop: bool = True) -> _Verdict:
        """Return that the outcome cannot be determined."""
        reason, remedy = vm_problems.of_unseen(blind.what)
        return cls(VmOutcome.UNKNOWN, reason, remedy, blind.what, may_stop)


ASKED: Final = "asked for now"
"""Why a VMI migrates that no drain evicts."""
CAN: Final = "it can migrate"
_Find = Callable[[bool], SchedulingTarget]
"""Where the VMI could go, by whether it migrates."""


def forecast(vmi: Object, cluster: Cluster) -> Forecast:
    """Return what a drain of its node would do to the VMI now.

    Never raises: ``UNKNOWN`` if data is missing.
    """
    soon = starting_guests.as_it_will_run(vmi, cluster)
    state = vm_states.of(soon or vmi, cluster)
    found = _forecast(soon or vmi, state, cluster, _finder(soon or vmi, state, cluster))
    return replace(found, reason=starting_guests.told(found.reason, soon, cluster))


def asked_migration(vmi: Object, cluster: Cluster, *, updated: bool = False) -> Forecast:
    """Return what becomes of a migration of a VMI at rest that is asked for now,
    whatever its eviction strategy.

    ``MIGRATES``, ``BLOCKS`` or ``UNKNOWN``. Never raises. ``updated``: by a KubeVirt for which its
    TSC frequency keeps it from no node, and that gives target pods all annotations, where nothing
    has begun yet.
    """
    state = AT_REST if updated else vm_states.of(vmi, cluster)
    find = _finder(vmi, state, cluster, updated=updated)
    try:
        healed = updated and missing_network_info.is_cause(vm_states_failures.failing(vmi, cluster))
        verdict = _migrate(vmi, state, cluster, find, ASKED, healed=healed)
    except Unseen as blind:
        verdict = _Verdict.unread(blind, may_stop=False)
    outcome, unseen, problems = verdict.outcome, verdict.unseen, verdict.problems
    return Forecast(
        vmi, outcome, verdict.reason, verdict.remedy, find(True), unseen, False, state, problems
    )


def visitors(node: str, cluster: Cluster) -> Iterator[Forecast]:
    """Yield the forecasts of VMs that arrive on a node,
    or have left it while their old pod has not ended.
    """
    for vmi, state in vm_states.visitors(node, cluster):
        if state.state is State.ARRIVED:
            find = _finder(vmi, vm_states.of(vmi, cluster), cluster)
            ruled = vm_states_outcomes.ruling(vmi, state, cluster)
            outcome = _OF_VISITORS[ruled.effect if ruled is not None else StateEffect.WAITS]
            reason, remedy = (
                (ruled.reason, ruled.remedy if state.late else "") if ruled else ("", "")
            )
            yield Forecast(vmi, outcome, reason, remedy, find(True), state=state)
        else:
            yield _forecast(vmi, state, cluster, _finder(vmi, state, cluster))


# in the order of StateEffect
_OF_VISITORS: Final = (VmOutcome.MIGRATES, VmOutcome.UNKNOWN, VmOutcome.BLOCKS)


def _finder(vmi: Object, state: VmState, cluster: Cluster, *, updated: bool = False) -> _Find:
    """Return a function that finds where a VMI could go, each way once.

    ``state``: that of the VMI on its node.
    """
    return functools.cache(functools.partial(_target, vmi, state, cluster, updated))


def _target(
    vmi: Object, state: VmState, cluster: Cluster, updated: bool, moves: bool
) -> SchedulingTarget:
    find = no_target.updated_target if updated else candidates.target
    target = start_doubts.without_broken_nodes(find(vmi, cluster, moves=moves), cluster)
    return vm_states_failures.without_impossible(target, vmi, state, cluster) if moves else target


def _forecast(vmi: Object, state: VmState, cluster: Cluster, find: _Find) -> Forecast:
    try:
        verdict = _judge(vmi, state, cluster, find)
    except Unseen as blind:
        verdict = _Verdict.unread(blind)
    if verdict.outcome in SHUT_DOWN:
        text, way = ending_guests.with_disks(verdict.reason, verdict.remedy, vmi, cluster)
        verdict = verdict._replace(reason=text, remedy=way)
    target = find(verdict.outcome not in SHUT_DOWN)
    typed_ones = (
        typed_remedies.with_command(problem.about(vmi), vmi, cluster)
        for problem in verdict.problems
    )
    problems = tuple(or_stays(problem, vmi, state, cluster) for problem in typed_ones)
    remedy = problems[0].remedy if problems else verdict.remedy
    rest = verdict.unseen, verdict.may_stop, state, problems, verdict.doubtful
    ends = verdict.by_owner, verdict.removed
    return Forecast(vmi, verdict.outcome, verdict.reason, remedy, target, *rest, "", *ends)


def _judge(vmi: Object, state: VmState, cluster: Cluster, find: _Find) -> _Verdict:
    stuck = dying_pods.overdue(vmi, cluster)
    if stuck is not None:
        return _Verdict.blocks(stuck)
    ends = ending_guests.of_stopped(vmi, cluster) or _ENDS.get(state.state)
    if ends is not None:
        leaves = ending_namespaces.reason(vmi, cluster) if state.state is State.STOPPING else ""
        removed = bool(leaves or ending_guests.removal(vmi, cluster))
        lost = state.state is State.GONE
        gone = _Verdict(VmOutcome.STOPS, f"{ends.reason}{f', as {leaves}' if leaves else ''}")
        verdict = gone if removed else _shut_down(vmi, cluster, find, ends.reason, lost=lost)
        by_owner = removed or ending_guests.is_by_owner(vmi, cluster)
        way = ends.remedy or verdict.remedy
        return verdict._replace(remedy=way, by_owner=by_owner, removed=removed)
    if stopped := harvester_maintenance.stops(vmi, cluster):
        return _in_maintenance(vmi, stopped)
    evicted = vm_problems.with_mover(vmi_evictions.reaction(vmi, cluster), vmi, cluster)
    if removed_operators.kubevirt(cluster) is not None:  # its first check ends the migration
        stops = evicted.effect is Effect.SHUTS_DOWN
        asked = functools.partial(_migrate, vmi, state, cluster, find, evicted.strategy.phrase)
        return _shut_down(vmi, cluster, find, evicted.reason) if stops else asked()
    if evicted.effect not in (Effect.EXTERNAL, Effect.BUDGET):
        vmi_evictions.demand_conditions(vmi, evicted.strategy)
    if evicted.effect in (Effect.REFUSED, Effect.NO_MIGRATION, Effect.MIGRATES):
        unread = vm_states.unread_migration(vmi, state, cluster)
        if unread:  # it may have a target pod already
            return _Verdict.unread(Unseen(unread))
    if evicted.effect is Effect.REFUSED and state.placed and vmis.migratable(vmi) is False:
        # its migration began before
        return _migrate(vmi, state, cluster, find, evicted.strategy.phrase)
    if state.state is State.STARTING and evicted.effect in (Effect.REFUSED, Effect.MIGRATES):
        return _Verdict.blocks(vm_problems.not_reported(vmi, evicted.strategy.phrase, cluster))
    if evicted.effect in (Effect.REFUSED, Effect.EXTERNAL, Effect.BUDGET):
        problems = vm_problems.of_reaction(vmi, evicted, cluster)
        return _Verdict(VmOutcome.BLOCKS, vm_problems.together(problems), problems=problems)
    if evicted.effect in (Effect.SHUTS_DOWN, Effect.ATTENDED):
        return _not_migrated(vmi, evicted, cluster, find)
    try:
        return _migrate(vmi, state, cluster, find, evicted.strategy.phrase)
    except Unseen as blind:
        return _Verdict.unread(blind, may_stop=False)


_ENDS: Final = {
    State.ENDED: Problem("its guest has just ended", ""),
    State.STOPPING: Problem("its pod is being deleted already", ""),
    State.GONE: Problem(lost_launchers.REASON, ""),
}


def _not_migrated(
    vmi: Object, evicted: vmi_evictions.Reaction, cluster: Cluster, find: _Find
) -> _Verdict:
    if evicted.effect is Effect.ATTENDED:
        blind = f"{vm_problems.MOVER} {vmi.full_name} does so"
        return _Verdict(VmOutcome.UNKNOWN, evicted.reason, evicted.remedy, blind)
    verdict = _shut_down(vmi, cluster, find, evicted.reason)
    return verdict._replace(remedy=typed_remedies.or_migrates(verdict.remedy, vmi))


def _migrate(
    vmi: Object, state: VmState, cluster: Cluster, find: _Find, why: str, *, healed: bool = False
) -> _Verdict:
    """Return what becomes of a VMI that KubeVirt wants to migrate.

    ``healed``: its earlier migrations failed for what is no more.

    Raises:
        Unseen: nothing that was read keeps it from migrating, but something that was not read may.
    """
    if (removed := removed_operators.kubevirt(cluster)) is not None:
        return _Verdict.blocks(removed.of_vms, f"{why}, but {removed.of_vms.reason}")
    kept = functools.partial(_kept, vmi, state, cluster, find)
    again = None if healed else vm_states_failures.repeats(vmi, state, find(True), cluster)
    if again is not None and again.effect is StateEffect.BLOCKS:
        return kept(Problem(f"{why}, but {again.reason}", again.remedy, again.cause))
    ruled = vm_states_outcomes.ruling(vmi, state, cluster, cluster.cached(_ends))
    room = () if state.placed else _room(vmi, cluster, find)
    failing = () if healed else (lambda: vm_states_failures.failing(vmi, cluster),)
    problem = first_known((*failing, *room))
    if problem is not None:
        words = (
            f" ({ruled.reason})" if ruled is not None and state.state is State.UNSCHEDULABLE else ""
        )
        return kept(problem, f"{why}, but {problem.reason}{words}")
    if ruled is not None and ruled.effect is StateEffect.BLOCKS:
        return kept(Problem(ruled.reason, ruled.remedy, ruled.cause))
    if (open_end := vm_states_outcomes.open_end(state, ruled, again)) is not None:
        way = vm_problems.slow_copy(open_end.remedy, vmi, cluster)
        return _Verdict(VmOutcome.UNKNOWN, open_end.reason, way)
    doubt = migration_doubts.doubt(vmi, find(True), cluster)
    if doubt is not None:
        reason = f"{why}, but {doubt.reason}"
        return _Verdict(VmOutcome.UNKNOWN, reason, doubt.remedy, f"{vmi.full_name}: {doubt.reason}")
    if not state.placed:
        if unsure := migration_doubts.of_target(find(True), cluster):
            return _Verdict(VmOutcome.UNKNOWN, f"{why}, but {unsure.reason}", unsure.remedy)
        for unread in vm_problems.unread(vmi, find(True).placement, cluster):
            raise Unseen(unread)
    effect = None if why == ASKED else migration_doubts.side_effect(vmi, state, cluster)
    said, remedy = (f", but {effect.reason}", effect.remedy) if effect else ("", "")
    can = f"{why}, and {CAN}{rebuilt_volumes.words(vmi, cluster)}{paused_guests.stays(vmi)}"
    reason, way = (ruled.reason, ruled.remedy) if ruled is not None else (can, "")
    return _Verdict(VmOutcome.MIGRATES, f"{reason}{said}", way or remedy)


def _ends(cluster: Cluster) -> vm_states_outcomes.Ends:
    """Return how the migration of a VM that holds a place ends: what waits behind it,
    waits as long.
    """

    def ends(namespace: str, name: str) -> StateEffect:
        try:
            vmi = cluster.get(VMI, namespace, name)
        except Unseen:
            return StateEffect.UNKNOWN
        if vmi is None:
            return StateEffect.UNKNOWN
        state = vm_states.of(vmi, cluster)
        if state.holders:  # it waits itself, with another migration
            return StateEffect.UNKNOWN
        if state.state is State.NOT_CLOSED:  # it has moved: where it could go next does not count
            return StateEffect.WAITS
        return _EFFECTS[asked_migration(vmi, cluster).outcome]

    return functools.cache(ends)


_EFFECTS: Final = {
    VmOutcome.BLOCKS: StateEffect.BLOCKS,
    VmOutcome.UNKNOWN: StateEffect.UNKNOWN,
    VmOutcome.MIGRATES: StateEffect.WAITS,
}


def _kept(
    vmi: Object, state: VmState, cluster: Cluster, find: _Find, first: Problem, reason: str = ""
) -> _Verdict:
    """Return that a VMI cannot migrate because of a problem, with those besides it:
    each needs a repair of its own.
    """
    # failures of a VMI that no node can take are not a further problem
    nowhere = None if state.placed else no_target.reason(find(True), cluster, moves=True)
    more = (
        []
        if nowhere is None or first.cause in (nowhere.cause, ProblemCause.MIGRATION_FAILS)
        else [nowhere]
    )
    if nowhere is not None and first.cause == ProblemCause.MIGRATION_FAILS and first.id is None:
        first = first._replace(cause=nowhere.cause)
    elif nowhere is not None and first.id is not None:
        more = [nowhere]
    refused = [] if state.placed else gather(quotas.refusals(vmi, cluster))[0]
    shown = mark_first(reason or first.reason, vmi, state, cluster)
    return _Verdict.blocks(
        first, shown, (*more, *(found for found in refused if found.id != first.id))
    )


def _room(vmi: Object, cluster: Cluster, find: _Find) -> tuple[Callable[[], Problem | None], ...]:
    """Return the checks of what a migration that has no target pod yet needs."""
    return (
        lambda: ending_namespaces.problem(vmi, cluster),
        lambda: cluster.cached(parallel_migrations.none_starts),
        lambda: mutual_drains.resolved(
            no_target.unless_it_follows(vmi, find(True), cluster),
            find(True).placement.refusals,
            cluster,
        ),
        lambda: rejected_targets.blocking(vmi, find(True), cluster),
        lambda: priority_classes.problem(vmi, cluster),
        lambda: quotas.refusal(vmi, cluster),
    )


def _shut_down(
    vmi: Object, cluster: Cluster, find: _Find, why: str, *, lost: bool = False
) -> _Verdict:
    if (removed := removed_operators.kubevirt(cluster)) is not None:
        return _Verdict(VmOutcome.STOPS, f"{why}; {removed.of_vms.reason}", removed.of_vms.remedy)
    # a VMI whose guest never ran fails with its pod: lifecycle.go#updateStatus
    lost = lost or vmi.at("status", "phase").text in vm_states.STARTING_PHASES
    after = vmis.comes_back(vmi, cluster, lost=lost and not vmi.deleted)
    if not after.comes:
        return _Verdict(
            VmOutcome.STOPS, f"{why}; {after.why}", typed_remedies.started(after.remedy, vmi)
        )
    if ending := ending_namespaces.reason(vmi, cluster):
        return _Verdict(VmOutcome.STOPS, f"{why}; {ending}, so that no VM starts in it again")
    problem = no_target.reason(find(False), cluster, moves=False)
    lasting = no_target.is_lasting(find(False), vmi, cluster) if problem is not None else False
    here = vmi.at("status", "nodeName").text or ""
    if problem is not None and lasting:
        causes = problem.reason.removeprefix(no_target.NOWHERE)
        reason = f"{why}; {after.why}, but no other node can ever run it: {causes}"
        return _Verdict(
            VmOutcome.AWAITS_NODE, reason, f"plan for its downtime until {here} is back"
        )
    where = f", on {here} or on a node that has room then" if problem is not None else ""
    later = problem or priority_classes.absent(vmi, cluster)
    if (later := later or quotas.start_refusal(vmi, (here,), cluster)) is not None:
        reason = f"{why}; {after.why}, but only later{where}: {later.reason}"
        return _Verdict(VmOutcome.RESTARTS, reason, later.remedy, may_stop=lasting is None)
    if unsure := migration_doubts.of_restart(vmi, find(False), cluster):
        reason = f"{why}; {after.why}, but {unsure.reason}"
        return _Verdict(VmOutcome.RESTARTS, reason, unsure.remedy, doubtful=True)
    return _Verdict(VmOutcome.RESTARTS, f"{why}; {after.why}")


def _in_maintenance(vmi: Object, strategy: str) -> _Verdict:
    outcome, start = _IN_MAINTENANCE[strategy], typed_remedies.starts_again(vmi)
    remedy = typed("start it afterwards", start) if outcome is VmOutcome.STOPS else ""
    return _Verdict(outcome, harvester_maintenance.reason(strategy), remedy)


_IN_MAINTENANCE: Final = {
    harvester_maintenance.RESTARTED: VmOutcome.RESTARTS,
    harvester_maintenance.KEPT: VmOutcome.AWAITS_NODE,
    harvester_maintenance.LEFT_OFF: VmOutcome.STOPS,
}
