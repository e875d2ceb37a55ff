"""Collect everything about one VM from the forecasts, its objects and the rules."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.drain import drain_plan, vm_events
from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.guests import changed_disks, paused_guests
from virt_admit.forecasts.drain.starts import crashed_launchers, faulted_volumes, rejected_pods
from virt_admit.forecasts.drain.states import lost_launchers, stuck_starts, vm_states_motion
from virt_admit.forecasts.drain.states.vm_states import STARTING_PHASES
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import Forecast
from virt_admit.forecasts.outage.outages import Outage
from virt_admit.forecasts.placement import candidates, start_candidates, start_doubts, virt_handlers
from virt_admit.forecasts.placement.refusals import kubelet_rejections, unserved_nodes
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import PDB, POD, VM, VMI, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import disruption_budgets, expand, migratability, vmis
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.kubevirt.instances.vm_lookup import FoundVm
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.drain.report import MissingOnNode
from virt_admit.reports.explain import judged_rules, loss, rehearsed, rights
from virt_admit.reports.explain.judged_rules import JudgedRule, Opinion
from virt_admit.reports.explain.vm import commands, parts, resting, status_notes
from virt_admit.reports.explain.vm.report import (
    BudgetOfVm,
    DrainOfVm,
    ExplainedVm,
    MigrationRecord,
    QueuePlace,
    UpgradeOfVm,
    VmReport,
    VolumeOfVm,
)
from virt_admit.reports.explain.vm.text import STOPPED
from virt_admit.reports.outage import report as outage_report

JUDGED: Final[tuple[Kind, ...]] = (VM, VMI, PDB)
"""The kinds whose objects the rules judge for the report."""


@dataclass(frozen=True, slots=True)
class _Move:
    """The forecasts about a VM that is on a node."""

    row: Forecast
    node: NodePlan
    outage: Outage
    events: tuple[EventForecast, ...]


def report(
    found: FoundVm, cluster: Cluster, opinion: Opinion, unreadable: Collection[str] = ()
) -> VmReport:
    """Return the report about a VM.

    Args:
        found: the VM.
        cluster: the cluster.
        opinion: what judges its objects.
        unreadable: the resources that may not be listed, as ``plural.group``.
    """
    move = _move(found, cluster)
    events = move.events if move is not None else resting.events(found, cluster)
    unseen = [*found.unseen, *(each.unseen for each in events if each.unseen)]
    strategy, origin = _strategy(found, cluster, unseen)
    migratable = _migratable(found, cluster, unseen)
    around = _around(found, move, cluster, migratable, unseen)
    upgrade = _upgrade(found, events, cluster, unseen)
    nodes, placement = _places(found, move, cluster, unseen)
    rules = _rules(found, cluster, opinion, unseen)
    state, drain = move.row.state if move is not None else None, _drain(found, move, events)
    named = tuple(dict.fromkeys(unseen))
    return VmReport(
        vm=_identity(found, cluster),
        state=str(state.state) if state is not None else _resting(found),
        strategy=strategy,
        strategy_from=origin,
        migratable=migratable,
        candidates=nodes,
        short=_short(placement, cluster),
        migrations=around.migrations,
        queue=around.queue,
        budgets=around.budgets,
        volumes=around.volumes,
        control=around.control,
        drain=drain,
        upgrade=upgrade,
        outage=outage_report.vm(loss.of_vm(move.row.vmi, move.outage), move.outage)
        if move is not None
        else None,
        events=events,
        rules=rules,
        problems=tuple(dict.fromkeys((*drain.problems, *judged_rules.problems(rules)))),
        commands=_commands(
            found, move, events, around, rights.forbidden(named, unreadable), cluster
        ),
        avoid=commands.avoid(state, move.row.vmi, cluster)
        if move is not None and state is not None
        else (),
        notes=tuple(status_notes.notes(found, cluster, migrates=_migrates(events))),
        unseen=named,
    )


def _short(placement: Placement | None, cluster: Cluster) -> tuple[MissingOnNode, ...] | None:
    """Return why each other node refuses a VM; None: not known.

    Without KubeVirt the nodes are not why.
    """
    if placement is None or removed_operators.kubevirt(cluster) is not None:
        return () if placement is not None else None
    return tuple(
        MissingOnNode(name, unserved_nodes.told(name, why, cluster))
        for name, why in sorted(placement.refusals.items())
    )


def _places(
    found: FoundVm, move: _Move | None, cluster: Cluster, unseen: list[str]
) -> tuple[tuple[str, ...] | None, Placement | None]:
    """Return the nodes where a VM could run next, and why the others refuse it; None:
    that cannot be determined.
    """
    bound = _bound(found, cluster, unseen) if move is None else None
    placement = move.row.placement if move is not None else None
    if move is None and bound is None:
        placement = _start(found, cluster, unseen)
    unseen += placement.unseen if placement is not None else ()
    if move is None and faulted_volumes.problem(found.obj, cluster) is not None:
        return (), placement
    if placement is None:
        return bound or None, None
    return _open(found, placement, cluster, unseen), placement


def _start(found: FoundVm, cluster: Cluster, unseen: list[str]) -> Placement | None:
    """Return where a VM that does not run could start; None: that cannot be determined."""
    starting = found.vmi is not None and found.vmi.at("status", "phase").text in STARTING_PHASES
    try:
        if found.vmi is not None and starting:
            target = candidates.target(found.vmi, cluster, moves=False)
            return start_doubts.without_broken_nodes(target, cluster).placement
        if found.vm is not None and _resting(found) == STOPPED:
            target = start_candidates.start_target(found.vm, cluster)
            return start_doubts.without_broken_nodes(target, cluster).placement
        raise Unseen("where a VM that is not on a node yet could go")
    except Unseen as blind:
        unseen.append(blind.what)
        return None


def _open(
    found: FoundVm, placement: Placement, cluster: Cluster, unseen: list[str]
) -> tuple[str, ...] | None:
    """Return the nodes that take a VM, without those whose kubelets reject its pods or where all
    starts fail; None: not known which these are.
    """
    nodes = placement.certain
    bad = _bad(found.vm, found.vmi, cluster) if found.vm is not None else frozenset()
    if nodes is not None and bad:
        return tuple(name for name in nodes if name not in bad)
    rejected = rejected_pods.of_vm(found.vm, found.vmi, cluster) if found.vm is not None else None
    if nodes is None or rejected is None or (found.vmi is not None and vmis.running(found.vmi)):
        return nodes
    if kubelet_rejections.is_over(rejected):
        return nodes
    if not rejected.nodes and len(nodes) > 1:
        unseen.append(f"which node rejects the pods of {found.full_name}")
        return None
    return tuple(name for name in nodes if rejected.nodes and name not in rejected.nodes)


def _bad(vm: Object, vmi: Object | None, cluster: Cluster) -> frozenset[str]:
    """Return the nodes where the starts of a VM fail, while others start."""
    failing = failed_starts.bad_node(vm, vmi, cluster)
    return frozenset((failing,)) if failing else crashed_launchers.bad_nodes(vm, vmi, cluster)


def _migrates(events: Sequence[EventForecast]) -> bool:
    moves = (each for each in events if each.event is VmEvent.MIGRATION)
    return any(each.outcome == EventEffect.STARTS for each in moves)


def _bound(found: FoundVm, cluster: Cluster, unseen: list[str]) -> tuple[str, ...] | None:
    """Return the node for which kube-scheduler has chosen the pod of a VMI that starts; None:
    none yet.

    Where the pod does not start for a fault of that node, the others; empty: that cannot be
    determined.
    """
    vmi = found.vmi
    if vmi is None or vmi.at("status", "phase").text not in STARTING_PHASES:
        return None
    pod = stuck_starts.starting_pod(vmi, cluster)
    node = pod.at("spec", "nodeName").text if pod is not None else None
    others = stuck_starts.elsewhere(vmi, cluster)
    if others is None:
        return (node,) if node else None
    unseen += [] if others else [f"whether it starts on another node than {node}"]
    return others


class _Around(NamedTuple):
    """What is around a VM, as far as it could be read."""

    migrations: tuple[MigrationRecord, ...] | None
    queue: QueuePlace | None
    budgets: tuple[BudgetOfVm, ...] | None
    volumes: tuple[VolumeOfVm, ...] | None
    control: tuple[Component, ...] | None


def _around(
    found: FoundVm, move: _Move | None, cluster: Cluster, migratable: bool | None, unseen: list[str]
) -> _Around:
    past, blind = parts.migrations(found.obj, cluster)
    budgets, unread_budgets = parts.budgets(found.obj, cluster)
    volumes, unread_volumes = parts.volumes(found.obj, cluster, migratable)
    unseen += [*filter(None, (blind, unread_budgets)), *unread_volumes]
    known = VMI not in resting.unread_kinds(found)
    queue = parts.queue(move.row.state if move is not None else None, known and not blind)
    control = move.node.control if move is not None else () if known else None
    return _Around(past, queue, budgets, volumes, control)


def _commands(
    found: FoundVm,
    move: _Move | None,
    events: Sequence[EventForecast],
    around: _Around,
    forbidden: Sequence[str],
    cluster: Cluster,
) -> tuple[str, ...]:
    own = (
        commands.of_running(found, move.row.state, move.events, cluster)
        if move is not None
        else commands.of_stopped(
            found, resting.run_strategy(found), cluster, kept=resting.is_kept(events)
        )
    )
    broken = commands.of_parts(
        found.namespace, around.budgets or (), around.volumes or (), around.control or (), forbidden
    )
    repairs = commands.of_problems(move.row.problems) if move is not None else ()
    disks = changed_disks.command(found.obj, cluster)
    return tuple(dict.fromkeys((*filter(None, (disks,)), *repairs, *own, *broken)))


# --- where it is ----------------------------------------------------------------------------------


def _move(found: FoundVm, cluster: Cluster) -> _Move | None:
    """Return the forecasts about a VM; None: it is on no node, or that is not known."""
    vmi = found.vmi
    node = vmi.at("status", "nodeName").text if vmi is not None else None
    if vmi is None or not node or vmi.ended:
        return None
    plan = drain_plan.node_plan(node, cluster)
    row = next(each for each in plan.forecasts if each.vmi.full_name == vmi.full_name)
    outage = loss.of_node(node, cluster)
    lost = loss.event(loss.of_vm(vmi, outage), outage, cluster)
    return _Move(row, plan, outage, vm_events.of_vm(row, plan, lost, cluster))


def _resting(found: FoundVm) -> str | None:
    """Return the state of a VM that is on no node; None: that is not known."""
    if VMI in resting.unread_kinds(found):
        return None
    return STOPPED if found.vmi is None or found.vmi.ended else "starting"


def _identity(found: FoundVm, cluster: Cluster) -> ExplainedVm:
    vmi = found.vmi
    node = (vmi.at("status", "nodeName").text or None) if vmi is not None else None
    return ExplainedVm(
        namespace=found.namespace,
        name=found.name,
        kind=found.vm.kind if found.vm is not None else _owner_kind(found),
        running=None
        if VMI in resting.unread_kinds(found)
        else vmi is not None and vmi.at("status", "phase").text == "Running",
        node=node,
        phase=vmi.at("status", "phase").text if vmi is not None else None,
        run_strategy=resting.run_strategy(found),
        status=found.vm.at("status", "printableStatus").text if found.vm is not None else None,
        node_reports=not node_health.silence_now(node, cluster) if node else None,
        node_lost=virt_handlers.is_lost(cluster, node) if node else None,
        paused=(paused_guests.reason(vmi) or None) if vmi is not None and node else None,
    )


def _owner_kind(found: FoundVm) -> str:
    """Return the kind of what a user would edit: the VM of a VMI also if it could not be read."""
    return VM.kind if vmis.owner(found.obj, VM.kind) else VMI.kind


# --- what decides ---------------------------------------------------------------------------------


def _strategy(found: FoundVm, cluster: Cluster, unseen: list[str]) -> tuple[str | None, str | None]:
    """Return the eviction strategy in force and what sets it.

    A VMI keeps what it inherited when it was created, so where it has the same as its VM has, the
    source is that of the VM, as in the rules.
    """
    try:
        said = expand.strategy(found.obj, cluster)
    except Unseen as blind:
        unseen.append(blind.what)
        return None, None
    origin = said.origin or ("VMI" if found.vmi is not None else "VM")
    if found.vmi is not None and found.vm is not None:
        with contextlib.suppress(Unseen):
            own = expand.strategy(found.vm, cluster)
            origin = own.origin if own.origin and own.value == said.value else origin
    return said.value, origin


def _migratable(found: FoundVm, cluster: Cluster, unseen: list[str]) -> bool | None:
    """Return KubeVirt's own answer for a running VM, else what the spec says.

    Without its pod it has nothing to migrate.
    """
    if found.vmi is not None:
        if lost_launchers.is_gone(found.vmi, cluster):
            return False
        known = vmis.migratable(found.vmi)
        if known is None and found.vmi.at("status", "phase").text in STARTING_PHASES:
            return _assessed(found, cluster, unseen)  # KubeVirt says it after the start
        what = f"condition LiveMigratable of {VMI} {found.full_name}"
        unseen += [what] if known is None else []
        return known
    if VMI in resting.unread_kinds(found):
        return None
    return _assessed(found, cluster, unseen)


def _assessed(found: FoundVm, cluster: Cluster, unseen: list[str]) -> bool | None:
    assessed = migratability.assess(found.obj, cluster)
    unseen += assessed.unseen
    return {Migratable.YES: True, Migratable.NO: False}.get(assessed.migratable)


def _upgrade(
    found: FoundVm, events: Sequence[EventForecast], cluster: Cluster, unseen: list[str]
) -> UpgradeOfVm:
    """Return what an upgrade does to the VM."""
    update = next(each for each in events if each.event is VmEvent.UPDATE)
    upgrade = rehearsed.rehearsal(cluster)
    key = found.obj.namespace, found.name
    own = next((vm for vm in upgrade.vms if (vm.namespace, vm.name) == key), None)
    begins = _own_begins(found, cluster)
    stops = tuple(stop.reason for stop in upgrade.stops if stop.reason.startswith(begins))
    moves = own.moves if own is not None and upgrade.nodes_complete is not None else None
    moves = 0 if moves is None and _rests(events) else moves
    outcome = str(own.outcome) if own is not None else events[0].outcome
    unseen += rehearsed.unread(cluster)
    because = rehearsed.because(upgrade)
    return UpgradeOfVm(
        upgrade.possible,
        outcome,
        moves,
        update.outcome,
        update.reason,
        stops,
        because,
        shutdowns=own.shutdowns if own is not None else 0,
        unless=own.unless if own is not None else "",
    )


def _own_begins(found: FoundVm, cluster: Cluster) -> tuple[str, ...]:
    """Return how the reasons of stops begin that are about the VM,
    or about a pod of it that does not end.
    """
    pods = vm_states_motion.motion(cluster).pods.get((found.obj.namespace, found.name), ())
    return f"{found.obj.full_name}: ", *(f"{POD.kind} {pod.full_name}: " for pod in pods)


def _rests(events: Sequence[EventForecast]) -> bool:
    return all(each.outcome == EventEffect.NOT_RUNNING for each in events)


def _drain(found: FoundVm, move: _Move | None, events: Sequence[EventForecast]) -> DrainOfVm:
    """Return the entry of the VM in the report of ``drain``."""
    if move is None:
        drained = events[0]
        outcome = str(drained.outcome)
        return DrainOfVm(found.namespace, found.name, outcome, drained.reason, drained.remedy)
    own = drain_report.vm(move.row)
    fields = (field.name for field in dataclasses.fields(DrainOfVm))
    return DrainOfVm(**{name: getattr(own, name) for name in fields})


def _rules(
    found: FoundVm, cluster: Cluster, opinion: Opinion, unseen: list[str]
) -> tuple[JudgedRule, ...] | None:
    if opinion.policy is None:
        unseen.append("the policy of the cluster")
        return None
    budgets = disruption_budgets.covering(found.obj, cluster)
    objects: Iterator[Any] = (obj for obj in (found.vm, found.vmi, *budgets) if obj is not None)
    return judged_rules.judge(objects, opinion.rules, cluster, opinion.policy)
