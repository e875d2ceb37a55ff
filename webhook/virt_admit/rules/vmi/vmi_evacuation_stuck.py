"""A VMI is marked for evacuation but does not migrate.

**Why.** A drain or an upgrade requested the evacuation (``status.evacuationNodeName``) and waits.
No migration is running: all of them failed, a migration that does not end holds the only place, or
the strategy is ``External`` and no controller acts. A VMI that waits for a place which becomes free
is not stuck. Or a migration is running, and its target pod does not start, or
its guest is active there and no virt-handler ends the migration.

**Fix.** If a migration failed, find out why (``kubectl get vmim``). If there was none, look at
virt-controller and the limits, and with ``External`` at the controller that moves the VM. Else shut
the VM down. The mark stays after the end of the maintenance, and migrations that are deleted come
back: remove it with ``virtctl evacuate-cancel``, before KubeVirt 1.7 with ``kubectl patch``, or
restart the VM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain import progress, typed_remedies, vm_outcomes
from virt_admit.forecasts.drain.failed_migrations import remedies
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.progress import DrainCause, DrainStart
from virt_admit.forecasts.drain.states import (
    launcher_changes,
    vm_states,
    vm_states_targets,
    vm_states_times,
)
from virt_admit.forecasts.drain.states.evacuation_marks import descheduled, evacuate_cancel
from virt_admit.forecasts.drain.states.vm_states_kinds import Ruling, State, StateEffect, VmState
from virt_admit.forecasts.drain.states.vm_states_outcomes import TARGET_STARTS, held_target, ruling
from virt_admit.forecasts.placement import no_target, quotas
from virt_admit.model import messages
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.kubevirt.instances import expand, migration_failures, migrations, vms
from virt_admit.model.node_updates import node_phases
from virt_admit.rule import Action, Context, Finding, Findings, Urgency, duration, rule, union


@dataclass(frozen=True)
class Params:
    longest: int = duration("15m", "time without a migration after which the VMI counts as stuck")


@rule(
    kinds=(VMI,),
    reads=union(
        vm_outcomes.READS,
        quotas.READS,
        progress.READS,
        {NODE: ("spec.unschedulable", "spec.taints"), KUBEVIRT: (), VMI: ()},
    ),
    action=Action.AUDIT,
    urgency=Urgency.STUCK,
    effect=True,
    event="DrainBlocked",
    at_admission=False,
    params=Params(),
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go",
        "kubevirt/kubevirt#5177",
        "kubevirt/kubevirt#9585",
    ),
)
def check(vmi: Object, context: Context[Params]) -> Findings:
    mark = vmi.at("status", "evacuationNodeName")
    if not mark.text or vmi.deleted:
        return
    longest = timedelta(microseconds=context.params.longest // 1000)
    moving = list(migrations.unfinished(vmi, context.cluster))
    if _left_over(vmi, moving, longest, context.cluster):
        yield _marked(vmi, context.cluster)
        return
    if moving:
        yield from _held_target(vmi, context.cluster)
        return
    idle = clock.elapsed(_last_event(vmi, context.cluster), context.cluster)
    if idle is not None and idle < longest:
        return
    held = _held_place(vmi, context.cluster)
    if held is not None and held.effect is StateEffect.WAITS:
        return
    unknown = f"{format_duration(context.params.longest)} or more"
    since = clock.duration(idle) if idle is not None else unknown
    waits = f"a drain of node {mark.text} waits for this VMI, but no migration ran for {since}"
    if _is_external(vmi, context.cluster):
        named = vms.mover_name(vmi.labels) if vms.has_mover(vmi, vmi.labels) else ""
        who = named.partition(",")[0] if named else "a controller outside KubeVirt"
        must = f"with External {who} has to move it, and does not"
        waits = f"a drain of node {mark.text} waits for {since}: {must}"
    failure = _failure(vmi, context.cluster)
    lasting = remedies.of_one_vm(vmi, failure, context.cluster)
    choices = [f"{waits}. {_remedy(vmi, context.cluster)}, or shut the VM down."]
    if held is not None:
        choices = [f"{waits}. {messages.advice_of(held.remedy)}"]
    elif lasting is not None:
        lasting = lasting._replace(remedy=changed_disks.safe(lasting.remedy, vmi, context.cluster))
        advice = messages.advice_of(lasting.remedy)
        begin = f"{waits}: {lasting.reason}."
        choices[:0] = [f"{begin} {advice}", f"{begin} {messages.ended(advice.partition(';')[0])}"]
    elif failure:
        remedy = remedies.of(failure).partition(",")[0]
        choices[:0] = [
            f"{waits}: {messages.cut_middle(failure, length)}. {messages.sentence(remedy)}"
            for length in (200, 80)
        ]
    known = held if held is not None else lasting
    command = messages.command_of(known.remedy) if known is not None else ""
    yield Finding(mark.path, check.first_that_fits(mark.path, *choices), command=command)


def _marked(vmi: Object, cluster: Cluster) -> Finding:
    """Return that migrations are made for a mark that no drain needs any more."""
    mark = vmi.at("status", "evacuationNodeName")
    problem = no_target.nowhere_to_go(vmi, cluster)
    why = f", and none can succeed: {problem.reason}" if problem is not None else ""
    strategy = descheduled(vmi, cluster)
    if strategy:  # it would evict a VMI without the mark again
        begin = f"a descheduler evicted this VMI from node {mark.text} ({strategy}), and"
        end = "Let a migration succeed, or exclude the VM from the descheduler."
    else:
        marked = "this VMI is still marked for eviction (status.evacuationNodeName)"
        begin = f"node {mark.text} accepts VMs again, but {marked}, so"
        end = "If the maintenance has ended, remove the mark."
    begin += " KubeVirt makes a new migration after each that fails or is deleted"
    choices = (f"{begin}{each}. {end}" for each in (why, messages.cut(why, 150), ""))
    of_drain = (one.id for one in vm_outcomes.forecast(vmi, cluster).problems)
    return Finding(
        mark.path,
        check.first_that_fits(mark.path, *choices),
        problem=next(filter(None, of_drain), None),
        command="" if strategy else evacuate_cancel(vmi, cluster),
    )


def _held_target(vmi: Object, cluster: Cluster) -> Findings:
    """Yield that the target pod of a migration is refused or does not start: the next one meets the
    same cause. Or its guest is active there, and nothing ends the migration.
    """
    found = vm_states.of(vmi, cluster)
    mark = vmi.at("status", "evacuationNodeName")
    if found.state is State.UNSCHEDULABLE:
        yield from _refused_target(vmi, mark, found, cluster)
        return
    ruled = held_target(vmi, found, cluster)
    if ruled is not None:
        brief = vm_states_targets.in_brief(found, cluster)
        yield _waits(mark, ruled.reason, ruled.remedy, cluster, brief)


def _refused_target(vmi: Object, mark: Field, found: VmState, cluster: Cluster) -> Findings:
    """Yield that no node takes the target pods: KubeVirt gives each up after 5 minutes,
    and makes another one.
    """
    drain = _drain(mark.text or "", cluster)
    long = drain is not None and vm_states_times.is_older(drain.since, TARGET_STARTS, cluster)
    again = migrations.failed_in_a_row(vmi, cluster)
    if not long or not (again or vm_states_times.is_older(found.since, _REFUSED, cluster)):
        return
    problem = no_target.nowhere_to_go(vmi, cluster)
    if problem is not None:
        remedy = typed_remedies.with_command(problem, vmi, cluster).remedy
        yield _waits(mark, problem.reason, remedy, cluster)


def _waits(mark: Field, reason: str, remedy: str, cluster: Cluster, brief: str = "") -> Finding:
    drain = _drain(mark.text or "", cluster)
    of_harvester = drain is not None and drain.cause is DrainCause.HARVESTER
    what = "the maintenance mode of Harvester for" if of_harvester else "a drain of"
    lasts = clock.lasting(clock.stamp(drain.since), cluster) if drain is not None else ""
    begin = f"{what} node {mark.text} waits{lasts} for this VMI: "
    advice, room = messages.advice_of(remedy), check.room(mark.path) - len(begin) - 2
    step = messages.ended(advice.partition("; ")[0])
    first = messages.ended(step.partition(", ")[0])
    told = messages.first_within(room - _CAUSE, advice, step, first)
    room = max(room - len(told), _CAUSE)
    shown = reason if len(reason) <= room else brief or reason
    said = messages.ended(messages.shorten(shown, room))
    command = messages.command_of(remedy) if told in (advice, step) else ""  # of the last way
    return Finding(mark.path, f"{begin}{said} {told}", command=command)


_CAUSE: Final = 100
"""Characters that a cause has at least: a remedy is rather cut to its first clause."""


def _drain(name: str, cluster: Cluster) -> DrainStart | None:
    node = cluster.get(NODE, "", name)
    return progress.start(node, cluster) if node is not None else None


_REFUSED: Final = timedelta(minutes=1)
"""kube-scheduler has looked at all nodes by then."""


def _held_place(vmi: Object, cluster: Cluster) -> Ruling | None:
    """Return how the migrations end that hold the places for which a VMI waits; None:
    it waits for none.
    """
    found = vm_states.of(vmi, cluster)
    return ruling(vmi, found, cluster) if found.holders else None


def _left_over(vmi: Object, moving: Sequence[Object], longest: timedelta, cluster: Cluster) -> bool:
    """Return whether a VMI waits to leave a node which no drain empties any more.

    A migration that runs is not waiting.
    """
    if any(each.at("status", "phase").text not in ("", None, *_WAITING) for each in moving):
        return False
    node = cluster.get(NODE, "", vmi.at("status", "evacuationNodeName").text or "")
    since = clock.since(_first_asked(vmi, cluster), cluster)
    if node is None or node.at("spec", "unschedulable").boolean:
        return False
    return since is not None and since > longest


_WAITING: Final = ("Pending", "Scheduling")


def _first_asked(vmi: Object, cluster: Cluster) -> str | None:
    """Return a time at which the eviction of a VMI was asked for already; releases before 1.8 have
    no condition for it.
    """
    asked = vmi.condition("EvictionRequested")["lastTransitionTime"].text
    failed = migrations.failed_in_a_row(vmi, cluster)
    mark = vmi.at("status", "evacuationNodeName").text
    ours = (each for each in failed if each.annotations.get(migrations.AUTOMATIC[0]) == mark)
    return asked or next((each.created for each in ours), None)


def _failure(vmi: Object, cluster: Cluster) -> str:
    """Return the reason of the last failure, without the names of calls; empty: none is known."""
    own = list(migrations.of_vmi(vmi, cluster))
    if not own or migration_failures.failed_before_handover(own[-1]):
        return ""
    found = migration_failures.of_migration(vmi, own[-1], cluster)
    return (
        launcher_changes.pair_words(found.target, found.text, cluster) if found is not None else ""
    )


def _remedy(vmi: Object, cluster: Cluster) -> str:
    """Return where to look. KubeVirt creates no migration for a VMI with ``External``."""
    if any(migrations.of_vmi(vmi, cluster)):
        return "Find out why the last one failed"
    if _is_external(vmi, cluster):
        return "Repair that controller, migrate the VM by hand"
    return "Check virt-controller and the limits of parallel migrations"


def _is_external(vmi: Object, cluster: Cluster) -> bool:
    return expand.strategy(vmi, cluster).value == "External" and not any(
        migrations.of_vmi(vmi, cluster)
    )


def _last_event(vmi: Object, cluster: Cluster) -> datetime | None:
    """Return the latest time at which the node was cordoned, the mark was set, a migration ended or
    the VMI was created.
    """
    node = cluster.get(NODE, "", vmi.at("status", "evacuationNodeName").text or "")
    cordoned = node_phases.cordoned_since(node) if node is not None else None
    marks = (
        entry["time"]
        for entry in vmi.metadata["managedFields"].items()
        if entry.at("fieldsV1", "f:status", "f:evacuationNodeName").present
    )
    moves = (
        time
        for migration in migrations.of_vmi(vmi, cluster)
        for time in (
            migration.metadata["creationTimestamp"],
            migration.at("status", "migrationState", "endTimestamp"),
        )
    )
    asked = vmi.condition("EvictionRequested")["lastTransitionTime"]
    times = (
        clock.instant(time.text)
        for time in (vmi.metadata["creationTimestamp"], asked, *marks, *moves)
    )
    return max(filter(None, (cordoned, *times)), default=None)
