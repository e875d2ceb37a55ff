"""The report of ``virt-admit drain``: what its JSON says, as one frozen value,
and the verdict of all its forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from virt_admit.forecasts.drain import launcher_pods, vm_downtime, vm_problems
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker, Wait
from virt_admit.forecasts.drain.changes.readiness import Readiness
from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.pod_evictions import Need
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.drain.targets.closed_targets import ClosedTarget
from virt_admit.forecasts.drain.vm_downtime import Downtime
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase
from virt_admit.reports.drain import words


@dataclass(frozen=True, slots=True)
class MissingOnNode:
    """Another node that cannot take the VM now, and all that it lacks."""

    node: str
    what: str


@dataclass(frozen=True, slots=True)
class FailedMigration:
    """Why the last migration failed: its class, and the words of KubeVirt."""

    class_: str
    text: str


@dataclass(frozen=True, slots=True)
class DrainedVm:
    """What a drain of its node does to one VM, and what the VM is doing now."""

    namespace: str
    name: str
    outcome: VmOutcome
    reason: str
    remedy: str
    """Empty: none is needed."""
    candidates: tuple[str, ...] | None
    """Nodes that could take it now, one VM at a time. Null: it cannot be determined."""
    short: tuple[MissingOnNode, ...]
    state: State
    flags: tuple[Flag, ...]
    since: str | None
    """RFC 3339, as ``until``. Null: not known."""
    until: str | None
    """When KubeVirt takes its next step by itself. Null: not known, or without limit."""
    attempts: int
    """Failed migrations since the last success."""
    failure: FailedMigration | None
    from_: str | None
    """The node from which the VM arrives."""
    downtime: Downtime | None
    """How long the guest is down in a drain of this node alone. Null: it cannot be determined."""
    problems: tuple[str, ...]
    """The ids of all problems that keep the VM on its node: cause and root object.
    Empty unless it blocks the drain.
    """


@dataclass(frozen=True, slots=True)
class DrainBlocker:
    """Something other than a VM that keeps a node from becoming empty."""

    kind: str
    namespace: str
    name: str
    reason: str
    remedy: str
    now: bool
    """Whether it is a state of the moment; otherwise it never passes by itself."""
    problem: str
    """Its id: cause and root object."""


@dataclass(frozen=True, slots=True)
class NodeUpdater:
    """The object that says that a node is being updated, and how far that is."""

    kind: str
    name: str
    phase: Phase
    since: str | None
    """RFC 3339. Null: not known."""


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """What a drain of one node does."""

    name: str
    state: tuple[str, ...]
    """Of ``cordoned``, ``not Ready``, ``not seen``."""
    drainable: bool | None
    """Whether one ``kubectl drain``, started now, would end with success. Null:
    it cannot be determined.
    """
    fits: bool | None
    """Whether all VMs that migrate or restart elsewhere find room at the same time."""
    counts: Mapping[str, int]
    """The number of VMs by outcome, the worst first; zeros too."""
    vms: tuple[DrainedVm, ...]
    """The worst first; VMs of other nodes that arrive come last: their own node counts them."""
    blockers: tuple[DrainBlocker, ...]
    """What else keeps the node from becoming empty. ``now``: it may pass."""
    waits: tuple[Wait, ...]
    """What passes by itself."""
    needs: tuple[Need, ...]
    """Flags without which ``kubectl drain`` refuses."""
    control: tuple[Component, ...]
    """The components of KubeVirt that a drain needs."""
    updater: NodeUpdater | None
    """What updates the node now. Null: nothing does, or nothing says so."""
    notes: tuple[str, ...]
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpdatedVm:
    """How an update of KubeVirt reaches one running VM."""

    namespace: str
    name: str
    reach: Reach
    reason: str


@dataclass(frozen=True, slots=True)
class WorkloadUpdates:
    """How an update of KubeVirt reaches the running VMs."""

    methods: tuple[str, ...]
    counts: Mapping[str, int]
    vms: tuple[UpdatedVm, ...]


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What a drain of each node, one at a time, would do."""

    version: Literal[1]
    drainable: bool | None
    """For all nodes together. Null: it cannot be determined."""
    nodes: tuple[DrainedNode, ...]
    """The worst first."""
    updates: WorkloadUpdates | None
    """Null for named nodes, or if the methods are unknown."""
    unseen: tuple[str, ...]
    """The data that could not be read."""
    uncovered: tuple[str, ...] | None
    """Nodes with VMs that no health check can remediate. Null: it cannot be determined."""
    takes_no_vm: tuple[ClosedTarget, ...]
    """Nodes to which no VM of another one can go now, for a reason of the node itself.
    Empty for named nodes.
    """
    reported: tuple[ReportedProblem, ...]
    """What the platform reports as wrong besides."""


