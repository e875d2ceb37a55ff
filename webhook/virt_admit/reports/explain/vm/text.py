"""The report about one VM as text, for one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.failed_migrations import small_targets
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.drain.room.crowded_vms import TOLD
from virt_admit.forecasts.drain.starts.hotplug_phases import LACKS
from virt_admit.forecasts.drain.vm_events import NOT_RUNNING, EventEffect, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, VmOutcome
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.refusals import unserved_nodes
from virt_admit.model.kubernetes.kinds import by_resource
from virt_admit.model.kubevirt.instances.migration_failures import FailureClass
from virt_admit.model.messages import count, mentions, names, shorten, without_command
from virt_admit.model.sanitize import indented, name
from virt_admit.reports import remedy_steps
from virt_admit.reports.columns import table
from virt_admit.reports.drain.report import MissingOnNode
from virt_admit.reports.drain.words import down_until, next_step, state_words
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.judged_rules import ACTIONS, JudgedRule
from virt_admit.reports.explain.said_once import Said, once
from virt_admit.reports.explain.vm import repetitions, resting
from virt_admit.reports.explain.vm.repetitions import (
    EVENTS,
    is_stuck,
    refusal_is_told,
    rests,
    starts_again,
)
from virt_admit.reports.explain.vm.report import (
    BudgetOfVm,
    MigrationRecord,
    UpgradeOfVm,
    VmReport,
    VolumeOfVm,
)

UNKNOWN: Final = "cannot be determined"
_MOST_NODES: Final = 10
_SHORT: Final = 60
"""Characters of a reason that is repeated rather than referred to."""
_LONG: Final = 120
"""Characters of the refusal of a node that is not said a second time."""
_MOST_RULES: Final = 10
_ASKED_BY: Final = {"other": "a person or another program", "drain": "drain or eviction"}
"""Who asked for a migration, where text needs more words than JSON. A descheduler evicts too."""
BELOW: Final = "see below"
_TO_DO: Final = "see To do"
_AFTER: Final = "after the steps to do below"
"""They may end what keeps a VM, or lead around it. A setting never ends by itself."""
_ONCE: Final = f"once what keeps it has ended, {BELOW}"
STOPPED: Final = "stopped"
_SUBJECT: Final = "the VM "

Rows = Sequence[tuple[str, ...]]


def text(report: VmReport, unreadable: Collection[str] = ()) -> str:
    """Return the report as text: what the VM is, what would happen, and what decides on it."""
    remedies = todo(report)
    parts: tuple[tuple[str, Rows], ...] = (
        (headline(report), list(facts(report))),
        ("Why it does not run", [(why,)] if (why := _why_off(report)) else []),
        ("What would happen", [] if rests(report) else [row[:3] for row in events(report)]),
        (nodes_title(report), list(_nodes(report))),
        ("Last migrations", list(migrations(report.migrations))),
        ("Budgets that select its pod", list(budgets(report.budgets))),
        ("Volumes", list(volumes(report.volumes))),
        ("Parts of KubeVirt that a move needs", list(control(report))),
        ("Rules", list(rules(repetitions.rules(report, remedies)))),
    )
    lines = [line for title, rows in parts if rows for line in (name(title), *table(rows), "")]
    lines += titled("Notes", repetitions.notes(report, remedies))
    every = (line for each in remedies for line in remedy_steps.lines(each, after="  "))
    lines += titled("To do", every)
    lines += titled("Avoid", report.avoid)
    lines += titled("Commands", report.commands)
    lines += titled("Not available", rights.lines(report.unseen, unreadable))
    return "\n".join(map(indented, lines)).rstrip("\n") + "\n"


def nodes_title(report: VmReport) -> str:
    """Return the title of the nodes that do not take a VM."""
    runs = report.vm.node is not None and report.state != STOPPED
    return "Why not to other nodes" if runs else "Nodes that do not take it"


def titled(title: str, items: Iterable[str]) -> list[str]:
    """Return lines under a title; none without items."""
    found = list(items)
    return [title, *(f"  {item}" for item in found), ""] if found else []


def headline(report: VmReport) -> str:
    """Return the VM and where it is."""
    vm = report.vm
    word = "VM" if vm.kind == "VirtualMachine" else "VMI (without VM)"
    called = f"{word} {vm.namespace}/{vm.name}"
    if vm.running is None:
        return f"{called}: whether it runs {UNKNOWN}"
    if vm.node is None:
        status = f" ({vm.status})" if vm.status else ""
        if report.state == STOPPED:
            return f"{called}: not running{status}"
        return f"{called}: {vm.phase}, does not run yet"
    silent = (
        ", which does not report"
        if vm.node_lost
        else ", whose kubelet does not report"
        if vm.node_reports is False
        else ""
    )
    paused = f", but paused ({vm.paused})" if vm.paused else ""
    return f"{called}: {vm.phase} on {vm.node}{paused}{silent}"


def facts(report: VmReport) -> Iterator[tuple[str, str]]:
    """Yield what the VM is and does, with names."""
    yield "state", _state(report)
    if report.vm.kind == "VirtualMachine":
        yield "run strategy", report.vm.run_strategy or UNKNOWN
    yield "eviction strategy", _strategy(report)
    yield "can migrate", _migratable(report)
    if report.vm.node is None or report.state == STOPPED:
        yield "could start on", _start(report)
        return
    yield "cluster upgrade", _upgrade(report)
    yield "could go to", _others(report)
    yield "migration queue", _queue(report)


def _effect(report: VmReport, what: VmEvent) -> str:
    return next((event.outcome for event in report.events if event.event is what), "")


def _stays(report: VmReport) -> bool:
    """Whether a VM cannot leave its node now: a drain waits for it, and no migration helps."""
    starts = _effect(report, VmEvent.MIGRATION) == EventEffect.STARTS
    return _effect(report, VmEvent.DRAIN) == VmOutcome.BLOCKS and not starts


def _migratable(report: VmReport) -> str:
    """Return whether the VM can migrate.

    KubeVirt's condition does not know whether one succeeds.
    """
    if report.migratable is None:
        return UNKNOWN
    if not report.migratable:
        return "no"
    if rests(report):
        if _kept(report):
            return f"in principle, but it cannot start now: {_where(report)}"
        return "yes, once it runs"
    if never := next(filter(None, (event.never for event in report.events)), ""):
        return f"no, as {never}: {BELOW}"
    drain, asked = _effect(report, VmEvent.DRAIN), _effect(report, VmEvent.MIGRATION)
    if asked == EventEffect.STARTS or drain == VmOutcome.MIGRATES:
        return "yes"
    if _stays(report) or asked in (EventEffect.REFUSED, EventEffect.FAILS):
        nowhere = "not now, as no other node takes it"
        return f"{nowhere if report.candidates == () else 'in principle, but not now'}: {BELOW}"
    unknown = drain == VmOutcome.UNKNOWN or asked == EventEffect.UNKNOWN
    return f"in principle; whether now, cannot be determined: {BELOW}" if unknown else "yes"


def _kept(report: VmReport) -> bool:
    """Whether something is known to keep a VM that does not run from its start."""
    return resting.is_kept(report.events)


def _where(report: VmReport) -> str:
    return BELOW if _why_off(report) or any(_nodes(report)) else _TO_DO


def _start(report: VmReport) -> str:
    kept, where = _kept(report), _where(report)
    if kept and report.candidates:
        return f"{names(report.candidates)}, {_ONCE if _only_looks(report) else _AFTER}"
    told = not report.short or not all(_untold(each, report) for each in report.short)
    told = told if kept else any(not _untold(each, report) for each in report.short or ())
    waits = report.candidates == () and told and (kept or bool(_why_off(report)))
    if waits and (later := names(_waiting(report))):
        return f"{later}, {_AFTER if kept and not _only_looks(report) else _ONCE}"
    return f"no node now, {where}" if waits else _named(report.candidates, "no node")


def _waiting(report: VmReport) -> Iterator[str]:
    """Yield the nodes that refuse a VM for nothing but a claim that is told above."""
    for each in report.short or ():
        reasons = each.what.split("; ")
        if not _untold(each, report) and all(what.startswith("claim ") for what in reasons):
            yield each.node


def _only_looks(report: VmReport) -> bool:
    """Whether what is to be done only shows more of the cause, which no step ends."""
    remedies = [event.remedy for event in report.events if event.remedy]
    return bool(remedies) and all(each.lower().startswith("see ") for each in remedies)


def _others(report: VmReport) -> str:
    if not _stays(report):
        restarts = ", by a restart" if report.migratable is False and report.candidates else ""
        return f"{_named(report.candidates, 'no other node')}{restarts}"
    if report.migratable is False:
        return "no other node, as it cannot migrate"
    if not report.candidates:
        opened = names(_uncordoned(report))
        return f"{opened}, {_AFTER}" if opened else _named(report.candidates, "no other node")
    if report.vm.phase == "Running":
        asked = (VmEvent.DRAIN, VmEvent.MIGRATION)
        steps = any(event.remedy for event in report.events if event.event in asked)
        return f"{names(report.candidates)}, {_AFTER if steps else _ONCE}"
    return f"no other node before its guest runs; then {names(report.candidates)}"


def _uncordoned(report: VmReport) -> Iterator[str]:
    """Yield the nodes that would take a VM once a remedy of the report has uncordoned them."""
    remedies = [event.remedy for event in report.events]
    for refusal in report.short or () if report.candidates == () else ():
        step = f"uncordon {refusal.node}"
        if refusal.what == "cordoned" and any(step in remedy for remedy in remedies):
            yield refusal.node


def _state(report: VmReport) -> str:
    if report.state is None:
        return UNKNOWN
    drain = report.drain
    since = f" since {drain.since}" if drain.since else ""
    until = f", {next_step(report.state)} at {drain.until}" if drain.until else ""
    attempts = f", {count(drain.attempts, 'failed attempt')}" if drain.attempts else ""
    fails = " without success" if _kept(report) else ""
    again = f", KubeVirt starts it again{fails}" if starts_again(report) else ""
    words = "does not run" if report.state == STOPPED else state_words(report.state, drain.flags)
    if is_stuck(report):
        words = "starts without success"
    lacking = sum(each.problem.startswith(LACKS) for each in report.volumes or ())
    lacks = f"; its guest lacks {count(lacking, 'disk')}, see Volumes" if lacking else ""
    return f"{words}{again}{since}{until}{attempts}{lacks}"


def _strategy(report: VmReport) -> str:
    if report.strategy is None:
        return UNKNOWN
    return f"{report.strategy or '(empty)'}, set by {report.strategy_from}"


def _upgrade(report: VmReport) -> str:
    upgrade = report.upgrade
    if upgrade.stops:
        drain = Said(f"as for {EVENTS[VmEvent.DRAIN]}", report.drain.reason)
        own = upgrade.stops[0].removeprefix(f"{report.vm.namespace}/{report.vm.name}: ")
        said = f"this VM stops it: {once(own, (drain,))}"
        return said.replace(f": {drain.reference}", f", {drain.reference}")
    blocks = _effect(report, VmEvent.DRAIN) == VmOutcome.BLOCKS or TOLD in report.drain.reason
    is_named = mentions(upgrade.because or "", f"{report.vm.namespace}/{report.vm.name}")
    others = "" if is_named else ", but not because of this VM"
    why = "; this VM blocks the drain of its node too" if blocks else others
    why += f": {shorten(upgrade.because, 160)}" if upgrade.because and not blocks else ""
    possible = {True: "possible", False: f"not possible{why}", None: f"{UNKNOWN} as a whole"}
    moves = f", {_moves(upgrade)}" if upgrade.possible and upgrade.moves is not None else ""
    return f"{possible[upgrade.possible]}{moves}"


def _moves(found: UpgradeOfVm) -> str:
    if found.shutdowns and found.outcome not in SHUT_DOWN:
        return "and this VM may be lost with its node when the time of its drain ends"
    what = "restart" if found.outcome == VmOutcome.RESTARTS else "move"
    if found.moves:
        return f"with {count(found.moves, what)} of this VM"
    if found.shutdowns:
        return f"and the VM is {down_until(found.outcome, found.unless)}"
    return "and the VM stays on its node"


def _named(nodes: tuple[str, ...] | None, none: str) -> str:
    return UNKNOWN if nodes is None else names(nodes) or none


def _queue(report: VmReport) -> str:
    queue = report.queue
    if queue is None:
        return UNKNOWN
    if not queue.waits:
        return "it does not wait for a place"
    others = f" with {count(queue.others, 'other VM')}" if queue.others else ""
    if any(queue.limit and queue.limit in event.reason for event in report.events):
        return f"waits for a place{others}, as below"
    return f"waits for a place{others}: {queue.limit}; held by {names(queue.holders)}"


def _why_off(report: VmReport) -> str:
    """Return why a VM does not run; empty: it does, or nothing is known but that."""
    reason = report.events[0].reason
    return reason if rests(report) and reason != NOT_RUNNING else ""


def events(report: VmReport) -> Iterator[tuple[str, str, str, str]]:
    """Yield each event with its outcome, reason and remedy.

    What several have in common is said once.
    """
    said: list[Said] = []
    for event in report.events:
        told = Said(f"as for {EVENTS[event.event]}", event.reason)
        reason = once(event.reason, said)
        again = any(reason == each.reference for each in said)
        word = repetitions.outcome(event, report)
        yield EVENTS[event.event], word, reason, "" if again else event.remedy
        said.append(told)


def todo(report: VmReport) -> tuple[str, ...]:
    """Return the remedies of all events and parts, each once:
    the longest that begins with the same words.

    What only a loss of its node needs says so, unless that is lost already.
    """
    control = (part.remedy for part in report.control or () if part.healthy is not True)
    found: dict[str, str] = {}
    # what does not work now goes before what would not
    now, lost = [volume.remedy for volume in report.volumes or ()], report.vm.node_lost
    at_once = (each for each in report.events if lost or each.event is not VmEvent.LOSS)
    now += [event.remedy for event in at_once]
    now.sort(key=lambda remedy: not remedy.startswith(changed_disks.DO_NOT))
    later = [event.remedy for event in report.events if event.remedy and event.remedy not in now]
    said = [Said(repetitions.ABOVE, remedy) for remedy in now]
    only_then = (once(remedy, said) for remedy in later)
    lost_node = (
        f"for the loss of its node: {step}" for step in only_then if step != repetitions.ABOVE
    )
    for remedy in filter(None, (*now, *lost_node, *control)):
        plain = without_command(remedy).replace("; or ", ", or ")  # as it is without a command
        words = plain.partition(": ")[0].rstrip(".").lower()
        found[words] = max(found.get(words, ""), remedy, key=len)
    return tuple(
        remedy
        for words, remedy in found.items()
        if not any(other != words and other.startswith(words) for other in found)
    )


def _nodes(report: VmReport) -> Iterator[tuple[str, str]]:
    """Yield why nodes do not take the VM, those with the same reasons in one row."""
    by_reason: dict[str, list[str]] = {}
    for refusal in report.short or ():
        what = _untold(refusal, report)
        if not what:
            continue
        by_reason.setdefault(_unless_failed(what, report), []).append(refusal.node)
    told = repetitions.causes(report)
    rows = [
        (names(nodes), virt_handlers.needs(once(what, told) if len(what) > _LONG else what))
        for what, nodes in by_reason.items()
    ]
    yield from rows[:_MOST_NODES]
    if len(rows) > _MOST_NODES:
        yield f"and {sum(map(len, list(by_reason.values())[_MOST_NODES:]))} more", "see -o json"


def _untold(refusal: MissingOnNode, report: VmReport) -> str:
    """Return why a node does not take the VM, without what the report tells above."""
    node, reasons = refusal.node, unserved_nodes.without_effects(refusal.what).split("; ")
    return "; ".join(each for each in reasons if not refusal_is_told(each, node, report))


def _unless_failed(what: str, report: VmReport) -> str:
    """Return why a node does not take the VM without the words of a failure,
    which stand with its migration.
    """
    failures = ((each.name, each.failure.text) for each in report.migrations or () if each.failure)
    said = ((name, text) for name, text in failures if text and len(text) > _SHORT and text in what)
    name, text = next(said, ("", ""))
    return what.replace(text, f"see {name}") if text else what


def migrations(found: tuple[MigrationRecord, ...] | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each migration."""
    if found is None:
        yield (UNKNOWN,)
        return
    said: dict[str, str] = {}
    for each in found:
        ways = f"{each.source or '?'} to {each.target or '?'}"
        none = "no target yet" if each.phase == "Pending" else "target not known"
        way = ways if each.source or each.target else none
        took = ", ".join(f"{some.phase} {some.seconds} s" for some in each.phases if some.seconds)
        why = (each.failure.text if each.failure else "") or "no reason given"
        where = "" if small_targets.is_of_size((why,)) else " between these nodes"
        first = said.setdefault(why, each.name)
        why = f"as {first}" if first != each.name and len(why) > _SHORT else why
        pair = each.failure and each.failure.class_ == FailureClass.PAIR
        again = f"fails again{where}: " if pair else ""
        failed = f"{again}{why}" if each.failure else ""
        by = _ASKED_BY.get(each.asked_by, each.asked_by)
        what = "; ".join(filter(None, (failed, took)))
        yield each.created or "?", each.name, each.phase, way, by, what


