"""An outage as text: the answer, one line for each loss, and the VMs that do not come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain import launcher_pods
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.outage import outages as outages_module
from virt_admit.forecasts.outage import time_parts
from virt_admit.forecasts.outage.lost_vms import LostVm, is_estimated
from virt_admit.forecasts.outage.outages import Outage, Outages
from virt_admit.forecasts.outage.restarts import next_vmis
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.outage.time_parts import ELSEWHERE, Part, Seconds
from virt_admit.forecasts.placement import virt_handlers, volume_attachments
from virt_admit.forecasts.placement.components import busy_volumes, cluster_controllers
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import entry
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher.launcher_pod import is_launcher
from virt_admit.model.messages import count, ended, names
from virt_admit.model.sanitize import indented, line, name
from virt_admit.model.scheduler.resources import MEMORY, show
from virt_admit.reports.columns import columns
from virt_admit.reports.drain.words import REMOVED
from virt_admit.reports.unavailable_data import not_available

_MOST_VMS: Final = 200
"""VMs of one loss that the text lists one by one."""
WORDS: Final = {True: "Yes", False: "No", None: "Unknown"}


def text(found: Outages) -> str:
    """Return an answer as text: each loss with its VMs."""
    lines = [*_head(found), ""]
    for one in found.outages:
        lines += [*of_loss(one), ""]
    lines += _tail(found)
    return "\n".join(map(indented, lines)).rstrip("\n")


def summary(found: Outages) -> str:
    """Return one line for each loss that the cluster does not certainly survive."""
    lines = [*_head(found)]
    lines += columns(map(_row, found.outages))
    lines += _tail(found)
    return "\n".join(map(indented, lines))


def subject(found: Outages) -> str:
    """Return what is lost, in words."""
    question = found.question
    if question.zone is not None:
        return f"of zone {question.zone}"
    if question.worst is not None:
        return "of any one node" if question.worst == 1 else f"of any {question.worst} nodes"
    return f"of {names(question.nodes)}"


def headline(found: Outages) -> str:
    """Return the answer in one line."""
    why = ""
    if found.question.worst is not None and found.survives is not True and found.outages:
        what = "node" if found.question.worst == 1 else "set"
        bad = sum(one.survives is found.survives for one in found.outages)
        why = (
            f": {bad} of {count(found.total, what)}"
            if bad
            else f": {found.because[0]}"
            if found.because
            else ""
        )
    elif found.because and found.survives is not True:
        why = f": {found.because[0]}"
    answer = ended(f"{WORDS[found.survives]}{why}")
    return f"Does the cluster survive the loss {subject(found)}? {answer}"


def _head(found: Outages) -> Iterator[str]:
    yield headline(found)
    if found.quorum.nodes == 0 and found.quorum.kept:
        yield "The control plane is not in this cluster: it is assumed outside and to go on."


def _row(one: Outage) -> tuple[str, ...]:
    reason = one.because[0] if one.because else _slowest(one)
    lost = [vm for vm in one.vms if vm.outcome is not LossOutcome.RESTARTS and not vm.removed]
    answer = {True: "survives", False: "no", None: "unknown"}[one.survives]
    return names(one.nodes), count(len(lost) or len(one.vms), "VM"), answer, line(reason)


def _slowest(one: Outage) -> str:
    timed = [(vm.at, vm) for vm in one.having(LossOutcome.RESTARTS) if vm.at is not None]
    if not timed:
        return "no VM has to restart"
    at, vm = max(timed, key=lambda each: (each[0].high is None, each[0]))
    return f"slowest {period(at)}: {name(vm.vmi.full_name)}"


def of_loss(one: Outage) -> Iterator[str]:
    """Yield the lines about the loss of one set of nodes."""
    cluster = one.loss.cluster
    for node in one.nodes:
        if virt_handlers.is_lost(cluster, node) and (lost := node_health.silent_for(node, cluster)):
            yield f"{node} {lost}{': times count from its loss' if one.vms else _members(one)}"
    counts = Counter(map(outcome_words, one.vms))
    said = ", ".join(_counted(counts[each], each) for each in WORDS_OF_VMS if counts[each])
    yield f"loss of {names(one.nodes)}: {_tolerated(one)}{': ' if said else ''}{said}"
    for why in one.because:
        yield f"  because: {why}"
    for short in one.room.short:
        amount = outages_module.amount(short.resource, short.amount)
        yield f"  short: {amount}, at least {count(short.vms, 'VM')} without a place"
    yield from _actors(one)
    yield from _table(one.vms[:_MOST_VMS], one.because)
    for remedy in dict.fromkeys(lost.remedy for _, lost in one.stranded):
        if remedy and all(row.remedy != remedy for row in one.vms[:_MOST_VMS]):
            yield f"  to do: {remedy}"
    if len(one.vms) > _MOST_VMS:
        yield f"  and {len(one.vms) - _MOST_VMS} more VMs (see -o json)"
    yield from _ending(one)
    yield from _starting(one)
    stay = one.loss.homeless
    if stay:
        yield f"  {count(len(stay), 'other pod')} can start on no node that is left: {names(stay)}"
    others = len(one.loss.others) - len(stay)
    if others and not one.loss.stopped and not cluster_controllers.restarts_none(cluster):
        restart = "restarts" if others == 1 else "restart"
        yield f"  {count(others, 'other pod')} of these nodes {restart} too; drain counts VMs alone"
    if one.overcommit > 1:
        yield (
            f"  the guests have {one.overcommit:.1f} times the memory that their pods request: "
            "what fits may be slow"
        )
    if any(vm.parts and is_estimated(vm.vmi) for vm in one.vms):
        yield "  an earlier start of some VMs is not known: 10 to 120 seconds are assumed"


def _members(one: Outage) -> str:
    """Return what is left of the control plane that loses a node; empty: it loses none."""
    quorum, lost = one.quorum, one.loss.leader_moves
    are = "is" if quorum.left == 1 else "are"
    of = count(quorum.nodes, "control-plane node")
    return f": {quorum.left} of {of} {are} left" if lost and quorum.kept else ""


def _ending(one: Outage) -> Iterator[str]:
    """Yield the launchers that are being deleted on nodes which are lost: no kubelet ends them, and
    KubeVirt starts their VMs elsewhere only when they are gone. A VM that has left the node waits
    for no pod there.
    """
    cluster = one.loss.cluster
    for node in one.nodes:
        if not virt_handlers.is_lost(cluster, node):
            continue
        here = entry(cluster, evicted_pods.by_node, node) or ()
        guests = {(vmi.namespace, vmi.name) for vmi in entry(cluster, vmis.by_node, node) or ()}
        ending = sorted(
            pod.full_name
            for pod in here
            if pod.deleted
            and is_launcher(pod)
            and (pod.namespace, pod.owned_by(VMI.kind)) in guests
        )
        if ending:
            yield (
                f"  Terminating: {names(ending, 200)}. No kubelet of {name(node)} ends them, and "
                "KubeVirt starts a VM elsewhere only when its pod is gone"
            )


def _starting(one: Outage) -> Iterator[str]:
    """Yield the VMs whose pods wait on the nodes: no guest of theirs is lost."""
    cluster = one.loss.cluster
    for node in one.nodes:
        pods = entry(cluster, evicted_pods.by_node, node) or ()
        guests = (launcher_pods.waiting_guest(pod, cluster) for pod in pods if not pod.deleted)
        found = sorted(vmi.full_name for vmi in guests if vmi is not None)
        if found:
            starts, own = ("starts", "its") if len(found) == 1 else ("start", "their")
            yield (
                f"  {count(len(found), 'VM')} {starts} on {name(node)} and no guest runs yet: "
                f"{names(found)}. The end of {own} pod there comes before a start elsewhere"
            )


def _tolerated(one: Outage) -> str:
    """Return whether all VMs of the nodes run again, and how many there are."""
    if not one.vms:
        runs = "no VM runs there"
        if any(
            True
            for name in one.nodes
            for _ in volume_attachments.left_in_use(name, one.loss.cluster)
        ):
            runs = f"no VM is recorded there, but {busy_volumes.MAY_RUN}"
        return runs if one.survives else f"{_ANSWERS[one.survives]}; {runs}"
    twice = all(vm.outcome is LossOutcome.RESTARTS for vm in one.vms) and one.vms[0].twice
    answer = "every VM runs again, perhaps twice" if twice else _ANSWERS[one.survives]
    return f"{answer}; {count(len(one.vms), 'VM')}"


_ANSWERS: Final = {
    True: "every VM runs again",
    False: "not every VM runs again",
    None: "whether every VM runs again cannot be determined",
}


def _actors(one: Outage) -> Iterator[str]:
    """Yield what each check does, with what makes it act unless the VMs below have that remedy."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    told = [vm.remedy for vm in one.vms] + [lost.remedy for _, lost in one.stranded]
    for actor in one.actors:
        if any((actor.waits or actor.says) in why for why in one.because):
            continue
        if actor.waits:
            what = actor.waits.removeprefix(f"{actor.check} ")
        elif actor.refuses:
            what = actor.says.removeprefix(f"{actor.check} ")
        else:
            at = actor.at
            now = " from now" if time_parts.from_now(actor.parts) else ""
            when = f"after {period(at) if at is not None else 'an unknown time'}{now}"
            how = actor.remediator  # a kind, or a sentence about what becomes of the Machine
            sentence = how.startswith("the ")
            by, then = ("", f": {how}") if sentence else (f" by {how}" if how else "", "")
            does = "frees" if actor.certain else "may free"
            what = f"{does} the pods{by} {when}{then}"
            if actor.overdue:
                what = f"has not freed the pods in time. Not known is {actor.overdue}"
        idle = not one.vms and not virt_handlers.is_lost(one.loss.cluster, actor.node)
        said = idle or any(actor.remedy in each for each in told)
        remedy = actor.remedy if actor.refuses and not said else ""
        groups.setdefault((actor.check, what, remedy), []).append(actor.node)
    for (check, what, remedy), nodes in groups.items():
        yield f"  {line(check)} ({names(dict.fromkeys(nodes))}) {line(what)}"
        if remedy:
            yield f"    to do: {remedy}"