def report(plan: Plan) -> DrainReport:
    """Return the report of a plan."""
    nodes, updates = tuple(map(node_report, plan.nodes)), _updates(plan)
    rest = plan.unseen, plan.uncovered, plan.closed, plan.reported
    return DrainReport(1, plan.drainable, nodes, updates, *rest)


def node_report(node: NodePlan) -> DrainedNode:
    """Return the entry of one node."""
    return DrainedNode(
        name=node.name,
        state=node.state,
        drainable=node.drainable,
        fits=node.packing.fits,
        counts=_counts(VmOutcome, (row.outcome for row in node.forecasts)),
        vms=tuple(map(vm, (*node.forecasts, *node.visitors))),
        blockers=tuple(map(_blocker, node.pods.blockers)),
        waits=node.pods.waits,
        needs=node.pods.needs,
        control=node.control,
        updater=_updater(node.update) if node.update is not None else None,
        notes=node.notes,
        unseen=node.unseen,
    )


def _updater(update: NodeUpdate) -> NodeUpdater:
    return NodeUpdater(update.kind, update.name, update.phase, clock.stamp(update.since))


def vm(row: Forecast) -> DrainedVm:
    """Return the entry of one VM."""
    state, failure = row.state, row.state.failure
    return DrainedVm(
        namespace=row.vmi.namespace,
        name=row.vmi.name,
        outcome=row.outcome,
        reason=row.reason,
        remedy=row.remedy,
        candidates=row.placement.certain,
        short=tuple(
            MissingOnNode(node, what) for node, what in sorted(row.placement.refusals.items())
        ),
        state=state.state,
        flags=state.flags,
        since=clock.stamp(state.since),
        until=clock.stamp(state.until),
        attempts=state.attempts,
        failure=FailedMigration(str(failure.kind), failure.text) if failure is not None else None,
        from_=state.source or None,
        downtime=vm_downtime.of(row),
        problems=tuple(dict.fromkeys(str(problem.id) for problem in row.problems)),
    )


def _blocker(found: Blocker) -> DrainBlocker:
    name = found.kind, found.namespace, found.name
    return DrainBlocker(*name, found.reason, found.remedy, found.now, str(found.id))


def _updates(plan: Plan) -> WorkloadUpdates | None:
    if plan.methods is None:
        return None
    vms = tuple(
        UpdatedVm(one.vmi.namespace, one.vmi.name, one.reach, one.reason) for one in plan.updates
    )
    return WorkloadUpdates(plan.methods, _counts(Reach, (one.reach for one in vms)), vms)


