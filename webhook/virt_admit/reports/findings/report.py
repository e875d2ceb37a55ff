"""The results of one run of ``check`` or ``scan``.

``virt_admit.reports.findings.formats`` prints them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from virt_admit.documents.reader import Document, DocumentError, Location
from virt_admit.engine import admission_review
from virt_admit.engine.admission_review import Request, Response, Verdict
from virt_admit.model import sanitize
from virt_admit.model.kubernetes.cluster import AbsentObject
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path, PathStep
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.messages import count
from virt_admit.model.problems import ProblemId
from virt_admit.rule import Action, Rule, RuleOptions

if TYPE_CHECKING:
    from virt_admit.model.evidence.reported import ReportedProblem

_NO_PATH: Final = Path()
_NOWHERE: Final = Location("", 0, 0, 0, 0)
_ERRORS: Final = attrgetter("response.errors")

DUPLICATE_KEY: Final = "yaml-duplicate-key"
"""The rule id of a duplicate key in a YAML map. As in kubectl, the last value counts."""


REPORTED: Final = (
    "Reported by the objects themselves for more than 10 minutes, besides the findings"
)
"""The title of what objects report."""

NO_LOCATIONS: Final[Mapping[tuple[PathStep, ...], Location]] = {}


class ObjectResult(NamedTuple):
    """One object and the response to it. ``document`` is None for an object from a cluster."""

    request: Request
    response: Response
    document: Document | None = None
    locations: Mapping[tuple[PathStep, ...], Location] = NO_LOCATIONS
    """Where the paths of the response are in the file. Others are looked up in the document."""
    cluster: str = ""
    """The cluster of the object; empty unless the run is about several."""

    @property
    def obj(self) -> Object:
        return self.request.obj or Object({})

    @property
    def called(self) -> str:
        """``Kind/namespace/name``, in one printable line;
        after the cluster if the run is about several. Without a name its place in a file.
        """
        name = called(self.obj)
        if self.document is not None and not self.obj.name:
            name = sanitize.name(f"{self.obj.kind} at {self.document.file}:{self.document.line}")
        return f"{sanitize.name(self.cluster)}: {name}" if self.cluster else name

    @property
    def order(self) -> tuple[Any, ...]:
        place = (self.document.file, self.document.line) if self.document else ("", 0)
        return (*place, self.cluster, self.obj.kind, self.obj.full_name)

    def location(self, path: Path) -> Location | None:
        """Return where a path of the object is; None for an object from a cluster."""
        if self.document is None:
            return None
        return self.locations.get(path) or self.document.location(path)


def of_file(
    request: Request, response: Response, document: Document, label: str = ""
) -> ObjectResult:
    """Return the result for an object of a file.

    Without the object, because keeping all of them takes much memory, and without the document: the
    process that prints the result has it.
    """
    paths = {_NO_PATH, *(verdict.finding.path for verdict in (*response.fixed, *response.verdicts))}
    locations = document.locations(paths, request.obj.data if request.obj else None)
    response = response._replace(policy=None)  # reports print none
    return ObjectResult(without_object(request, label), response, locations=locations)


def without_object(request: Request, label: str = "") -> Request:
    """Return a request with the part of its object that reports print, and with this label."""
    obj = request.obj or Object({})
    always = ("name", "generateName", "namespace", "uid", "deletionTimestamp")
    keys = (*always, *_OWNED.get(obj.kind, ()))
    metadata = {key: obj.metadata[key].value for key in keys if obj.metadata[key].present}
    labels = {label: obj.labels[label]} if label in obj.labels else {}
    if (mark := obj.annotations.get(_APPLIED)) is not None:
        metadata["annotations"] = {_APPLIED: mark}
    metadata["labels"] = labels
    identity = {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata}
    return request._replace(obj=Object(identity, obj.namespace), old=None)


_APPLIED: Final = "objectset.rio.cattle.io/id"
"""What reports need of the annotations: the mark of Fleet,
which takes changes in its charts alone.
"""
_OWNED: Final = dict.fromkeys(("VirtualMachineInstance", "VirtualMachine"), ("ownerReferences",))
"""What reports need of the metadata of an object: a VMI is changed through its VM, and a VM of a
pool repeats the pool.
"""

NO_CLUSTERS: Final[Mapping[str, str]] = {}


class Drains(NamedTuple):
    """What drains of nodes would meet, so that no page about a cluster calls it clean while its
    nodes cannot be drained.
    """

    blocked: int = 0
    """Nodes that cannot be drained."""
    unknown: int = 0
    """Nodes of which that cannot be determined."""
    nodes: int = 0
    """All nodes; 0: the page is about an owner of VMs."""
    vms: tuple[Object, ...] = ()
    """The VMIs that block a drain."""


NO_DRAINS: Final[Mapping[str, Drains]] = {}


class Report(NamedTuple):
    """All results of one run."""

    results: tuple[ObjectResult, ...]
    other_kinds: int = 0
    """The number of objects of kinds that no rule supports."""
    files: int = 0
    skipped: int = 0
    """The number of documents in folders that are not Kubernetes objects."""
    templates: int = 0
    """The number of files in folders that were skipped as templates."""
    unreadable: tuple[DocumentError, ...] = ()
    """The documents, or the clusters of several, that could not be read.
    Their objects are unknown.
    """
    policy: str = ""
    """Where the policy comes from."""
    clusters: Mapping[str, str] = NO_CLUSTERS
    """By name, why a cluster could not be read (empty: it could);
    without names unless the run is about several.
    """
    heading: str = ""
    """What text puts before the findings."""
    evidence: tuple[tuple[str, str], ...] = ()
    """What else the report rests on, with names: the cluster, its version."""
    drains: Mapping[str, Drains] = NO_DRAINS
    """By cluster, what drains would meet; empty unless a page about a cluster is written."""
    reported: tuple[ReportedProblem, ...] = ()
    """What objects themselves have reported as wrong for long, the newest first;
    of a scan of one cluster.
    """
    of_cluster: bool = True
    """Whether objects without a file are objects of a cluster,
    so that commands about them make sense.
    """

    def at_least(self, action: Action) -> bool:
        """Return whether a finding has this action or a stricter one."""
        return any(found >= action for result in self.results for found in _actions(result))

    def rows(self) -> list[ReportRow]:
        """Return every row, sorted by place and rule."""
        rows = [row for result in self.results for row in rows_of(result)]
        # its end changes nothing: equal places are sorted below
        rows.sort(key=lambda row: row.location or _NOWHERE)
        together = [list(same) for _, same in groupby(rows, lambda row: row.place)]
        # half of the rows have a place of their own, and the rest of the order takes most of the
        # time
        return [
            row
            for same in together
            for row in (sorted(same, key=lambda r: r.order) if len(same) > 1 else same)
        ]

    @property
    def messages(self) -> tuple[str, ...]:
        """The messages of all findings, each after the name of its object."""
        return tuple(
            f"{result.obj.full_name}: {verdict.finding.message}"
            for result in self.results
            for verdict in result.response.verdicts
        )

    @property
    def crashed(self) -> bool:
        return any(map(_ERRORS, self.results))

    @property
    def rules_without_data(self) -> frozenset[Rule]:
        """The rules that could not read the data they need."""
        return frozenset(rule for result in self.results for rule, _ in result.response.unseen)

    @property
    def missing_data(self) -> str:
        """How many rules were skipped, and the kinds (``plural.group``) that they need.

        Empty if none was skipped.
        """
        every = {what for result in self.results for _, what in result.response.unseen}
        kinds = sorted(
            {what if what == storage.NO_DEFAULT else what.partition(" ")[0] for what in every}
        )
        if not kinds:
            return ""
        return (
            f"{count(len(self.rules_without_data), 'rule')} skipped: {', '.join(kinds)} are not "
            "available"
        )

    def summary(self) -> str:
        """Return the line that ends every run. It also counts what was skipped."""
        kinds = {result.request.kind for result in self.results}
        where = f" in {count(self.files, 'file')}" if self.files else ""
        parts = [
            f"checked {count(len(self.results), 'object')} of {count(len(kinds), 'kind')}{where}"
        ]
        if self.other_kinds:
            parts.append(f"{count(self.other_kinds, 'object')} of other kinds")
        if self.skipped:
            parts.append(f"skipped {count(self.skipped, 'document')} without apiVersion and kind")
        if self.templates:
            parts.append(f"skipped {count(self.templates, 'template file')}: render them first")
        if self.rules_without_data:
            number = len(self.rules_without_data)
            lack = "lacks the data it needs" if number == 1 else "lack the data they need"
            parts.append(f"{count(number, 'rule')} {lack}")
        if self.unreadable:
            what = "cluster" if self.clusters else "document"
            parts.append(f"{count(len(self.unreadable), what)} could not be read")
        if self.crashed:
            parts.append("some rules crashed, which is a bug")
        return "; ".join(parts)


class TextEdit(NamedTuple):
    """A fix as a change of a file: the text at the location is replaced."""

    location: Location
    text: str
    description: str


_NOTHING_DECLARED: Final = RuleOptions(kinds=(), action=Action.WARN)
"""Of a row without a rule: a duplicate key."""


class ReportRow(NamedTuple):
    """One result as it is printed."""

    rule: str
    action: Action | None
    message: str
    path: Path
    result: ObjectResult
    location: Location | None
    fix: tuple[Patch, ...] = ()
    fixed: bool = False
    """Whether ``/mutate`` would apply the fix."""
    unseen: str = ""
    error: str = ""
    exempted: str = ""
    problem: ProblemId | None = None
    declared: RuleOptions = _NOTHING_DECLARED
    """What the rule declares of itself."""
    command: str = ""
    """What an administrator types about it, where the rule says so."""
    others: tuple[str, ...] = ()
    """In a row that stands for a problem: the other objects, places and rules that show it."""
    alike: tuple[str, ...] = ()
    """In a row that stands for several objects: the full names of the others."""

    later: tuple[str, ...] = ()
    """In a row about a VM that cannot run: the rules with advice about it for the time when it
    runs.
    """

    @property
    def word(self) -> str:
        """The class of the row: deny, warn, audit, off (exempt), fix, unseen or error."""
        if self.error:
            return "error"
        if self.unseen:
            return "unseen"
        return "fix" if self.fixed else str(self.action)

    @property
    def display_message(self) -> str:
        """The message, with the reason of the exemption that lowered its action."""
        return sanitize.line(
            f"{self.message} (exempt: {self.exempted})" if self.exempted else self.message
        )

    @property
    def text(self) -> str:
        """``path: message``, in one printable line. The message of a fix names the path itself, and
        the name stands for the whole object.
        """
        message, path = self.display_message, str(self.path)
        hidden = self.fixed or path in ("", "metadata.name")
        return sanitize.line(message if hidden else f"{path}: {message}")

    @property
    def remedy(self) -> str:
        """The fix in words. Empty without a fix, or if the webhook applies it."""
        return "" if self.fixed else sanitize.line("; ".join(map(str, self.fix)))

    @property
    def advice(self) -> str:
        """``path: message; fix: remedy``, for formats that print one line."""
        return f"{self.text}; fix: {self.remedy}" if self.remedy else self.text

    @property
    def text_edit(self) -> TextEdit | None:
        """The fix as a change of the file.

        None without a file, or if the change is not a single replacement.
        """
        document = self.result.document
        if document is None or len(self.fix) != 1:
            return None
        from virt_admit.documents import edit  # noqa: PLC0415 - few formats show edits

        (step,) = self.fix
        # another fix has to create the parent first
        if not Object(document.data).root.at(*step.path[:-1]).is_map:
            return None
        try:
            start, end, text = edit.edit(document.part.text, document.span, step)
        except edit.CannotEdit:
            return None
        return TextEdit(document.part.location(start, end), text, str(step))

    @property
    def fingerprint(self) -> str:
        """A digest of rule, object and pointer:
        32 hexadecimal digits that do not depend on line numbers.
        """
        import hashlib  # noqa: PLC0415 - loading OpenSSL takes time, and few formats show digests
        import json  # noqa: PLC0415

        obj = self.result.obj
        parts = [self.rule, obj.group, obj.kind, obj.namespace, obj.name, self.path.pointer]
        if self.result.cluster:
            parts.append(self.result.cluster)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column; empty and 0 for an object from a cluster."""
        found = self.location
        return (found.file, found.line, found.column) if found else ("", 0, 0)

    @property
    def order(self) -> tuple[Any, ...]:
        return (
            *self.place,
            self.result.cluster,
            self.result.obj.kind,
            self.result.obj.full_name,
            self.rule,
            str(self.path),
            self.message,
        )


