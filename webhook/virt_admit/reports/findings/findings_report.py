"""The report of ``check`` and ``scan``: what their JSON says, as one frozen value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from virt_admit import __version__
from virt_admit.documents.reader import Location
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes.json_patch import Patch, PatchVerb
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.findings.commands import command
from virt_admit.reports.findings.report import ObjectResult, Report, ReportRow, identity
from virt_admit.reports.values import OMIT, UNLESS_GIVEN
from virt_admit.rule import Action

ActionWord = Literal["deny", "warn", "audit", "off"]
_WORDS: Final[Mapping[Action | None, ActionWord | None]] = {
    Action.DENY: "deny",
    Action.WARN: "warn",
    Action.AUDIT: "audit",
    Action.OFF: "off",
    None: None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """The object that a result is about."""

    cluster: str | None = field(default=None, metadata=UNLESS_GIVEN)
    """The context or the path as given; only with several clusters."""
    apiVersion: str  # noqa: N815 - the key of Kubernetes
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One operation of a JSON Patch (RFC 6902)."""

    op: PatchVerb
    path: str
    value: Any = field(default=None, metadata={OMIT: lambda step, _value: step.op == "remove"})


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A part of a file.

    Lines and columns begin at 1; the end is the place behind the last character.
    """

    file: str
    line: int
    column: int
    endLine: int  # noqa: N815 - the key of the JSON
    endColumn: int  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedObject(ObjectName):
    """An object, whether the webhook would admit it, and what ``/mutate`` would change first."""

    file: str | None
    """None: the object is not of a file."""
    line: int | None
    allowed: bool
    patch: tuple[PatchOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProblem:
    """One result of one rule on one object."""

    rule: str
    action: ActionWord | None
    """``off``: an exemption silences it. None: data was missing, or the rule crashed."""
    message: str
    path: str
    """``spec.volumes[0]``."""
    pointer: str
    """The path as a JSON Pointer (RFC 6901)."""
    object: ObjectName
    location: FilePlace | None
    """None: the object is not of a file."""
    fix: tuple[PatchOperation, ...] | None
    unseen: str | None
    """The data that the rule needs and that is not known."""
    error: str | None
    """How the rule crashed."""
    exempted: str | None
    """The reason of the exemption that lowered the action."""
    problem: str | None
    """The id of the problem that it shows: cause and root object. The same in other rules,
    ``drain`` and ``upgrade``.
    """
    command: str | None
    """What to type about an object of a cluster. None: the object is not of a cluster."""
    cluster: str | None = field(default=None, metadata=UNLESS_GIVEN)


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of objects, each counted once by its strictest result."""

    objects: int
    denied: int
    warned: int
    unseen: int
    errors: int
    """Rules that crashed, which is a bug."""
    other_kinds: int


@dataclass(frozen=True, slots=True)
class ToolVersion:
    """The program that judged."""

    name: Literal["virt-admit"]
    version: str


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """One of several clusters."""

    cluster: str
    error: str | None
    """Why it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsReport:
    """What the rules say about objects."""

    version: Literal[1] = 1
    tool: ToolVersion = ToolVersion("virt-admit", __version__)
    policy: str
    """Where the policy comes from."""
    summary: Totals
    objects: tuple[JudgedObject, ...]
    results: tuple[FoundProblem, ...]
    clusters: tuple[ReadCluster, ...] | None = field(default=None, metadata=UNLESS_GIVEN)
    """Only of ``scan`` with several clusters."""
    reported: tuple[ReportedProblem, ...] | None = field(default=None, metadata=UNLESS_GIVEN)
    """What objects of any kind have reported as wrong for ten minutes and more. Only of ``scan``.
    No rule judges it.
    """


def findings_report(found: Report) -> FindingsReport:
    """Return the report of a run."""
    rows = found.rows()
    clusters = (ReadCluster(name, error or None) for name, error in found.clusters.items())
    return FindingsReport(
        policy=found.policy,
        summary=_totals(found, rows),
        objects=tuple(
            _object(result) for result in sorted(found.results, key=lambda result: result.order)
        ),
        results=tuple(_problem(row, command(row) if found.of_cluster else "") for row in rows),
        clusters=tuple(clusters) or None,
        reported=found.reported or None,
    )


def _totals(found: Report, rows: Iterable[ReportRow]) -> Totals:
    denied = {id(row.result) for row in rows if row.action is Action.DENY}
    warned = {id(row.result) for row in rows if row.action is Action.WARN} - denied
    return Totals(
        objects=len(found.results),
        denied=len(denied),
        warned=len(warned),
        unseen=len({id(row.result) for row in rows if row.unseen}),
        errors=sum(len(result.response.errors) for result in found.results),
        other_kinds=found.other_kinds,
    )


def _object(result: ObjectResult) -> JudgedObject:
    document = result.document
    return JudgedObject(
        **_identity(result.obj, result.cluster),
        file=document.file if document else None,
        line=document.line if document else None,
        allowed=result.response.allowed,
        patch=tuple(map(_step, result.response.patch)),
    )


def _problem(row: ReportRow, typed: str) -> FoundProblem:
    return FoundProblem(
        rule=row.rule,
        action=_WORDS[row.action],
        message=row.message,
        path=str(row.path),
        pointer=row.path.pointer,
        object=ObjectName(**_identity(row.result.obj, row.result.cluster)),
        location=_place(row.location),
        fix=tuple(map(_step, row.fix)) or None,
        unseen=row.unseen or None,
        error=row.error or None,
        exempted=row.exempted or None,
        problem=None if row.problem is None else str(row.problem),
        command=typed or None,
        cluster=row.result.cluster or None,
    )


def _place(location: Location | None) -> FilePlace | None:
    if location is None:
        return None
    return FilePlace(
        location.file, location.line, location.column, location.end_line, location.end_column
    )


def _step(step: Patch) -> PatchOperation:
    return PatchOperation(step.op, step.path.pointer, step.value)


def _identity(obj: Object, cluster: str) -> dict[str, Any]:
    return {"cluster": cluster or None, **identity(obj)}
