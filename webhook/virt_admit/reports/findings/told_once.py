"""One row of a scan for what several say: the same remedy, a VM and its VMI, a VM that cannot run.

The other rows are named in it, and ``--all-lines`` and JSON have all of them. What a row is about,
its rule declares: ``urgency``, ``effect`` and ``drain_advice`` of ``RuleOptions``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import mentions
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import ReportRow, where
from virt_admit.rule import Action, DrainAdvice, Urgency


def told_once(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows, the most urgent first, without those that repeat what another row says.

    A row that stands for others is where the first of them was.
    """
    return _by_strategy(
        _by_object(_by_remedy(_without_advice(_by_owner(sorted(rows, key=_urgency)))))
    )


def _urgency(row: ReportRow) -> int:
    """Return the place of a row: down now, does not go on, a warning, advice, not read."""
    if row.location is not None or row.action is Action.DENY:
        return 0
    if row.action is None or row.action is Action.OFF:
        return 2 if row.error else 4
    if _fails_now(row):
        return row.declared.urgency
    return 2 if row.action is Action.WARN or row.fixed else 3


def _fails_now(row: ReportRow) -> bool:
    return row.declared.urgency < Urgency.LATER


_READS: Final = (
    *("kubectl edit ", "kubectl get ", "kubectl describe ", "kubectl logs ", "kubectl exec "),
    "virtctl ",
)
"""Commands that several causes may share: they show an object, or have it edited or restarted."""
_SHARED: Final = 40
"""Characters that messages about one cause have in common.

That is the cause itself, which rules take from one function.
"""
_SHARED_OF_OBJECT: Final = 60
"""The same of two rules about one object, whose own words may be alike."""
_SEE: Final = "virt-admit explain "
_SHARED_WITHOUT_COMMAND: Final = 120
"""The same of rules about objects of two kinds, of which ``explain`` has the remedy."""
_MOST: Final = 8
"""Causes with the same command that a row is compared with."""