def outcome_words(vm: LostVm) -> str:
    """Return the word of the outcome of a VM, as ``drain`` says it of one that is being deleted."""
    return REMOVED if vm.removed else str(vm.outcome)


WORDS_OF_VMS: Final = (*LossOutcome, REMOVED)


def _counted(number: int, outcome: str) -> str:
    """Return ``1 waits for room`` or ``2 wait for room``."""
    verb = next(word for word in outcome.split() if word != "never")
    plural = {"is": "are"}.get(verb, verb.removesuffix("s"))
    return f"{number} {outcome if number == 1 else outcome.replace(verb, plural, 1)}"


def _table(rows: Sequence[LostVm], because: Sequence[str]) -> Iterator[str]:
    """Yield one row for VMs of which the same is said, and what to do once for all of them.

    A reason that is the only cause of the whole loss stands above the rows and is not repeated.
    """
    width = max((len(outcome_words(row)) for row in rows), default=0)
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        above = len(because) == 1 and row.reason in because[0]
        groups.setdefault(
            (
                outcome_words(row),
                _what(row, "" if above else row.reason),
                time_line(row),
                row.remedy,
            ),
            [],
        ).append(name(row.vmi.full_name))
    for (outcome, what, times, remedy), vms in groups.items():
        yield f"  {outcome:{width}}  {names(vms, 120)}{f': {what}' if what else ''}"
        if times:
            yield f"  {'':{width}}  time: {times}"
        if remedy:
            yield f"  {'':{width}}  to do: {remedy}"


