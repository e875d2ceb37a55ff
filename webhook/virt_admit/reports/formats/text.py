"""For people, editors and terminals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from virt_admit.reports.report import Report, ReportRow, called
from virt_admit.rule import Action

Paint = Callable[[str, Action | None], str]
"""Colours a word by the action that it stands for."""


def render(report: Report, paint: Paint = lambda word, _action: word) -> str:
    """``file:line:column: action: path: message [rule]`` and a line for each fix; ``paint`` may colour the action."""
    out = []
    for line in _blindness_in_one(report.lines()):
        place = line.location
        where = f"{place.file}:{place.line}:{place.column}" if place else called(line.judged.obj)
        out.append(f"{where}: {paint(line.word, line.action)}: {line.text} [{line.rule}]\n")
        if line.remedy:
            out.append(f"    fix: {line.remedy}\n")
    return "".join(out)


def _blindness_in_one(lines: Iterable[ReportRow]) -> list[ReportRow]:
    """The lines with one for each object that says all that could not be seen of it, and by whom."""
    out: list[ReportRow] = []
    blind: dict[int, list[ReportRow]] = {}
    for line in lines:
        if not line.unseen:
            out.append(line)
        else:
            blind.setdefault(id(line.judged), []).append(line)
    for some in blind.values():
        rules = ", ".join(dict.fromkeys(line.rule for line in some))
        what = ", ".join(sorted({line.unseen for line in some}))
        out.append(dataclasses.replace(some[0], rule=rules, message=f"cannot tell without {what}", unseen=what))
    return sorted(out, key=lambda line: (*line.order[:1], bool(line.unseen), *line.order[1:]))
