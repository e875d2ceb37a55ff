"""A VM migrates again and again without success.

**Why.** KubeVirt repeats migrations for drains and updates forever, and each attempt takes five
minutes or more. Meanwhile the drain does not complete and the VM stays outdated. KubeVirt keeps
only the five newest attempts. A migration whose target pod is on the node of the VM cannot succeed
either: its scheduler ignores the anti-affinity of the pod. One that a person asked for is not
repeated, and ends without a word on the VM if its target pod does not start. Two of them in a row
that fail with the same words, or one that libvirt refuses for the disks of the VM, foretell the
next one.

**Fix.** Remove the cause: an obsolete CPU model, no other node that fits, or limits that are too
low for the VM. Only ``scan`` and ``check`` report this.
"""

from virt_admit.forecasts.drain import typed_remedies, vm_outcomes, vm_problems
from virt_admit.forecasts.drain.failed_migrations import pair_remedies, remedies
from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.forecasts.drain.states import (
    evacuation_marks,
    launcher_changes,
    vm_states,
    vm_states_failures,
    vm_states_motion,
    vm_states_outcomes,
    vm_states_targets,
)
from virt_admit.forecasts.drain.states.evacuation_marks import evacuate_cancel
from virt_admit.forecasts.drain.states.vm_states_kinds import StateEffect, VmState
from virt_admit.forecasts.drain.targets import rejected_targets
from virt_admit.forecasts.placement import no_target
from virt_admit.model import messages
from virt_admit.model.commands import shell, virtctl
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubevirt.instances import migration_failures, migrations, vmis, vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.messages import advice_of, command_of, cut, cut_middle
from virt_admit.model.problems import Problem, ProblemCause, ProblemId, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(VMI,),
    reads=union(vm_outcomes.READS, {VMI: ()}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    effect=True,
    at_admission=False,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
    ),
)
def check(vmi: Object, context: Context) -> Findings:
    failed = migrations.failed_in_a_row(vmi, context.cluster)
    state = vm_states.of(vmi, context.cluster)
    own_node = vm_states_targets.on_its_own_node(vmi, state, context.cluster)
    if own_node is not None:
        yield Finding(
            vmi["status"]["migrationState"].path,
            f"{own_node.reason}. {advice_of(own_node.remedy)}",
            problem=_problem(vmi, context),
            command=command_of(own_node.remedy),
        )
    elif len(failed) >= migrations.RETRY_LOOP:
        marked = evacuation_marks.way_to_stay(vmi, state, context.cluster)
        place = no_target.nowhere_to_go(vmi, context.cluster)
        reason = _for_mark(vmi, place) if marked else _reason(vmi, failed[-1], place, context)
        # no words of a failure are taken for a command
        if marked:
            command = evacuate_cancel(vmi, context.cluster)
        elif reason.endswith(_again(vmi, context)):
            command = virtctl("restart", vmi.name, vms.namespace_of(vmi))
        else:
            command = _command(vmi, failed[-1], place, context)
        yield Finding(
            vmi["status"]["migrationState"].path,
            f"the last {len(failed)} automatic migrations failed and KubeVirt retries forever: "
            f"{reason}",
            value=len(failed),
            problem=_problem(vmi, context),
            command=command,
        )
    elif not vmi.at("status", "evacuationNodeName").text and not vmi.deleted:
        found = tuple(_held_target(vmi, state, context))
        yield from found or _fails_again(vmi, context)
    yield from more_may_exist(context.cluster, VMIM)


def _held_target(vmi: Object, state: VmState, context: Context) -> Findings:
    """Yield that a migration without a drain does not go on, as its target pod does not start."""
    held = vm_states_outcomes.held_target(vmi, state, context.cluster)
    brief = vm_states_targets.in_brief(state, context.cluster)
    if held is None or state.migration is None or not (brief or held.effect is StateEffect.BLOCKS):
        return  # why is not known
    path, advice = vmi["status"]["migrationState"].path, advice_of(held.remedy)
    begin = f"migration {state.migration.name} does not go on: "
    reasons = (held.reason, brief or held.reason)
    choices = [f"{begin}{messages.ended(each)} {advice}" for each in reasons]
    room = check.room(path) - len(f"{begin} {advice}") - 1
    choices.append(f"{begin}{messages.ended(messages.shorten(reasons[1], room))} {advice}")
    yield Finding(
        path,
        check.first_that_fits(path, *choices),
        problem=_problem(vmi, context),
        command=command_of(held.remedy),
    )


def _fails_again(vmi: Object, context: Context) -> Findings:
    """Yield that the migrations that a person or another program asked for failed alike."""
    found = vm_states_failures.again(vmi, context.cluster)
    if found is None or not vmis.running(vmi):
        return
    remedy = vm_problems.slow_copy(_safe(found, vmi, context), vmi, context.cluster)
    found = found._replace(remedy=remedy)
    path, advice = vmi["status"]["migrationState"].path, advice_of(found.remedy)
    first = messages.ended(advice.partition("; ")[0])
    room = check.room(path) - len(first) - 2
    yield Finding(
        path,
        check.first_that_fits(
            path,
            f"{messages.ended(found.reason)} {advice}",
            f"{messages.ended(messages.shorten(found.reason, room))} {first}",
        ),
        problem=_problem(vmi, context),
        command=command_of(found.remedy),
    )


