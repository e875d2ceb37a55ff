"""What may happen to one VM besides a drain: an update of KubeVirt, the loss of its node, a reboot,
a migration now.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain import vm_outcomes, workload_updates
from virt_admit.forecasts.drain.changes import pending_changes
from virt_admit.forecasts.drain.control import control_path, overruling
from virt_admit.forecasts.drain.control.control_path import Component, ControlPath
from virt_admit.forecasts.drain.control.hindrances import Hindrance
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.failed_migrations import remedies
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.room import unbound_claims
from virt_admit.forecasts.drain.states import lost_launchers, vm_states_failures, vm_states_outcomes
from virt_admit.forecasts.drain.states.vm_states_kinds import State, StateEffect
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.drain.workload_updates import Reach
from virt_admit.forecasts.placement import no_target, virt_handlers
from virt_admit.forecasts.placement.components import cluster_controllers
from virt_admit.forecasts.placement.components.drivers import shared_taints
from virt_admit.forecasts.placement.refusals import affinity_partners
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import (
    KUBEVIRT,
    MUTATING_CONFIGURATION,
    NODE,
    VALIDATING_CONFIGURATION,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import lifecycle, migration_failures, vmis, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.launcher import without_kvm
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import ProblemCause
from virt_admit.model.scheduler import controller_taints


class VmEvent(enum.StrEnum):
    """What may happen to a VM."""

    DRAIN = "drain"
    UPDATE = "update"
    LOSS = "loss"
    REBOOT = "reboot"
    MIGRATION = "migration"


class EventEffect(enum.StrEnum):
    """What an event does to a VM, where ``VmOutcome``,
    ``Reach`` and ``LossOutcome`` have no word for it.
    """

    NOT_RUNNING = "not running"
    UNKNOWN = "unknown"
    RESTARTED = "restarted"
    OFF = "stays off"
    STAYS = "stays on its node"
    STARTS = "starts"
    REFUSED = "does not start"
    FAILS = "starts and fails"


@dataclass(frozen=True, slots=True)
class EventForecast:
    """What one event would do to a VM, and why."""

    event: VmEvent
    outcome: str
    """A word of ``VmOutcome``, ``Reach``, ``LossOutcome`` or ``EventEffect``."""
    reason: str
    remedy: str = ""
    unseen: str = ""
    """What could not be read, so that the outcome is not known."""
    never: str = ""
    """Of a migration: why none succeeds before a VM or a node is changed; empty: one may."""


NOT_RUNNING: Final = "it is not running"


def not_running(why: str = NOT_RUNNING, remedy: str = "") -> tuple[EventForecast, ...]:
    """Return the events of a VM that is not on a node.

    ``remedy``: what makes it run, if something keeps it from that.
    """
    return tuple(EventForecast(event, EventEffect.NOT_RUNNING, why, remedy) for event in VmEvent)


def unread(what: str) -> tuple[EventForecast, ...]:
    """Return the events of a VM of which it is not known whether it runs."""
    return tuple(_unknown(event, what) for event in VmEvent)


def of_vm(
    row: Forecast, node: NodePlan, loss: EventForecast, cluster: Cluster
) -> tuple[EventForecast, ...]:
    """Return what each event would do to a VM that runs.

    ``loss``: what the loss of its node does. Never raises.
    """
    drain = EventForecast(VmEvent.DRAIN, str(row.outcome), row.reason, row.remedy, row.unseen)
    if why := _ends(row):
        update, reboot, migration = (
            EventForecast(event, effect, why) for event, effect in _WHILE_STOPPING.items()
        )
        return drain, update, loss, reboot, migration
    reboot = _reboot(row.vmi, cluster)
    found = (
        drain,
        _update(row.vmi, node, cluster),
        loss,
        replace(reboot, remedy=changed_disks.remedy(row.vmi, cluster)),
        _migration(row, node, cluster),
    )
    return tuple(
        replace(each, remedy=changed_disks.safe(each.remedy, row.vmi, cluster)) for each in found
    )


def _ends(row: Forecast) -> str:
    """Return that a VMI, or its guest, ends now; empty: it does not. The pod of a deleted one may
    have ended, or be gone, before it."""
    if row.vmi.deleted or row.state.state is State.STOPPING:
        return "it is being stopped"
    return "its guest has just ended" if row.state.state is State.ENDED else ""


_WHILE_STOPPING: Final = {
    VmEvent.UPDATE: EventEffect.NOT_RUNNING,
    VmEvent.REBOOT: EventEffect.NOT_RUNNING,
    VmEvent.MIGRATION: EventEffect.REFUSED,
}


def _unknown(event: VmEvent, what: str) -> EventForecast:
    return EventForecast(
        event, EventEffect.UNKNOWN, f"cannot see {what}", "let virt-admit read it", what
    )


# --- an update of KubeVirt ------------------------------------------------------------------------


def _update(vmi: Object, node: NodePlan, cluster: Cluster) -> EventForecast:
    methods = workload_updates.in_force(cluster)
    if methods is None:
        unread = next((blind.what for blind in more_may_exist(cluster, KUBEVIRT)), "")
        reason = "its methods are not known: there is no KubeVirt object"
        return (
            _unknown(VmEvent.UPDATE, unread)
            if unread
            else EventForecast(VmEvent.UPDATE, EventEffect.UNKNOWN, reason)
        )
    if (removed := removed_operators.kubevirt(cluster)) is not None:
        return EventForecast(
            VmEvent.UPDATE, EventEffect.REFUSED, removed.of_vms.reason, removed.of_vms.remedy
        )
    if lost_launchers.is_gone(vmi, cluster):
        return EventForecast(VmEvent.UPDATE, EventEffect.NOT_RUNNING, lost_launchers.REASON)
    if not vmis.running(vmi):
        return EventForecast(
            VmEvent.UPDATE, EventEffect.NOT_RUNNING, "an update moves running VMs alone"
        )
    if lost := _lost(vmi, cluster):
        return EventForecast(VmEvent.UPDATE, EventEffect.UNKNOWN, lost)
    found = workload_updates.update(vmi, methods, cluster)
    if found.reach is Reach.MIGRATED:
        # it looks at nothing that may keep the migration from ending
        asked = _asked(vmi, node, cluster, updated=found.by_release)
        reach = _REACH.get(asked.outcome, found.reach)
        if reach is not found.reach:
            return replace(asked, event=VmEvent.UPDATE, outcome=str(reach))
    unseen = found.reason if found.reach is Reach.UNKNOWN else ""
    return EventForecast(VmEvent.UPDATE, str(found.reach), found.reason, unseen=unseen)


_REACH: Final[dict[str, Reach]] = {
    EventEffect.REFUSED: Reach.RETRIED,
    EventEffect.FAILS: Reach.RETRIED,
    EventEffect.UNKNOWN: Reach.UNKNOWN,
}
"""How an update reaches a VM whose migration, asked for now, would have this effect."""


# --- a reboot of the guest ------------------------------------------------------------------------


def _reboot(vmi: Object, cluster: Cluster) -> EventForecast:
    """Return what a reboot of the guest does: it stays in its pod,
    unless ``rebootPolicy`` is Terminate.
    """
    if lost := _lost(vmi, cluster):
        return EventForecast(VmEvent.REBOOT, EventEffect.UNKNOWN, lost)
    if vmi.at("spec", "domain", "rebootPolicy").text != "Terminate":
        gone = lost_launchers.has_no_pod(vmi, cluster)  # the API has it no longer, its node has
        where = "in its container there, which runs on" if gone else "inside its pod"
        reason = f"the guest reboots {where}{_waiting(vmi, cluster)}"
        return EventForecast(VmEvent.REBOOT, EventEffect.STAYS, reason)
    policy = "rebootPolicy Terminate ends the VMI"
    try:
        if vmis.owner(vmi, "VirtualMachineInstanceReplicaSet"):
            return EventForecast(
                VmEvent.REBOOT, EventEffect.RESTARTED, f"{policy}; its replica set makes another"
            )
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen as blind:
        return _unknown(VmEvent.REBOOT, blind.what)
    if vm is None or vm.deleted:
        return EventForecast(VmEvent.REBOOT, EventEffect.OFF, f"{policy}; no VM owns it")
    strategy = vms.run_strategy(vms.vm_spec(vm)) or ""
    outcomes = lifecycle.RUN_STRATEGY.get(strategy)
    if outcomes is None:
        return _unknown(VmEvent.REBOOT, f"the run strategy of VM {vm.full_name}")
    outcome = EventEffect.RESTARTED if outcomes.reboot is Then.RESTARTED else EventEffect.OFF
    return EventForecast(VmEvent.REBOOT, outcome, f"{policy}; runStrategy {strategy}")


def _lost(vmi: Object, cluster: Cluster) -> str:
    """Return that nothing on the node of a VMI reports; empty:
    its kubelet or its virt-handler does.
    """
    node = vmi.at("status", "nodeName").text or ""
    silence = node_health.silence_now(node, cluster) if virt_handlers.is_lost(cluster, node) else ""
    return (
        f"its node does not report ({silence}), so whether the guest still runs is not known"
        if silence
        else ""
    )


def _waiting(vmi: Object, cluster: Cluster) -> str:
    """Return that the VM has changes that a reboot of the guest does not apply; empty:
    none are known.
    """
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return ""
    if changed := changed_disks.of_either(vmi, cluster):
        return f"; {changed_disks.words(changed)}"
    if vm is None or not vm.is_true("RestartRequired"):
        return ""
    said = vm.condition("RestartRequired")["message"].words
    return (
        "; changes of its VM wait for a restart, which a reboot is "
        f"not{f': {cut_middle(said, 200)}' if said else ''}"
    )


# --- a migration that is asked for now ------------------------------------------------------------


def _migration(row: Forecast, node: NodePlan, cluster: Cluster) -> EventForecast:
    refused, remedy = _refused(row, cluster)
    if refused:
        never = _never(vm_outcomes.asked_migration(row.vmi, cluster), cluster)
        return EventForecast(VmEvent.MIGRATION, EventEffect.REFUSED, refused, remedy, never=never)
    asked = _asked(row.vmi, node, cluster, row.state.others)
    # it would wait for the same places
    if row.state.holders and asked.outcome == EventEffect.STARTS:
        return replace(
            asked, reason=f"once there is a place, as {row.state.detail}: {asked.reason}"
        )
    return asked


def _asked(
    vmi: Object, node: NodePlan, cluster: Cluster, others: int = 0, *, updated: bool = False
) -> EventForecast:
    """Return what becomes of a migration of a VM that KubeVirt accepts.

    ``others``: how many wait before it. ``updated``: as for ``vm_outcomes.asked_migration``.
    """
    if vmis.migratable(vmi) is None:
        what = f"condition LiveMigratable of {vmi.full_name}"
        return EventForecast(
            VmEvent.MIGRATION, EventEffect.UNKNOWN, vmis.blocking_reason(vmi), unseen=what
        )
    # that is the reason, not the parts of KubeVirt there
    silent = node_health.silence_now(node.name, cluster)
    broken = [each for each in node.control if each.healthy is not True and not silent]
    if any(each.healthy is False for each in broken):
        return _without(next(each for each in broken if each.healthy is False), EventEffect.REFUSED)
    of_node = find(cluster, NODE, "", node.name)
    asked = unbound_claims.told(vm_outcomes.asked_migration(vmi, cluster, updated=updated), cluster)
    (found,), _, doubts = overruling.overrule(
        [asked], of_node, _webhooks(node.name, cluster), cluster
    )
    if silent or found.outcome is VmOutcome.BLOCKS:
        again = vm_states_failures.repeats(vmi, found.state, found.target, cluster)
        known = any(each.cause == ProblemCause.MIGRATION_FAILS for each in found.problems)
        fails = not silent and (known or (again is not None and again.effect is StateEffect.BLOCKS))
        effect = EventEffect.FAILS if fails else EventEffect.REFUSED
        never = _never(found, cluster)
        return EventForecast(VmEvent.MIGRATION, effect, _why(found), found.remedy, never=never)
    if found.outcome is VmOutcome.UNKNOWN:
        return EventForecast(
            VmEvent.MIGRATION, EventEffect.UNKNOWN, _why(found), found.remedy, found.unseen
        )
    if broken:
        return _without(broken[0], EventEffect.UNKNOWN)
    if doubts:
        reason = f"cannot determine {doubts[0]}"
        return EventForecast(VmEvent.MIGRATION, EventEffect.UNKNOWN, reason, unseen=doubts[0])
    slow = vm_states_failures.long_migration(vmi, cluster)
    waits, where = pending_changes.problem(vmi, cluster), _where(found, others)
    brings = f"brings {pending_changes.pending(vmi)}" if waits is not None else ""
    reason, remedy = "; ".join(filter(None, (where, slow, brings))), waits.remedy if waits else ""
    return EventForecast(VmEvent.MIGRATION, EventEffect.STARTS, reason, remedy)


def _never(asked: Forecast, cluster: Cluster) -> str:
    """Return why no migration of a VMI succeeds before it or a node is changed; empty: one may.

    A taint of a controller passes, and a device may be offered later. ``asked``: what becomes of
    one that is asked for now.
    """
    vmi, target = asked.vmi, asked.target
    if asked.outcome is not VmOutcome.BLOCKS or asked.state.placed:
        return ""
    fails = vm_states_failures.of_pairs(vmi, asked.state, target, cluster) is not None
    untried = {*target.placement.candidates, *target.placement.undetermined}
    if fails and (not untried or vm_states_failures.of_devices(vmi, cluster)):
        return "its migrations fail on every node for a cause that stays"
    said = asked.state.failure.text if asked.state.failure is not None else ""
    if remedies.lasting(vmi, said, cluster) is not None:
        return "its migrations fail on every node for a cause that stays"
    causes = [cause for why in target.placement.refusals.values() for cause in why.split("; ")]
    if affinity_partners.keeps_both(target.pod, causes, cluster):
        return "it and another VM have to run side by side, and neither goes first"
    keys = {cause.removeprefix("taint ") for cause in causes}
    passes = any(map(controller_taints.owner, keys))
    passes = passes or not keys.isdisjoint(shared_taints.known(cluster))
    passes = passes or any(without_kvm.is_off(name, cluster) for name in target.placement.refusals)
    failed = migration_failures.impossible_targets(vmi, cluster)
    sizes = {name: size for name, size in target.pod.requests.items() if "/" not in name}
    needs = target._replace(pod=replace(target.pod, requests=sizes))
    lasts = causes and not passes
    if lasts and no_target.is_lasting(needs, vmi, cluster, refused=failed):
        gap = no_target.frequency_gap(vmi, cluster)
        updates = gap is not None and gap.updates
        return f"no other node can {'take it before an update' if updates else 'ever take it'}"
    return ""


def _why(asked: Forecast) -> str:
    """Return the reason of a forecast without the words about who asks for a migration:
    the event says that.
    """
    return asked.reason.removeprefix(f"{vm_outcomes.ASKED}, but ")


def _webhooks(node: str, cluster: Cluster) -> ControlPath:
    """Return what refuses a migration now, or gives its pod no node, besides the components of
    KubeVirt, which are judged by themselves.
    """
    kept = control_path.of_migrations(cluster, node)
    now = (each for each in kept if each.now and not (each.starts or each.evictions))
    return ControlPath((), tuple(filter(_refuses, now)))


def _refuses(each: Hindrance) -> bool:
    return each.kind in _CONFIGURATIONS or each.component == cluster_controllers.SCHEDULER


_CONFIGURATIONS: Final = (VALIDATING_CONFIGURATION.kind, MUTATING_CONFIGURATION.kind)


def _without(component: Component, outcome: EventEffect) -> EventForecast:
    unseen = component.component if outcome is EventEffect.UNKNOWN else ""
    return EventForecast(VmEvent.MIGRATION, outcome, component.reason, component.remedy, unseen)


def _refused(row: Forecast, cluster: Cluster) -> tuple[str, str]:
    """Return why KubeVirt accepts no migration of a VMI now, or needs none, and what helps; empty:
    it accepts one.
    """
    vmi, state = row.vmi, row.state
    phase = vmi.at("status", "phase").text
    if state.state is State.GONE:
        return lost_launchers.REASON, ""
    if phase != "Running":
        return f"it is {phase}" if phase else NOT_RUNNING, ""
    if state.migration is not None:  # migration-create-admitter.go#EnsureNoMigrationConflict
        why, remedy = _under_way(row, cluster)
        does = "is queued" if state.state is State.QUEUED else "is under way"
        return f"migration {state.migration.name} {does}{why}", remedy
    if vmis.migratable(vmi) is False:
        return f"it cannot migrate: {vmis.blocking_reason(vmi)}", ""
    return "", ""


def _under_way(row: Forecast, cluster: Cluster) -> tuple[str, str]:
    """Return what a migration is doing, or what those before it came to, where the forecast of the
    drain knows that alone.
    """
    ruled = vm_states_outcomes.ruling(row.vmi, row.state, cluster)
    if (
        ruled is not None
        and ruled.effect is StateEffect.UNKNOWN
        and row.outcome is VmOutcome.BLOCKS
    ):
        why = row.reason.partition(", but ")[2] or row.reason
        return f"{', and ' if why.startswith('its last ') else ': '}{why}", row.remedy
    said = "" if ruled is None or row.outcome is VmOutcome.MIGRATES else f": {ruled.reason}"
    return said, ""


def _where(found: Forecast, ahead: int) -> str:
    nodes: Sequence[str] = found.placement.certain or ()
    others = "another one that waits" if ahead == 1 else f"{ahead} others that wait"
    queue = f" after {others} for a place" if ahead else ""
    return (
        f"to {nodes[0]}{queue}"
        if len(nodes) == 1
        else f"to one of {names(nodes)}{queue}"
        if nodes
        else found.reason
    )
