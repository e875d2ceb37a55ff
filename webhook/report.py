"""Results of ``check`` and ``scan`` in every format. Bytes are deterministic: no clock, always sorted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from webhook import __version__, admission, policy_reports
from webhook.admission import Request, Response, Verdict
from webhook.documents import Document, DocumentError, Location
from webhook.model.objects import Object, Path
from webhook.rule import Action, Patch, Rule

DUPLICATE_KEY: Final = "yaml-duplicate-key"
"""The id under which a key that stands twice in a map is reported; the last one wins, as in kubectl."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One object and what was said of it. ``document`` is None for what came from a cluster."""

    request: Request
    response: Response
    document: Document | None = None
    asked: tuple[Rule, ...] = ()
    """The rules that judged it. Those that said nothing are content with it."""

    @property
    def obj(self) -> Object:
        return self.request.obj or Object({})


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run found."""

    judged: tuple[Judged, ...]
    other_kinds: int = 0
    """Objects that no rule is about."""
    files: int = 0
    unread: tuple[DocumentError, ...] = ()
    """What could not be read: nobody knows what is in it."""

    def at_least(self, action: Action) -> bool:
        """Whether some finding leads to at least this action."""
        return any(line.action is not None and line.action >= action for line in self.lines())

    def lines(self) -> list[Line]:
        """Every result, sorted by place and rule."""
        return sorted((line for one in self.judged for line in lines_of(one)), key=lambda line: line.order)

    @property
    def crashed(self) -> bool:
        return any(one.response.errors for one in self.judged)

    @property
    def blind(self) -> frozenset[Rule]:
        """The rules that could not see what they need."""
        return frozenset(rule for one in self.judged for rule, _ in one.response.unseen)

    def summary(self) -> str:
        """The line that every run ends with; silence about what was skipped would be a lie."""
        kinds = {one.request.kind for one in self.judged}
        where = f" in {self.files} files" if self.files != 1 else " in 1 file"
        parts = [
            f"checked {_count(len(self.judged), 'object')} of {_count(len(kinds), 'kind')}{where if self.files else ''}"
        ]
        if self.other_kinds:
            parts.append(f"{_count(self.other_kinds, 'object')} of other kinds")
        if self.blind:
            parts.append(f"{_count(len(self.blind), 'rule')} could not see what they need")
        if self.unread:
            parts.append(f"{_count(len(self.unread), 'document')} could not be read")
        if self.crashed:
            parts.append("some rules crashed, which is a bug")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Line:
    """One result as it is printed."""

    rule: str
    action: Action | None
    message: str
    path: Path
    judged: Judged
    location: Location | None
    fix: tuple[Patch, ...] = ()
    fixed: bool = False
    """Whether the fix is what ``/mutate`` would do."""
    unseen: str = ""
    error: str = ""
    exempted: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        place = self.location
        where = (place.file, place.line, place.column) if place else ("", 0, 0)
        return (*where, self.judged.obj.kind, self.judged.obj.full_name, self.rule, str(self.path), self.message)


def lines_of(judged: Judged) -> Iterable[Line]:
    """Every result for one object."""
    response = judged.response
    for verdict in response.fixed:
        steps = verdict.finding.fix
        yield _line(judged, verdict, "; ".join(change(step) for step in steps), fix=steps, fixed=True)
    for verdict in response.verdicts:
        yield _line(judged, verdict, verdict.finding.message, fix=verdict.finding.fix, exempted=verdict.exempted)
    for rule, what in response.unseen:
        yield Line(rule.id, None, f"cannot tell: {what}", Path(), judged, _place(judged, Path()), unseen=what)
    for rule, error in response.errors:
        yield Line(rule.id, None, f"the rule crashed: {error}", Path(), judged, _place(judged, Path()), error=error)
    for duplicate in judged.document.duplicates if judged.document else ():
        text = f"the key stands twice, in lines {duplicate.first_line} and {duplicate.line}; the last one wins"
        yield Line(DUPLICATE_KEY, Action.WARN, text, duplicate.path, judged, _place(judged, duplicate.path))


def _line(judged: Judged, verdict: Verdict, message: str, **more: Any) -> Line:
    path = verdict.finding.path
    return Line(verdict.rule.id, verdict.action, message, path, judged, _place(judged, path), **more)


def _place(judged: Judged, path: Path) -> Location | None:
    return judged.document.location(path) if judged.document else None


def change(step: Patch) -> str:
    """A patch operation in words."""
    if step.op == "remove":
        return f"remove {step.path}"
    return f"set {step.path} to {step.value if isinstance(step.value, str) else json.dumps(step.value)}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def text(report: Report, paint: Callable[[str, Action | None], str] = lambda word, _action: word) -> str:
    """``file:line:column: action: path: message [rule]`` and a line for each fix; ``paint`` may colour the action."""
    out = []
    for line in _blindness_in_one(report.lines()):
        place = line.location
        where = f"{place.file}:{place.line}:{place.column}" if place else called(line.judged.obj)
        path = f"{line.path}: " if line.path else ""
        exempted = f" (exempt: {line.exempted})" if line.exempted else ""
        out.append(f"{where}: {paint(_word(line), line.action)}: {path}{line.message}{exempted} [{line.rule}]")
        if line.fix and not line.fixed:
            out.append(f"    fix: {'; '.join(change(step) for step in line.fix)}")
    return "".join(each + "\n" for each in out)


def _blindness_in_one(lines: Iterable[Line]) -> list[Line]:
    """The lines with one for each object that says all that could not be seen of it, and by whom."""
    out: list[Line] = []
    blind: dict[int, list[Line]] = {}
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


def _word(line: Line) -> str:
    if line.error:
        return "error"
    if line.unseen:
        return "unseen"
    if line.fixed:
        return "fix"
    return str(line.action)


def called(obj: Object) -> str:
    """``Kind/namespace/name``, in one printable line."""
    return admission.line(f"{obj.kind}/{obj.full_name}")


def as_json(report: Report) -> str:
    """The report as one JSON object (docs/output.md has its schema)."""
    lines = report.lines()
    denied = {id(line.judged) for line in lines if line.action is Action.DENY}
    warned = {id(line.judged) for line in lines if line.action is Action.WARN} - denied
    unseen = {id(line.judged) for line in lines if line.unseen}
    data = {
        "version": 1,
        "tool": {"name": "virt-admit", "version": __version__},
        "summary": {
            "objects": len(report.judged),
            "denied": len(denied),
            "warned": len(warned),
            "unseen": len(unseen),
            "errors": sum(len(one.response.errors) for one in report.judged),
            "other_kinds": report.other_kinds,
        },
        "objects": [_object(one) for one in sorted(report.judged, key=_object_order)],
        "results": [_result(line) for line in lines],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _object_order(judged: Judged) -> tuple[Any, ...]:
    document = judged.document
    place = (document.file, document.line) if document else ("", 0)
    return (*place, judged.obj.kind, judged.obj.full_name)


def identity(obj: Object) -> dict[str, str]:
    """What names an object."""
    return {"apiVersion": obj.api_version, "kind": obj.kind, "namespace": obj.namespace, "name": obj.name}


def _object(judged: Judged) -> dict[str, Any]:
    document = judged.document
    return {
        **identity(judged.obj),
        "file": document.file if document else None,
        "line": document.line if document else None,
        "allowed": judged.response.allowed,
        "patch": [step.as_json() for step in judged.response.patch],
    }


def _result(line: Line) -> dict[str, Any]:
    place = line.location
    location = place and {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {
        "rule": line.rule,
        "action": str(line.action) if line.action is not None else None,
        "message": line.message,
        "path": str(line.path),
        "pointer": line.path.pointer,
        "object": identity(line.judged.obj),
        "location": location,
        "fix": [step.as_json() for step in line.fix] or None,
        "unseen": line.unseen or None,
        "error": line.error or None,
        "exempted": line.exempted or None,
    }


def subject(judged: Judged) -> policy_reports.Subject:
    """What a report about one object says."""
    own = {rule.id: rule.action for rule in judged.asked}
    found = [_outcome(line, own) for line in lines_of(judged)]
    heard = {each.rule for each in found}
    content = (rule for rule in judged.asked if rule.id not in heard)
    passed = [policy_reports.Result("pass", rule.id, _SEVERITY[rule.action]) for rule in content]
    kind = judged.request.kind
    return policy_reports.Subject(judged.obj, kind is None or kind.namespaced, (*found, *passed))


_SEVERITY: Final = {Action.DENY: "high", Action.WARN: "medium", Action.AUDIT: "low", Action.OFF: "low"}
"""Older definitions of PolicyReport know no other words."""
_OUTCOME: Final = {Action.DENY: "fail", Action.WARN: "warn", Action.AUDIT: "warn", Action.OFF: "skip"}


def _outcome(line: Line, own: Mapping[str, Action]) -> policy_reports.Result:
    """``own``: what each rule leads to out of the box."""
    if line.error:
        outcome = "error"
    elif line.unseen or line.exempted or line.action is None:
        outcome = "skip"
    else:
        outcome = "pass" if line.fixed else _OUTCOME[line.action]
    severity = _SEVERITY[line.action or own.get(line.rule, Action.OFF)]
    message = f"{line.message} (exempt: {line.exempted})" if line.exempted else line.message
    fix = "" if line.fixed else "; ".join(change(step) for step in line.fix)
    return policy_reports.Result(outcome, line.rule, severity, message, str(line.path), fix)


def _policy_reports(form: policy_reports.Format) -> Callable[[Report], str]:
    return lambda report: policy_reports.stream(form, map(subject, report.judged))


FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": text,
    "json": as_json,
    **{name: _policy_reports(form) for name, form in policy_reports.WRITTEN.items()},
}


def parse_output(options: Sequence[str]) -> list[tuple[str, str | None]]:
    """``-o FORMAT[=FILE]`` options as pairs of format and file (None: stdout).

    Raises:
        ValueError: an unknown format, or two for stdout.
    """
    outputs = []
    for option in options or ("text",):
        name, _, file = option.partition("=")
        if name not in FORMATS:
            raise ValueError(f"unknown output format {name}; known are {', '.join(FORMATS)}")
        outputs.append((name, file or None))
    if sum(file is None for _, file in outputs) > 1:
        raise ValueError("only one output can go to stdout; give the others a file: -o json=report.json")
    return outputs