_IF_FIXED: Final = Action.AUDIT
"""The strongest action of a finding that the webhook fixes: nothing may fail because of it."""


def _actions(result: ObjectResult) -> Iterator[Action]:
    """Yield the actions of all rows for one object."""
    yield from (min(verdict.action, _IF_FIXED) for verdict in result.response.fixed)
    yield from (verdict.action for verdict in result.response.verdicts)
    if result.document and result.document.duplicates:
        yield Action.WARN


def rows_of(result: ObjectResult) -> Iterable[ReportRow]:
    """Yield every row for one object."""
    response = result.response
    for verdict in response.fixed:
        steps = verdict.finding.fix
        lowered = verdict._replace(action=min(verdict.action, _IF_FIXED))
        message = admission_review.fix_sentence(verdict.finding, "would be")
        yield _verdict_row(result, lowered, message, fix=steps, fixed=True)
    for verdict in response.verdicts:
        yield _verdict_row(
            result, verdict, verdict.message, fix=verdict.finding.fix, exempted=verdict.exempted
        )
    messages = {what: lacks((what,)) for _, what in response.unseen}  # several rules share one
    for rule, what in response.unseen:
        yield _row(result, rule, None, messages[what], unseen=what)
    for rule, error in response.errors:
        yield _row(result, rule, None, f"the rule crashed: {error}", error=error)
    for duplicate in result.document.duplicates if result.document else ():
        message = (
            f"duplicate key on lines {duplicate.first_line} and {duplicate.line}; kubectl uses the "
            "last one"
        )
        place = result.location(duplicate.path)
        yield ReportRow(DUPLICATE_KEY, Action.WARN, message, duplicate.path, result, place)


