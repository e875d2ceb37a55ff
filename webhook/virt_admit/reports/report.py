"""What a run of ``check`` or ``scan`` found, before anything is made of it (``virt_admit.reports.formats``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from virt_admit.documents.reader import Document, DocumentError, Location
from virt_admit.engine import admission_review
from virt_admit.engine.admission_review import Request, Response, Verdict
from virt_admit.model.json_patch import Patch
from virt_admit.model.messages import count
from virt_admit.model.objects import Object, Path
from virt_admit.rule import Action, Rule

DUPLICATE_KEY: Final = "yaml-duplicate-key"
"""The id under which a key that stands twice in a map is reported; the last one wins, as in kubectl."""


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """One object and what was said of it. ``document`` is None for what came from a cluster."""

    request: Request
    response: Response
    document: Document | None = None
    asked: tuple[Rule, ...] = ()
    """The rules that judged it. Those that said nothing are content with it."""

    @property
    def obj(self) -> Object:
        return self.request.obj or Object({})

    @property
    def order(self) -> tuple[Any, ...]:
        place = (self.document.file, self.document.line) if self.document else ("", 0)
        return (*place, self.obj.kind, self.obj.full_name)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run found."""

    judged: tuple[ObjectResult, ...]
    other_kinds: int = 0
    """Objects that no rule is about."""
    files: int = 0
    unread: tuple[DocumentError, ...] = ()
    """What could not be read: nobody knows what is in it."""

    def at_least(self, action: Action) -> bool:
        """Whether some finding leads to at least this action."""
        return any(line.action is not None and line.action >= action for line in self.lines())

    def lines(self) -> list[ReportRow]:
        """Every result, sorted by place and rule."""
        return sorted((line for one in self.judged for line in rows_of(one)), key=lambda line: line.order)

    @property
    def crashed(self) -> bool:
        return any(one.response.errors for one in self.judged)

    @property
    def blind(self) -> frozenset[Rule]:
        """The rules that could not see what they need."""
        return frozenset(rule for one in self.judged for rule, _ in one.response.unseen)

    @property
    def blindness(self) -> str:
        """How many rules could not see which kinds (``plural.group``), in words; empty where all could."""
        kinds = sorted({what.partition(" ")[0] for one in self.judged for _, what in one.response.unseen})
        return f"{count(len(self.blind), 'rule')} cannot tell without {', '.join(kinds)}" if kinds else ""

    def summary(self) -> str:
        """The line that every run ends with; silence about what was skipped would be a lie."""
        kinds = {one.request.kind for one in self.judged}
        where = f" in {self.files} files" if self.files != 1 else " in 1 file"
        parts = [
            f"checked {count(len(self.judged), 'object')} of {count(len(kinds), 'kind')}{where if self.files else ''}"
        ]
        if self.other_kinds:
            parts.append(f"{count(self.other_kinds, 'object')} of other kinds")
        if self.blind:
            parts.append(f"{count(len(self.blind), 'rule')} could not see what they need")
        if self.unread:
            parts.append(f"{count(len(self.unread), 'document')} could not be read")
        if self.crashed:
            parts.append("some rules crashed, which is a bug")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One result as it is printed."""

    rule: str
    action: Action | None
    message: str
    path: Path
    judged: ObjectResult
    location: Location | None
    fix: tuple[Patch, ...] = ()
    fixed: bool = False
    """Whether the fix is what ``/mutate`` would do."""
    unseen: str = ""
    error: str = ""
    exempted: str = ""

    @property
    def word(self) -> str:
        """What it is: deny, warn, audit, off (exempt), fix, unseen or error."""
        if self.error:
            return "error"
        if self.unseen:
            return "unseen"
        return "fix" if self.fixed else str(self.action)

    @property
    def said(self) -> str:
        """The message, with the reason for which it was silenced or softened."""
        return admission_review.line(f"{self.message} (exempt: {self.exempted})" if self.exempted else self.message)

    @property
    def text(self) -> str:
        """``path: message``, in one printable line. The message of a fix names the path itself."""
        return admission_review.line(f"{self.path}: {self.said}" if self.path and not self.fixed else self.said)

    @property
    def remedy(self) -> str:
        """What would make it go away, in words, where that is known and not done by itself."""
        return "" if self.fixed else admission_review.line("; ".join(map(str, self.fix)))

    @property
    def advice(self) -> str:
        """``path: message; fix: remedy``, for who has one line for all of it."""
        return f"{self.text}; fix: {self.remedy}" if self.remedy else self.text

    @property
    def order(self) -> tuple[Any, ...]:
        place = self.location
        where = (place.file, place.line, place.column) if place else ("", 0, 0)
        return (*where, self.judged.obj.kind, self.judged.obj.full_name, self.rule, str(self.path), self.message)


def rows_of(judged: ObjectResult) -> Iterable[ReportRow]:
    """Every result for one object."""
    response = judged.response
    for verdict in response.fixed:
        steps = verdict.finding.fix
        noted = replace(verdict, action=min(verdict.action, Action.AUDIT))  # the webhook mends it, so nothing fails
        message = admission_review.fix_sentence(verdict.finding, "would be")
        yield _line(judged, noted, message, fix=steps, fixed=True)
    for verdict in response.verdicts:
        yield _line(judged, verdict, verdict.finding.message, fix=verdict.finding.fix, exempted=verdict.exempted)
    for rule, what in response.unseen:
        yield ReportRow(rule.id, None, f"cannot tell: {what}", Path(), judged, _place(judged, Path()), unseen=what)
    for rule, error in response.errors:
        yield ReportRow(
            rule.id, None, f"the rule crashed: {error}", Path(), judged, _place(judged, Path()), error=error
        )
    for duplicate in judged.document.duplicates if judged.document else ():
        text = f"the key stands twice, in lines {duplicate.first_line} and {duplicate.line}; the last one wins"
        yield ReportRow(DUPLICATE_KEY, Action.WARN, text, duplicate.path, judged, _place(judged, duplicate.path))


def _line(judged: ObjectResult, verdict: Verdict, message: str, **more: Any) -> ReportRow:
    path = verdict.finding.path
    return ReportRow(verdict.rule.id, verdict.action, message, path, judged, _place(judged, path), **more)


def _place(judged: ObjectResult, path: Path) -> Location | None:
    return judged.document.location(path) if judged.document else None


def called(obj: Object) -> str:
    """``Kind/namespace/name``, in one printable line."""
    return admission_review.line(f"{obj.kind}/{obj.full_name}")


def identity(obj: Object) -> dict[str, str]:
    """What names an object."""
    return {"apiVersion": obj.api_version, "kind": obj.kind, "namespace": obj.namespace, "name": obj.name}