def _command(vmi: Object, last: Object, place: Problem | None, context: Context) -> str:
    """Return the command of a remedy: of the place, or for migrations that time out."""
    if place is not None:
        return place.command
    held = remedies.of_one_vm(vmi, _failure(vmi, last, context), context.cluster)
    if held := held or _of_target(vmi, last, context):
        return command_of(_safe(held, vmi, context))
    if rejected := rejected_targets.problem(vmi, context.cluster):
        return rejected.command
    late = vm_states_failures.of_load(vmi, context.cluster) is not None
    return typed_remedies.edit_limits(vmi, context.cluster) if late else ""


def _safe(held: Problem, vmi: Object, context: Context) -> str:
    """Return a remedy that ends the guest only when it can start again, with its own disks."""
    remedy = restart_guard.guarded(held.remedy, vmi, context.cluster)
    return changed_disks.safe(remedy, vmi, context.cluster)


def _again(vmi: Object, context: Context) -> str:
    return f"Restart the VM{restart_guard.later(vmi, context.cluster)}."


def _for_mark(vmi: Object, place: Problem | None) -> str:
    """Return why migrations are repeated away from a node that no drain empties."""
    node = vmi.at("status", "nodeName").text
    why = f"; {cut(place.reason, 150)}" if place is not None else ""
    mark = (
        f"status.evacuationNodeName still marks the VMI for eviction from {node}, which is not "
        f"cordoned{why}"
    )
    return f"{mark}. If it is to stay, remove that mark; migrations that are deleted come back."


def _problem(vmi: Object, context: Context) -> ProblemId:
    """Return the problem for which a drain is blocked too:
    more than the last failure may explain it.
    """
    blocking = vm_outcomes.forecast(vmi, context.cluster).problems
    return next(
        filter(None, (one.id for one in blocking)), problem_of(ProblemCause.MIGRATION_FAILS, vmi)
    )


def _reason(vmi: Object, last: Object, place: Problem | None, context: Context) -> str:
    model = vmi.at("spec", "domain", "cpu", "model").text
    if model in configuration.obsolete_models(context.cluster):
        return f"CPU model {model} is obsolete. Choose another model."
    if place is not None:
        way = typed_remedies.stopped(place, vmi, context.cluster) or place
        return f"{place.reason}; {messages.without_command(way.remedy)}"
    failure = _failure(vmi, last, context)
    if vm_states_failures.is_of_launcher(vmi, context.cluster):
        fails = launcher_changes.words(vmi, context.cluster)
        return (
            f"since KubeVirt's update they fail {fails}: {cut_middle(failure, 200)}. "
            f"{_again(vmi, context)}"
        )
    if migration_failures.is_of_pair(failure):
        target = last.at("status", "migrationState", "targetNode").text or "the target node"
        launcher = launcher_changes.remedy_of_withheld(vmi, {target: failure}, context.cluster)
        remedy = messages.sentence((launcher or pair_remedies.of([failure])).partition(",")[0])
        said = launcher_changes.pair_words(target, failure, context.cluster)
        return f"{target}: {cut_middle(said, 200)}. {remedy}"
    if timed_out := vm_states_failures.of_load(vmi, context.cluster):
        _, _, words = timed_out.reason.partition(" cancelled")
        if words:  # else KubeVirt aborted them, and its own words say why
            return f"they were cancelled{words}. {messages.sentence(timed_out.remedy)}"
        return f"{timed_out.reason}. {messages.sentence(timed_out.remedy)}"
    if held := remedies.of_one_vm(vmi, failure, context.cluster):
        return f"{held.reason}. {advice_of(_safe(held, vmi, context))}"
    if there := _of_target(vmi, last, context):
        return f"{there.reason}. {advice_of(_safe(there, vmi, context))}"
    if failure:
        remedy = messages.sentence(remedies.of(failure).partition(",")[0])
        return f"migration {last.name} failed: {cut_middle(failure, 200)}. {remedy}"
    if migration_failures.failed_before_handover(last):  # no time-out of the copy has a part in it
        if rejected := rejected_targets.problem(vmi, context.cluster):
            return f"{rejected.reason}. {messages.sentence(advice_of(rejected.remedy))}"
        see = shell("virt-admit", "explain", f"vm/{vmi.name}", "-n", vms.namespace_of(vmi))
        targets = vm_states_motion.motion(context.cluster).targets
        became = migration_failures.unstarted(targets.get(last.metadata["uid"].text or "-"))
        return f"the target pod of {last.name} {became}. See {see}."
    return (
        f"no reason is reported. Check migration {last.name} and the migration timeouts and "
        "bandwidth."
    )


def _of_target(vmi: Object, last: Object, context: Context) -> Problem | None:
    """Return why each migration to the node of the last one fails; None: it may succeed."""
    found = migration_failures.of_migration(vmi, last, context.cluster)
    return remedies.of_target(vmi, found, context.cluster) if found is not None else None


def _failure(vmi: Object, last: Object, context: Context) -> str:
    """Return why a migration failed after its target pod ran; empty: that is not known."""
    if migration_failures.failed_before_handover(last):
        return ""
    found = migration_failures.of_migration(vmi, last, context.cluster)
    return found.text if found is not None else ""
