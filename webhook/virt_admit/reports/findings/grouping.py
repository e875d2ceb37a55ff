"""Findings grouped by problem: what several rules, objects and places show is one row.

Rows with the same problem id are one. A rule that finds the same in several places of an object is
one row, and so is a rule that says the same about several objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from virt_admit.model.kubernetes.kinds import POOL, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count, names
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.report import Report, ReportRow, where
from virt_admit.rule import Action

_Key = Callable[[ReportRow], Hashable]


def merge(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return one row for each object and cause: class, rule and path without indices.

    The row names the other places.
    """
    return [_merged(group) for group in _groups(rows, _place)]


def _place(row: ReportRow) -> Hashable:
    return id(row.result), row.word, row.rule, row.path.without_indices


def problems(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return one row for each problem: what fails in a cluster now, then warnings, then advice.

    The strictest row of a problem stands for it and names what else shows it. Rows of a rule with
    the same text, but for the name of their object, are one row that names the objects.
    """
    # check of files groups nothing
    from virt_admit.reports.findings.told_once import told_once  # noqa: PLC0415

    shown = told_once(_by_template(by_problem(rows)))
    groups = _groups(shown, _text)
    sizes = ((group, 2 if group[0].rule in _FEW else _MANY) for group in groups)
    alike = {id(group[0]): group for group, least in sizes if len(group) >= least}
    repeated = {id(row) for group in alike.values() for row in group[1:]}
    return [_of_objects(alike.get(id(row), [row])) for row in shown if id(row) not in repeated]


def by_problem(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return one row for each problem id, and for each object and cause without one."""
    return [_of_problem(group) for group in _groups(merge(rows), _problem)]


def _by_template(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows without those of VMs that only repeat what a rule says about their pool,
    which the pool's row names.
    """
    of_pools = (row for row in rows if row.result.obj.kind == POOL.kind)
    pools = {_of_template(row.result.obj, row): row for row in of_pools}
    repeats: dict[int, list[ReportRow]] = {}
    for row in rows:
        owner = row.result.obj.controller if row.result.obj.kind == VM.kind and pools else None
        pool = (
            pools.get((row.result.cluster, row.result.obj.namespace, owner["name"].text, row.rule))
            if owner
            else None
        )
        if (
            pool is not None
            and owner is not None
            and owner["kind"].text == POOL.kind
            and pool.word == row.word
        ):
            repeats.setdefault(id(pool), []).append(row)
    dropped = {id(row) for group in repeats.values() for row in group}
    found = []
    for row in rows:
        own = tuple(where(each, row) for each in repeats.get(id(row), ()))
        found += [row._replace(others=(*row.others, *own))] if id(row) not in dropped else []
    return found


def _of_template(obj: Object, row: ReportRow) -> tuple[str, str, str | None, str]:
    return row.result.cluster, obj.namespace, obj.name, row.rule


_VMS_COUNTED: Final = frozenset(("node-agent-taint-left", "node-without-health-check"))
"""Rules that say the same about most nodes of a cluster, with the number of VMs."""
_FEW: Final = _VMS_COUNTED | {
    "vm-eviction-strategy-default",
    "vm-network-missing",
    "vm-rerun-on-failure-drain-stop",
    "vm-run-strategy-no-recovery",
    "vm-shutdown-on-drain",
    "vm-single-candidate-node",
    "vm-start-stuck",
}
"""Rules that often say the same about several objects, so that two lines are enough to be one."""
_MANY: Final = 3
"""Equal lines about this many objects are one."""


def _groups(rows: Iterable[ReportRow], key: _Key) -> Iterable[list[ReportRow]]:
    groups: dict[Hashable, list[ReportRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups.values()


def _problem(row: ReportRow) -> Hashable:
    alone = row.problem is None or row.action is Action.OFF
    return id(row) if alone else (row.result.cluster, row.problem)


def _text(row: ReportRow) -> Hashable:
    obj = row.result.obj
    if row.location is not None or not obj.name:
        return id(row)
    counted = row.rule in _VMS_COUNTED
    # a list of nodes names the object as one of them: the others have the same list
    own = len(obj.name) > _SHORTEST and not (counted and _is_listed(obj.name, row.text))
    text = row.text.replace(obj.name, "\0") if own else row.text
    text = _VMS.sub("VMs", text) if counted else text
    return row.result.cluster, obj.kind, row.word, row.rule, text, row.remedy


def _is_listed(name: str, text: str) -> bool:
    return any(name in found[1:-1].split(", ") for found in _LIST.findall(text))


_LIST: Final = re.compile(r"\((?:[\w.-]+, )+[\w.-]+\)")
_VMS: Final = re.compile(r"\b(\d+ of )?\d+ VMs?\b")
"""How a rule counts the VMs of an object, all or some of them, which may differ."""
_SHORTEST: Final = 3
"""A name of so few characters may occur in any text."""


def _of_problem(group: list[ReportRow]) -> ReportRow:
    """Return the strictest row, with the other rules and objects that show the same."""
    first = max(group, key=lambda row: row.action or Action.OFF)
    others = dict.fromkeys(where(row, first) for row in group if row is not first)
    return first._replace(others=tuple(others))


def _of_objects(group: list[ReportRow]) -> ReportRow:
    first, *others = group
    if not others:
        return first
    message = first.message
    if first.rule in _VMS_COUNTED:
        some = any(found[1] for row in group for found in _VMS.finditer(row.message))
        message = _VMS.sub("some VMs on it" if some else "VMs on it", message)
    alike = tuple(each for row in others for each in (row.result.called, *row.alike))
    return first._replace(alike=(*first.alike, *alike), message=message)


def called(row: ReportRow) -> str:
    """Return the name of the object of a row, and the number of the others:
    ``Node/a and 249 more``.
    """
    return f"{row.result.called} and {len(row.alike)} more" if row.alike else row.result.called


def also(row: ReportRow) -> str:
    """Return what else the row stands for: objects, places and rules; empty: nothing."""
    return line(names((*row.others, *row.alike), 240))


def later(row: ReportRow) -> str:
    """Return the rules with advice about a VM that cannot run yet; empty: none."""
    return line(names(row.later))


def _merged(group: list[ReportRow]) -> ReportRow:
    first, *others = group
    if not others:
        return first
    paths = dict.fromkeys(str(row.path) for row in others)
    places = names(path for path in paths if path != str(first.path))
    more = f" (also {places})" if places else ""
    fixes = tuple(dict.fromkeys(step for row in group for step in row.fix))
    return first._replace(message=f"{first.message}{more}", fix=fixes)


def counts(report: Report) -> dict[str, int]:
    """Return the numbers of objects by the strictest class: denied, warned, audited."""
    strictest: dict[int, Action] = {}
    for row in report.rows():
        if row.action is not None:
            strictest[id(row.result)] = max(row.action, strictest.get(id(row.result), Action.OFF))
    found = list(strictest.values())
    return {
        "denied": found.count(Action.DENY),
        "warned": found.count(Action.WARN),
        "audited": found.count(Action.AUDIT),
    }


def counted(report: Report) -> str:
    """Return the counts as one line: ``1 denied, 2 warned, 0 only audited of 12 objects``."""
    found = counts(report)
    return (
        f"{found['denied']} denied, {found['warned']} warned, {found['audited']} only audited of "
        f"{count(len(report.results), 'object')}"
    )