def lacks(every: Collection[str]) -> str:
    """Return which data is missing. What is known not to exist was read."""
    known = all(isinstance(what, AbsentObject) for what in every)
    return f"{'cannot judge without' if known else 'not available:'} {', '.join(sorted(every))}"


def _verdict_row(result: ObjectResult, verdict: Verdict, message: str, **details: Any) -> ReportRow:
    finding = verdict.finding
    details |= {"problem": finding.problem, "command": finding.command}
    return _row(result, verdict.rule, verdict.action, message, finding.path, **details)


def _row(
    result: ObjectResult,
    rule: Rule,
    action: Action | None,
    message: str,
    path: Path = _NO_PATH,
    **details: Any,
) -> ReportRow:
    return ReportRow(
        rule.id, action, message, path, result, result.location(path), declared=rule, **details
    )


def where(row: ReportRow, first: ReportRow) -> str:
    """Return where a row is, and its rule: the path if it is about the object of the first one."""
    own, other = row.result.obj, first.result.obj
    same = own.kind == other.kind and own.full_name == other.full_name
    place = row.location
    elsewhere = f"{place.file}:{place.line}" if place else row.result.called
    return f"{row.path if same else elsewhere} [{row.rule}]"


def called(obj: Object) -> str:
    """Return ``Kind/namespace/name``, in one printable line."""
    return sanitize.name(f"{obj.kind}/{obj.full_name}")


def identity(obj: Object) -> dict[str, str]:
    """Return the fields that identify an object."""
    return {
        "apiVersion": obj.api_version,
        "kind": obj.kind,
        "namespace": obj.namespace,
        "name": obj.name,
    }