def budgets(found: tuple[BudgetOfVm, ...] | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each budget."""
    if found is None:
        yield (UNKNOWN,)
        return
    for budget in found:
        allowed = UNKNOWN if budget.allowed is None else str(budget.allowed)
        effect = "blocks" if budget.blocks else ""
        yield f"{budget.namespace}/{budget.name}", f"disruptions allowed: {allowed}", effect


def volumes(found: tuple[VolumeOfVm, ...] | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each volume."""
    if found is None:
        yield (UNKNOWN,)
        return
    for volume in found:
        yield volume.name, volume.kind, *_claim(volume)


def _claim(volume: VolumeOfVm) -> tuple[str, str]:
    if volume.claim is None:
        return "", ""
    if volume.access_modes is None:
        return volume.claim, volume.problem or UNKNOWN
    storage = " ".join(filter(None, (volume.phase, *volume.access_modes, volume.storage_class)))
    unbound = f"claim {volume.claim} is not bound"
    problem = "; ".join(
        each for each in volume.problem.split("; ") if each != unbound or volume.phase != "Pending"
    )
    copied = f", not complete: the guest runs on {volume.copied_from}" if volume.copied_from else ""
    return volume.claim, f"{storage}{copied}{f': {problem}' if problem else ''}"


def control(report: VmReport) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each part of KubeVirt that a move needs."""
    for part in report.control or ():
        word = {True: "works", False: "does not work", None: UNKNOWN}[part.healthy]
        yield part.component, word, once(part.reason, repetitions.causes(report))


def rules(judged: tuple[JudgedRule, ...] | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each finding, the strongest first,
    and one for the rules that could not read their data.
    """
    if judged is None:
        yield (UNKNOWN,)
        return
    judgeable = (rule for rule in judged if rule.unseen is None)
    found = sorted(judgeable, key=lambda rule: ACTIONS.index(rule.action))
    by_words: dict[tuple[str, str, str], tuple[str, str, str]] = {}
    for action, rule, words in map(
        _rule, found
    ):  # a VM and its VMI have many findings in common, by length with a subject
        by_words.setdefault((action, rule, words.removeprefix(_SUBJECT)), (action, rule, words))
    rows = list(by_words.values())
    yield from rows[:_MOST_RULES]
    if len(rows) > _MOST_RULES:
        yield "", f"and {len(rows) - _MOST_RULES} more", "see -o json"
    unread = Counter(_resource(rule.unseen) for rule in judged if rule.unseen is not None)
    if unread:
        yield "", UNKNOWN, f"{count(unread.total(), 'rule')} cannot judge without {names(unread)}"


def _rule(rule: JudgedRule) -> tuple[str, str, str]:
    exempt = f" (exempt: {rule.exempted})" if rule.exempted else ""
    return rule.action, rule.rule, f"{rule.message}{exempt} [{rule.layer}]"


def _resource(what: str) -> str:
    """Return the kind of what could not be read, without the name of the object."""
    resource = what.partition(" ")[0]
    return resource if by_resource(resource) is not None else what
