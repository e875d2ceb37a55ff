"""JUnit XML, for the test pages of Jenkins, GitLab and others;
valid by the schema of Jenkins' xUnit plugin.

A suite for each file, with a test for each rule and object. The messages of a test are in one
element, because some readers use only the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from virt_admit.documents.reader import DocumentError
from virt_admit.model.sanitize import line, name
from virt_admit.reports.findings.places import relative
from virt_admit.reports.findings.report import ObjectResult, Report, ReportRow, rows_of
from virt_admit.rule import Action

CLUSTER: Final = "cluster"
"""The suite of objects that are not from a file."""

_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
)
_ESCAPED_SPACE: Final = str.maketrans({"\t": "&#9;", "\n": "&#10;"})
"""Readers replace these characters in attributes by spaces."""


class TestCase(NamedTuple):
    """One test with its outcome and messages."""

    name: str
    where: str
    outcome: str = ""
    """failure, error or skipped; empty where it passed."""
    messages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Further messages that do not make it fail."""


def render(report: Report) -> str:
    """Return the report as one ``testsuites`` element."""
    ordered = sorted(_tests(report), key=_file)
    suites = [(file, [*tests]) for file, tests in groupby(ordered, key=_file)]
    every = [test for _, tests in suites for _, test in tests]
    root = f'<testsuites name="virt-admit"{_counts(every)}>'
    out = ['<?xml version="1.0" encoding="UTF-8"?>', root]
    for file, tests in suites:
        of_suite = [test for _, test in tests]
        skipped = sum(test.outcome == "skipped" for test in of_suite)
        out.append(f'  <testsuite name={attribute(file)}{_counts(of_suite)} skipped="{skipped}">')
        out += map(_element, of_suite)
        out.append("  </testsuite>")
    return "\n".join((*out, "</testsuites>", ""))


def _file(named: tuple[str, TestCase]) -> str:
    return named[0]


def _counts(tests: Iterable[TestCase]) -> str:
    outcomes = [test.outcome for test in tests]
    failures, errors = outcomes.count("failure"), outcomes.count("error")
    return f' tests="{len(outcomes)}" failures="{failures}" errors="{errors}"'


def _tests(report: Report) -> Iterator[tuple[str, TestCase]]:
    """Yield every test with the name of its suite."""
    for error in report.unreadable:
        yield name(relative(error.file)), _unreadable(error)
    for result in sorted(report.results, key=lambda result: result.order):
        suite = name(relative(result.document.file)) if result.document else CLUSTER
        for test in _tests_of(result):
            yield suite, test


def _unreadable(error: DocumentError) -> TestCase:
    where = name(relative(error.file))
    return TestCase("readable", where, "error", (str(error),))


def _tests_of(result: ObjectResult) -> Iterator[TestCase]:
    by_rule: dict[str, list[ReportRow]] = {rule.id: [] for rule in result.response.evaluated_rules}
    for row in sorted(rows_of(result), key=lambda row: row.order):
        by_rule.setdefault(row.rule, []).append(row)
    for rule, rows in sorted(by_rule.items()):
        yield _test(rule, result.called, rows)


def _test(rule: str, where: str, rows: Iterable[ReportRow]) -> TestCase:
    """Return the test of a rule on an object.

    The worst row is its outcome, the others are notes.
    """
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(_outcome(row), []).append(_text(row))
    outcome = min(texts, key=_STRONGEST.index, default="")
    messages = texts.pop(outcome) if outcome else []
    notes = tuple(text for rest in texts.values() for text in rest)
    return TestCase(rule, where, outcome, tuple(messages), notes)


_STRONGEST: Final = ("error", "failure", "", "skipped")


def _outcome(row: ReportRow) -> str:
    if row.error:
        return "error"
    if not row.action:
        return "skipped"
    return "failure" if row.action is Action.DENY else ""


def _text(row: ReportRow) -> str:
    place = row.location
    where = f"{name(relative(place.file))}:{place.line}:{place.column}: " if place else ""
    return f"{where}{row.word}: {row.advice}"


_TYPE: Final = {"error": "error", "failure": "deny", "skipped": "unseen or exempt"}


def _element(test: TestCase) -> str:
    head = f"    <testcase name={attribute(test.name)} classname={attribute(test.where)}"
    inside = []
    if test.outcome:
        message, text = attribute(test.messages[0]), _content(test.messages)
        inside.append(
            f'      <{test.outcome} type="{_TYPE[test.outcome]}" '
            f"message={message}>{text}</{test.outcome}>"
        )
    if test.notes:
        inside.append(f"      <system-out>{_content(test.notes)}</system-out>")
    return "\n".join((head + ">", *inside, "    </testcase>")) if inside else head + "/>"


def _content(texts: Iterable[str]) -> str:
    return "\n".join(map(line, texts)).translate(_ESCAPES)


def attribute(text: str) -> str:
    """Return a text as the value of an attribute, in quotes."""
    return f'"{_content((text,)).translate(_ESCAPED_SPACE)}"'