def _by_owner(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows without those that repeat what the same rule says of the object that writes
    theirs: of VMIs, and of the KubeVirt object of HyperConverged.
    """
    own = (row for row in rows if row.result.obj.kind in _WRITERS and _counts(row))
    owners = {(row.result.obj.kind, *_vm(row), row.rule, _problem(row)): row for row in own}
    groups: dict[int, list[ReportRow]] = {}
    for row in rows:
        for kind, name in _writer(row.result.obj):
            place = kind, row.result.cluster, row.result.obj.namespace, name
            first = owners.get((*place, row.rule, _problem(row)))
            if first is not None and first.word == row.word:
                groups.setdefault(id(first), [first]).append(row)
    return _joined(rows, groups.values())


_WRITERS: Final = frozenset((VM.kind, HCO.kind))
_SETTINGS: Final = frozenset((KUBEVIRT.kind, HCO.kind))
_OF_HCO: Final = "kubevirt-"
"""How HyperConverged names its KubeVirt object, before its own name
(kubevirt/hyperconverged-cluster-operator:
controllers/handlers/kubevirt.go#NewKubeVirtWithNameOnly).
"""


def _writer(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of an object that may write another one."""
    if obj.kind == VMI.kind:
        yield VM.kind, obj.name
    elif obj.kind == KUBEVIRT.kind:
        written = obj.name.removeprefix(_OF_HCO) if obj.name.startswith(_OF_HCO) else ""
        yield from ((HCO.kind, name) for name in (vmis.owner(obj, HCO.kind), written) if name)


def _problem(row: ReportRow) -> str:
    """Return what is compared: without the remedy of a setting, whose field has two names."""
    told = row.message
    return told.partition(". ")[0] if row.result.obj.kind in _SETTINGS else told


def _by_remedy(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return one row for all with the same command and cause.

    Rows with the same change of an object are repaired by it together. Several causes may ask for
    a look at an object, or an edit: then the messages have to name the same one.
    """
    by_command: dict[Hashable, list[list[ReportRow]]] = {}
    for row in rows:
        told = command(row) if _counts(row) else ""
        if not told or (told.startswith("virt-admit ") and not told.startswith(_SEE)):
            continue
        told = _SEE if told.startswith(_SEE) else told  # of each object another one
        groups = by_command.setdefault((row.result.cluster, told), [])
        known = (each for each in groups[:_MOST] if _is_one(each[0], row, told))
        same = next(known, None)
        if same is None:
            groups.append([row])
        else:
            same.append(row)
    return _joined(rows, [group for groups in by_command.values() for group in groups])


def _is_one(one: ReportRow, other: ReportRow, told: str) -> bool:
    """Return whether rows with one command have one cause.

    Rows of one rule about one object are about different places of it. What a drain would do does
    not say that one waits.
    """
    both = (one.declared, other.declared)
    if any(each.effect for each in both) and any(each.drain_advice for each in both):
        return False
    if told is _SEE:
        differ = one.result.obj.kind != other.result.obj.kind
        return differ and _is_same(one, other, _SHARED_WITHOUT_COMMAND)
    if told.startswith(_READS):
        return _is_same(one, other, _SHARED)
    return (one.rule, *_vm(one)) != (other.rule, *_vm(other))


def _by_object(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows without those that repeat why something fails now with the same object."""
    failing = {_vm(row): [row] for row in reversed(rows) if _fails_now(row) and _counts(row)}
    for row in rows:
        if row.declared.drain_advice:  # they have a remedy of their own, and are numerous
            continue
        group = failing.get(_vm(row), [row])
        if group[0] is not row and _counts(row) and _is_same(group[0], row, _SHARED_OF_OBJECT):
            group.append(row)
    return _joined(rows, failing.values())


def _is_same(one: ReportRow, other: ReportRow, size: int) -> bool:
    """Return whether the messages of two rules have so many characters in common, with a name.

    Rows of one rule have the same words for different causes.
    """
    if one.rule == other.rule:
        return False
    return not _phrases(one.message, size).isdisjoint(_phrases(other.message, size))


def _phrases(message: str, size: int) -> set[str]:
    """Return from each word on the words with so many characters, if a name or number is one."""
    words = [word.strip(".,:;()") for word in message.split()]
    found: set[str] = set()
    for first in range(len(words)):
        text = ""
        for word in words[first:]:
            text = f"{text} {word}"
            if len(text) > size:
                if _NAME.search(text):
                    found.add(text)
                break
    return found


_NAME: Final = re.compile(r"\d|[a-z][-/][a-z]")
"""What names of objects have, and words of a sentence seldom."""


def _without_advice(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows without advice about drains of VMs that are down, which names its rules."""
    down = {_vm(row): row for row in reversed(rows) if _is_down_vm(row)}
    later: dict[int, list[ReportRow]] = {}
    for row in rows:
        cause = down.get(_vm(row)) if row.result.obj.kind in _KINDS else None
        if cause is not None and (_is_advice(row) or _is_cause(row.unseen, cause)):
            later.setdefault(id(cause), []).append(row)
    dropped = {id(row) for group in later.values() for row in group}
    return [_later(row, later.get(id(row), ())) for row in rows if id(row) not in dropped]


def _is_down_vm(row: ReportRow) -> bool:
    kind, urgency = row.result.obj.kind, row.declared.urgency
    return kind == VM.kind and urgency is Urgency.DOWN and _counts(row)


def _is_advice(row: ReportRow) -> bool:
    return bool(row.declared.drain_advice) and _counts(row) and row.action is not Action.DENY


def _is_cause(unseen: str, cause: ReportRow) -> bool:
    """Return whether a row names the object that could not be read."""
    missing = _OBJECT.search(unseen)
    return missing is not None and mentions(cause.message, missing[1])


_OBJECT: Final = re.compile(r"[a-z]+\.[a-z.]+ (?:[^ /]+/)?([^ ,]+)")
"""How missing data is named: ``plural.group namespace/name``."""


def _later(row: ReportRow, advice: Sequence[ReportRow]) -> ReportRow:
    return row._replace(later=tuple(dict.fromkeys(each.rule for each in advice if not each.unseen)))


def _by_strategy(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows with one about the eviction strategy of each VM, and no further audits."""
    strategies: dict[Hashable, list[ReportRow]] = {}
    for row in rows:
        if row.declared.drain_advice > DrainAdvice.LOSS and _counts(row):
            strategies.setdefault(_vm(row), []).append(row)
    return _joined(rows, map(_of_strategy, strategies.values()))


def _of_strategy(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the row that says most, with the audits of other rules."""
    first = max(rows, key=lambda row: (row.action or Action.OFF, row.declared.drain_advice))
    return [first, *(row for row in rows if row.action is Action.AUDIT and row.rule != first.rule)]


_KINDS: Final = frozenset((VM.kind, VMI.kind))


def _vm(row: ReportRow) -> tuple[str, str | None, str | None]:
    """Return the cluster and name of a VM, which its VMI has too."""
    return row.result.cluster, row.result.obj.namespace, row.result.obj.name


def _counts(row: ReportRow) -> bool:
    """Return whether a row is a finding about an object of a cluster, which has a name."""
    found = row.action not in (None, Action.OFF) and not row.fixed
    return found and row.location is None and bool(row.result.obj.name)


def _joined(rows: Sequence[ReportRow], groups: Iterable[Sequence[ReportRow]]) -> list[ReportRow]:
    """Return the rows, with the strictest of each group in the place of its first one."""
    place: dict[int, ReportRow | None] = {}
    order = {id(row): index for index, row in enumerate(rows)}
    for group in groups:
        if len(group) < 2:
            continue
        first = max(group, key=lambda row: (row.action or Action.OFF, not row.declared.effect))
        rest = [row for row in group if row is not first]
        alike = [row for row in rest if _is_alike(row, first)]
        others = [name for row in rest if not _is_alike(row, first) for name in _names(row, first)]
        same = [name for row in alike for name in (row.result.called, *row.alike)]
        place |= dict.fromkeys(map(id, group))
        place[min(map(id, group), key=lambda each: order[each])] = first._replace(
            others=tuple(dict.fromkeys((*first.others, *others))),
            alike=tuple(dict.fromkeys((*first.alike, *same))),
        )
    found = (place.get(id(row), row) for row in rows)
    return [row for row in found if row is not None]


def _is_alike(row: ReportRow, first: ReportRow) -> bool:
    """Return whether a row says what the first one says, about another object of its kind."""
    kinds = row.result.obj.kind == first.result.obj.kind
    return kinds and row.rule == first.rule and row.result.called != first.result.called


def _names(row: ReportRow, first: ReportRow) -> tuple[str, ...]:
    """Return the names of a row's object and rule, and those that it stands for."""
    return (where(row, first), *row.others, *row.alike)
