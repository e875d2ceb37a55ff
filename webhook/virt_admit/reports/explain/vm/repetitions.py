"""What the report about one VM leaves out, because it says the cause at a better place already."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.messages import capital
from virt_admit.reports.drain.words import LATER, in_words
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.explain.said_once import Said, once, without_remedy
from virt_admit.reports.explain.vm.report import VmReport
from virt_admit.reports.explain.vm.resting import START as _START
from virt_admit.reports.explain.vm.status_notes import FAILS, NO_NODE, PAUSED

EVENTS: Final = {
    "drain": "a drain of its node",
    "update": "an update of KubeVirt",
    "loss": "the loss of its node",
    "reboot": "a reboot of the guest",
    "migration": "a migration now",
}
"""The events, in words."""
ABOVE: Final = "see above"


def outcome(event: EventForecast, report: VmReport) -> str:
    """Return the words of what an event does, those of ``drain`` for a drain."""
    restarts = event.event is VmEvent.DRAIN and event.outcome == VmOutcome.RESTARTS
    return LATER if restarts and report.candidates == () else in_words(event.outcome)


def rests(report: VmReport) -> bool:
    """Return whether nothing happens to the VM as it does not run, for one reason."""
    return {(event.outcome, event.reason) for event in report.events} == {
        (EventEffect.NOT_RUNNING, report.events[0].reason)
    }


def is_stuck(report: VmReport) -> bool:
    """Whether a VM that starts waits for a change by an administrator."""
    if report.state != State.STARTING:
        return False
    remedy = report.events[0].remedy if rests(report) else report.drain.remedy
    return bool(remedy) and not remedy.startswith(("wait ", _START))


def starts_again(report: VmReport) -> bool:
    """Whether a VM whose guest has failed is about to start again."""
    failed = report.state == "stopped" and report.vm.phase == "Failed"
    return failed and report.vm.run_strategy in ("Always", "RerunOnFailure")


def causes(report: VmReport) -> tuple[Said, ...]:
    """Return the causes that events and volumes tell, each with the words that refer to it."""
    if rests(report):
        return (Said(ABOVE, report.events[0].reason),)
    told = (Said(f"as for {EVENTS[event.event]}", event.reason) for event in report.events)
    broken = (volume.problem for volume in report.volumes or () if volume.problem)
    volumes = (Said("see Volumes", problem) for problem in broken)
    return (*told, *volumes)


def rules(report: VmReport, todo: Sequence[str]) -> tuple[JudgedRule, ...] | None:
    """Return what the rules say, without the causes told above and the remedies told below."""
    if report.rules is None:
        return None
    said = causes(report)
    every = [replace(rule, message=_message(rule, report, said, todo)) for rule in report.rules]
    return tuple(rule for rule in every if not any(_is_longer(other, rule) for other in every))


def _is_longer(other: JudgedRule, rule: JudgedRule) -> bool:
    """Return whether a rule says the same of the VM or its VMI, where its path leaves more room."""
    begin = rule.message.rstrip(".")
    same = other.rule == rule.rule and other.object != rule.object
    return (
        same and other.message != rule.message and bool(begin) and other.message.startswith(begin)
    )


def _message(rule: JudgedRule, report: VmReport, said: Sequence[Said], todo: Sequence[str]) -> str:
    same = rule.problem is not None and rule.problem in report.drain.problems[:1]  # is to do
    if same and _tells(said[0].text, _SENTENCE_END.split(rule.message)[0]):
        what = rule.message.partition(": ")[0]
        is_whole = " " in what and len(what) < _BEGINNING and what.count("(") == what.count(")")
        return f"{what if is_whole else _SAME}: {said[0].reference}."
    words = once(without_remedy(rule.message, todo), said)
    alone = any(words.rstrip(".") == each.reference for each in said)
    return f"{_SAME}: {words}" if alone else words


_SAME: Final = "the same cause"
"""What stands before a reference that would be alone."""


_BEGINNING: Final = 80
"""Characters of the beginning of a message that says what the cause leads to."""
_SENTENCE_END: Final = re.compile(r"[.;] ")


def notes(report: VmReport, todo: Sequence[str]) -> tuple[str, ...]:
    """Return the notes without those that only repeat a cause or the words of a volume."""
    said = (*causes(report), *(Said("see To do", remedy) for remedy in todo))
    untold = (_untold(note, todo) for note in report.notes)
    return tuple(note for note in untold if not _repeats(note, report, said))


def _untold(note: str, todo: Sequence[str]) -> str:
    """Return the note about a paused guest without its remedy where that is to do."""
    ends = (f". {capital(remedy)}" for remedy in todo if note.startswith(PAUSED))
    return functools.reduce(str.removesuffix, ends, note)


def _repeats(note: str, report: VmReport, said: Sequence[Said]) -> bool:
    volumes = " ".join(volume.problem for volume in report.volumes or ())
    begin = note.partition(" (")[0]
    known = any(len(begin) > _SENTENCE and begin in each.text for each in said)
    if known or (note.partition(": ")[2] or note) in volumes:
        return True
    shorter = once(note, said)
    if shorter != note and len(_without_references(shorter, said)) < _REST:
        return True
    if rests(report) and note.removeprefix("data volume ") in report.events[0].reason:
        return True
    if not rests(report) or not report.events[0].remedy:
        return False
    if note.startswith(NO_NODE):  # the reasons of each node are in the report
        return report.candidates == ()
    why = report.events[0].reason
    if note.startswith(f"{FAILS}: ") and _BINDING in note and _PENDING in why:
        return True
    disk = _DATA_VOLUME.match(note)
    if disk is not None and f"disk {disk[1]} " in why:
        return True
    again = shorter != note and _tells(why, _without_references(shorter, said))
    return _tells(why, note) or again


_PENDING: Final = " is Pending: "
_BINDING: Final = "binding volumes: "
"""What kube-scheduler waits for until a claim is bound (plugins/volumebinding/binder.go)."""
_SENTENCE: Final = 30
_REST: Final = 60
"""Characters of a note that say nothing by themselves."""
_DATA_VOLUME: Final = re.compile(r"data volume (\S+) is ")
_COMMAND: Final = re.compile(r": (?:kubectl|virtctl|helm) .*")


def _without_references(note: str, said: Sequence[Said]) -> str:
    for each in said:
        note = note.replace(each.reference, "")
    return _COMMAND.sub("", note)


_NAME: Final = re.compile(r"[A-Za-z0-9][\w.=/-]*[A-Za-z0-9]")
_PARTS: Final = frozenset(("virt-controller", "virt-handler", "virt-api", "kube-scheduler"))
_POD: Final = "virt-launcher-"


def _tells(reason: str, words: str) -> bool:
    """Return whether a reason has all names that are in some words, and there are any."""
    names = tuple(_names(words))
    return bool(names) and all(name in reason for name in names)


def _names(text: str) -> Iterator[str]:
    """Yield the names of objects and words of an API: those with a mark,
    a digit or a capital inside.
    """
    for name in _NAME.findall(_COMMAND.sub("", text)):
        if (
            name in _PARTS
            or name.startswith(_POD)
            or name.isdigit()
            or name in ("KubeVirt", "VMI", "VM")
        ):
            continue
        if any(each in "-./=_" or each.isdigit() or each.isupper() for each in name[1:]):
            yield name


def is_told(name: str, report: VmReport) -> bool:
    """Return whether the reason why a VM does not run tells this."""
    return rests(report) and name in report.events[0].reason


def refusal_is_told(what: str, node: str, report: VmReport) -> bool:
    """Return whether the cause that keeps a VM from starting tells why a node does not take it."""
    unbound, missing = _UNBOUND.fullmatch(what), _MISSING.fullmatch(what)
    if unbound is not None:
        told = (f"disk {unbound[1]} ", f"claim {unbound[1]} is Pending")
        return any(is_told(each, report) for each in told)
    if network := networks.of_fault(what):  # no node lacks it more than another
        return is_told(network, report)
    return missing is not None and is_told(missing[1], report) and is_told(node, report)


_UNBOUND: Final = re.compile(r"claim (\S+) is not bound")
_MISSING: Final = re.compile(r"(\S+): (?:limit of \d+ reached, )?\S+ missing")