SOURCES: Final = {
    "detected": "kube-controller-manager",
    "waited": "the health check",
    "storm cooldown": "the health check",
    "earlier remediators": "the health check",
    "remediated": "the remediator",
    "pod gone": "kube-controller-manager",
    "topology spread counts the lost nodes": "virt-controller",
    next_vmis.MARKED: "kube-controller-manager",
    next_vmis.ENDED: "virt-controller",
    next_vmis.BACKOFF: "virt-controller",
    next_vmis.FAILED_OVER: "the storage",
    "detached": "kube-controller-manager",
}
"""The component that each part of a time line waits for."""


def time_line(row: LostVm) -> str:
    """Return the parts of a time line with the component that each waits for; empty:
    the VM does not restart.
    """
    own = "assumed" if is_estimated(row.vmi) else "as its last start"
    parts = (part for part in row.parts if part.high != 0)
    return ", ".join(f"{each.what} {_seconds(each)} ({_waits_for(each) or own})" for each in parts)


def _waits_for(part: Part) -> str:
    return "its Deployment" if part.what.endswith(ELSEWHERE) else SOURCES.get(part.what, "")


def _seconds(part: Part) -> str:
    if part.high is None:
        return f"at least {part.low} s" if part.low else "after a time that nothing bounds"
    return f"{part.low} s" if part.low == part.high else f"{part.low}-{part.high} s"


def _what(row: LostVm, reason: str) -> str:
    if row.at is None:
        hand = f"by hand: after {period(row.by_hand)}" if row.by_hand is not None else ""
        return "; ".join(filter(None, (reason, hand)))
    where = f" on {row.to}" if row.to else ""
    data = "; without the data of its container, empty and ephemeral disks" if row.fresh else ""
    now = " from now" if row.from_now else ""
    return f"after {period(row.at)}{now}{where}: {row.reason}{data}"


def period(span: Seconds) -> str:
    """Return a range of seconds for people: ``9-11 min``, ``at least 8 min``."""
    if span.high is None:
        return f"at least {_minutes(span.low)} min"
    low, high = _minutes(span.low), _minutes(span.high)
    return f"{low} min" if low == high else f"{low}-{high} min"


def _minutes(seconds: int) -> int:
    return max(1, (seconds + 30) // 60)


_BEFORE: Final = "such a loss leaves VMs without room"


def _is_past(one: Outage) -> bool:
    """Return whether the nodes are lost already."""
    return all(virt_handlers.is_lost(one.loss.cluster, node) for node in one.nodes)


def _tail(found: Outages) -> Iterator[str]:
    if found.tried < found.total:
        yield f"Not every set of nodes was tried: {found.tried:,} of {found.total:,}."
    memory = found.capacity[MEMORY]
    if memory is not None:
        amount = f"at most {show(MEMORY, memory)} of memory" if memory > 0 else "nothing"
        short = f" ({show(MEMORY, -memory)} are short already)" if memory < 0 else ""
        past = len(found.outages) == 1 and _is_past(found.outages[0])
        when = "VMs of the lost nodes have no room" if past else _BEFORE
        yield f"Can still start before {when}: {amount}{short}."
    yield from not_available(found.unseen)
