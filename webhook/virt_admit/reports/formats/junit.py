"""JUnit XML, for the test pages of Jenkins, GitLab and others; valid by the schema of Jenkins' xUnit plugin.

A suite for each file, in it a test for each rule that was asked about each object. What a test says stands in one
element: some readers take only the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from virt_admit.documents.reader import DocumentError
from virt_admit.reports.formats.places import relative
from virt_admit.reports.report import ObjectResult, Report, ReportRow, called, rows_of
from virt_admit.rule import Action

CLUSTER: Final = "cluster"
"""The suite of what came from no file."""

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What no XML 1.0 document may hold, not even as a character reference."""

_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
_ESCAPED_SPACE: Final = str.maketrans({"\t": "&#9;", "\n": "&#10;"})
"""In attributes readers would make spaces of them."""


class Test(NamedTuple):
    """One test: what came of it, and what is said of it."""

    name: str
    where: str
    outcome: str = ""
    """failure, error or skipped; empty where it passed."""
    says: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else there is to say: it fails nobody."""


def render(report: Report) -> str:
    """The report as one ``testsuites`` element."""
    suites = [(name, [*tests]) for name, tests in groupby(sorted(_tests(report), key=_file), key=_file)]
    every = [test for _, tests in suites for _, test in tests]
    out = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="virt-admit"{_counts(every)}>']
    for name, tests in suites:
        of_suite = [test for _, test in tests]
        skipped = sum(test.outcome == "skipped" for test in of_suite)
        out.append(f'  <testsuite name={attribute(name)}{_counts(of_suite)} skipped="{skipped}">')
        out += map(_element, of_suite)
        out.append("  </testsuite>")
    return "\n".join((*out, "</testsuites>", ""))


def _file(named: tuple[str, Test]) -> str:
    return named[0]


def _counts(tests: Iterable[Test]) -> str:
    outcomes = [test.outcome for test in tests]
    failures, errors = outcomes.count("failure"), outcomes.count("error")
    return f' tests="{len(outcomes)}" failures="{failures}" errors="{errors}"'


def _tests(report: Report) -> Iterator[tuple[str, Test]]:
    """Every test with the suite that it belongs to."""
    for error in report.unread:
        yield relative(error.file), _unread(error)
    for judged in sorted(report.judged, key=lambda one: one.order):
        suite = relative(judged.document.file) if judged.document else CLUSTER
        for test in _of(judged):
            yield suite, test


def _unread(error: DocumentError) -> Test:
    where = relative(error.file)
    return Test("readable", where, "error", (str(error),))


def _of(judged: ObjectResult) -> Iterator[Test]:
    said: dict[str, list[ReportRow]] = {rule.id: [] for rule in judged.asked}
    for line in sorted(rows_of(judged), key=lambda each: each.order):
        said.setdefault(line.rule, []).append(line)
    for rule, lines in sorted(said.items()):
        yield _test(rule, called(judged.obj), lines)


def _test(rule: str, where: str, lines: Iterable[ReportRow]) -> Test:
    """The strongest of what a rule said of an object decides; the rest is noted."""
    texts: dict[str, list[str]] = {}
    for line in lines:
        texts.setdefault(_outcome(line), []).append(_text(line))
    outcome = min(texts, key=_STRONGEST.index, default="")
    says = texts.pop(outcome) if outcome else []
    return Test(rule, where, outcome, tuple(says), tuple(text for rest in texts.values() for text in rest))


_STRONGEST: Final = ("error", "failure", "", "skipped")


def _outcome(line: ReportRow) -> str:
    if line.error:
        return "error"
    if not line.action:
        return "skipped"
    return "failure" if line.action is Action.DENY else ""


def _text(line: ReportRow) -> str:
    place = line.location
    where = f"{relative(place.file)}:{place.line}:{place.column}: " if place else ""
    return f"{where}{line.word}: {line.advice}"


_TYPE: Final = {"error": "cannot tell", "failure": "deny", "skipped": "unseen or exempt"}


def _element(test: Test) -> str:
    head = f"    <testcase name={attribute(test.name)} classname={attribute(test.where)}"
    inside = []
    if test.outcome:
        message, text = attribute(test.says[0]), _content(test.says)
        inside.append(f'      <{test.outcome} type="{_TYPE[test.outcome]}" message={message}>{text}</{test.outcome}>')
    if test.notes:
        inside.append(f"      <system-out>{_content(test.notes)}</system-out>")
    return "\n".join((head + ">", *inside, "    </testcase>")) if inside else head + "/>"


def _content(texts: Iterable[str]) -> str:
    return _FORBIDDEN.sub("�", "\n".join(texts)).translate(_ESCAPES)


def attribute(text: str) -> str:
    """A text as the value of an attribute, in quotes."""
    return f'"{_content((text,)).translate(_ESCAPED_SPACE)}"'