def _counts(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Return how often each word of an enumeration was found, including zeros."""
    counts = Counter(found)
    return {str(word): counts[word] for word in words}


# --- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrainVerdict:
    """The answer in a word and a sentence: the first that a reader sees,
    in text and on the page.
    """

    answer: bool | None
    costs: bool
    """Whether VMs stop for good."""
    word: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.word}: {self.sentence}"


def verdict(plan: Plan) -> DrainVerdict:
    """Return whether the nodes of a plan can be drained, what keeps them,
    and which VMs pay for it.
    """
    drained = sum(not row.by_owner for row in plan.having(VmOutcome.STOPS))
    stops = drained if plan.stopped is None else plan.stopped
    cost = words.cost(stops, drained)
    blocked = [node for node in plan.nodes if node.drainable is False]
    whole = count(len(plan.nodes), "node")
    if blocked and plan.awaited:
        later, back = names(node.name for node in blocked), names(plan.awaited)
        be = "are" if len(plan.awaited) > 1 else "is"
        sentence = f"{later} can be drained once {back} {be} back.{cost}"
        return _held(plan, DrainVerdict(True, bool(stops), words.yes(stops), sentence))
    if plan.undrained:
        found = DrainVerdict(
            True, bool(stops), words.yes(stops), f"{plan.undrained}.{words.cost(stops)}"
        )
        return _held(plan, found)
    if blocked:
        causes = ", ".join(_causes(blocked))
        sentence = (
            f"{len(blocked)} of {whole} cannot be drained ({causes}): "
            f"{names(node.name for node in blocked)}."
        )
        if plan.unsure:
            sentence = f"{_unsure(plan)}. {sentence}{cost}"
            return DrainVerdict(None, bool(stops), "Unknown", sentence)
        return DrainVerdict(False, bool(stops), "No", sentence + cost)
    if plan.drainable is None:
        unknown = len(plan.having(VmOutcome.UNKNOWN))
        asked = sum(
            row.unseen.startswith(vm_problems.MOVER) for row in plan.having(VmOutcome.UNKNOWN)
        )
        which = (
            f"whether the controller outside KubeVirt moves {count(asked, 'VM')} is not known"
            if asked and asked == unknown
            else f"the outcome for {count(unknown, 'VM')} cannot be determined"
            if unknown
            else _undetermined(plan)
        )
        sentence = f"{which}, so a drain may be blocked.{cost}"
        return _held(plan, DrainVerdict(None, bool(stops), "Unknown", sentence))
    first = f" First: {plan.before}." if plan.before else ""
    sentence = f"{_open(plan)} can be drained{_not_open(plan)}.{cost}{first}"
    return _held(plan, DrainVerdict(True, bool(stops), words.yes(stops), sentence))


def _closed(plan: Plan) -> Sequence[NodePlan]:
    return [node for node in plan.nodes if node.readiness is Readiness.NOT_OPEN]


def _open(plan: Plan) -> str:
    left, whole = len(plan.nodes) - len(_closed(plan)), count(len(plan.nodes), "node")
    return whole if left == len(plan.nodes) else f"{left} of {whole}"


def _not_open(plan: Plan) -> str:
    """Return why the other nodes are not drained now, as clauses; empty: there are none."""
    found: dict[str, list[str]] = {}
    for node in _closed(plan):
        away, empty = "not Ready" in node.state, "cordoned" in node.state
        found.setdefault(_AWAY if away else _EMPTY if empty else _NEEDED, []).append(node.name)
    return "".join(
        f", {why.format(names(sorted(nodes), 60), 'are' if nodes[1:] else 'is')}"
        for why, nodes in found.items()
    )


_AWAY, _EMPTY, _NEEDED = "{0} {1} not Ready", "{0} {1} drained already", "etcd needs {0}"


def _undetermined(plan: Plan) -> str:
    """Return what keeps a verdict open although the outcome of each VM is known."""
    doubts = dict.fromkeys(doubt for node in plan.nodes for doubt in node.doubts)
    if doubts and all(each.startswith("whether ") for each in doubts):
        return f"{next(iter(doubts)).partition(' (')[0]} cannot be determined"
    guests = [each for each in doubts if each.startswith(launcher_pods.WHAT_BECOMES)]
    if guests and len(guests) == len(doubts) and not plan.unread_nodes:
        more = f" and {len(guests) - 1} more" if len(guests) > 1 else ""
        return f"{guests[0].partition(': ')[0]}{more} is not known"
    return "not all data could be read"


def _held(plan: Plan, found: DrainVerdict) -> DrainVerdict:
    """Return the verdict with what stops an upgrade, or may, although nothing keeps a node from
    being drained.
    """
    if plan.held:
        sentence = f"{names(plan.held)}. {capital(found.sentence)}"
        return replace(found, answer=False, word="No", sentence=sentence)
    if plan.unsure and found.answer:
        sentence = f"{_unsure(plan)}. {capital(found.sentence)}"
        return replace(found, answer=None, word="Unknown", sentence=sentence)
    return found


def _unsure(plan: Plan) -> str:
    return f"whether it completes cannot be determined ({names(plan.unsure)})"


def _causes(blocked: Sequence[NodePlan]) -> Iterator[str]:
    vms = sum(len(node.having(VmOutcome.BLOCKS)) for node in blocked)
    if vms:
        yield count(vms, "VM")
    others = {(each.kind, each.id) for node in blocked for each in node.pods.blockers}
    if others:
        yield count(len(others), "other blocker")
    if any(node.crowded(node.moving) and not node.having(VmOutcome.BLOCKS) for node in blocked):
        yield "missing room"
