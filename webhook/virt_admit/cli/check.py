"""``virt-admit check``: the webhook's engine on files."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from virt_admit.cli import common, fixes
from virt_admit.cli.fixes import Source
from virt_admit.documents import reader
from virt_admit.documents.reader import Document, DocumentError
from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.field_filter import looked_up_kinds
from virt_admit.model import kinds, selectors
from virt_admit.model.cluster import Cluster, Snapshot
from virt_admit.model.kinds import Kind
from virt_admit.model.messages import count
from virt_admit.model.objects import Object
from virt_admit.model.selectors import Selector
from virt_admit.policy import policy
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import Policy
from virt_admit.reports import formats, report
from virt_admit.reports.report import ObjectResult, Report
from virt_admit.rule import Operation
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError


@click.command("check", short_help="Judge manifest files as the webhook would.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(readable=False), metavar="PATH…")
@common.cluster_options
@click.option("--old", type=click.Path(path_type=Path), help="What is there now (file or folder): judge an UPDATE.")
@click.option(
    "--operation", type=click.Choice(["CREATE", "UPDATE"]), help="Default: UPDATE for what --old has, else CREATE."
)
@common.report_options
@click.option(
    "--strict", is_flag=True, help="What could not be seen, unknown kinds and duplicate keys are findings too."
)
@click.option("-n", "--namespace", default="default", show_default=True, help="For objects that name none.")
@common.selector_option
@click.option("--diff", is_flag=True, help="Instead of the report show what --fix would change; exit 1 if anything.")
@click.option(
    "--fix", is_flag=True, help="Write the fixes into the files, then report. Of - the fixed text goes to stdout."
)
@click.option("--fail-if-no-objects", is_flag=True, help="Nothing recognised is an error.")
@click.option("--stdin-filename", default="<stdin>", metavar="NAME", help="What reports call standard input.")
@click.option("-v", "--verbose", is_flag=True, help="On stderr, what became of each object.")
def command(
    paths: tuple[str, ...],
    cluster: Path | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    old: Path | None,
    operation: str | None,
    policy_name: str,
    output: tuple[str, ...],
    fail_on: str,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    namespace: str,
    selector: str,
    diff: bool,
    fix: bool,
    fail_if_no_objects: bool,
    stdin_filename: str,
    verbose: bool,
    color: str,
    quiet: bool,
) -> int:
    """Judge manifest files as the webhook would: apply its fixes in mind, then the rules.

    PATH is a file, a folder (*.yaml *.yml *.json) or - for standard input. All objects see each other, and those of
    the cluster if one is named. Exit 0 clean, 1 findings at or above --fail-on, 2 the answer cannot be trusted.
    """
    if diff and fix:
        raise click.UsageError("--diff only shows what --fix writes: choose one")
    stdout = "diff" if diff else "fixed text" if fix and "-" in paths else "report"
    try:
        outputs = formats.parse_output(output) if output or stdout == "report" else []
        rules = common.selected(load_rules(), select, ignore)
        decided = load_policy(policy_name, load_rules()).at(datetime.date.today())
        chosen = selectors.parse_text(selector)
    except (SettingError, policy.PolicyError, ValueError, OSError) as error:
        raise common.failure(error) from None
    if stdout != "report" and any(file is None for _, file in outputs):
        raise click.UsageError(f"stdout is for the {stdout}; give the report a file: -o json=report.json")
    before, missed = _read([str(old)]) if old else ((), ())
    sources, unread = _read(paths, stdin_filename)
    there: Snapshot | ClusterCache = Snapshot()
    if cluster or live or kubeconfig or context:
        objects = _objects(sources, namespace)
        looks_up = _looks_up(objects, rules)
        there = common.cluster_of(cluster, live, kubeconfig, context, looks_up, _home(objects), quiet)
        common.tell_unreadable(there, looks_up)
    judge = _Judge(there, _objects(before, namespace), operation, namespace, chosen, rules, decided)
    result = judge(sources)
    mended = fixes.NOTHING
    if diff:
        mended = fixes.show(sources, result)
    elif fix:
        mended = fixes.mend(sources, result)
        sources = mended.sources
        result = judge(sources)
    result = dataclasses.replace(result, unread=(*missed, *unread))
    common.publish(result, outputs, color)
    if stdout == "fixed text" and not outputs:
        click.echo(formats.text.render(result), nl=False, err=True)
    if verbose:
        _tell(sources, chosen, result)
    if not quiet:
        common.conclude(result, decided)
        click.echo(mended.summary, nl=bool(mended.summary), err=True)
        if diff and common.found(result, fail_on):
            click.echo("there are findings that need more than a fix: see the report, without --diff", err=True)
    if result.unread or result.crashed or mended.failed:
        return 2
    if fail_if_no_objects and not result.judged:
        click.echo("no object that a rule is about", err=True)
        return 2
    duplicates = any(document.duplicates for document in _documents(sources))
    unclear = strict and (result.blind or result.other_kinds or duplicates)
    return int(bool(unclear or mended.left) or common.found(result, fail_on))


@dataclass(frozen=True, slots=True)
class _Judge:
    """All that a verdict on files depends on, besides the files."""

    there: Snapshot | ClusterCache
    """The cluster that they are meant for."""
    before: Sequence[Object]
    """Objects as they are now."""
    operation: str | None
    namespace: str
    chosen: Selector
    rules: Rules
    policy: Policy

    def __call__(self, sources: Sequence[Source]) -> Report:
        objects = [(document, common.placed(document, self.namespace)) for document in _documents(sources)]
        before = {_identity(obj): obj for obj in self.before}
        cluster = common.with_objects(self.there, (obj for _, obj in objects))
        judged, others = [], 0
        for document, obj in objects:
            if not self.chosen.matches(obj.labels):
                continue
            kind = kinds.of(obj)
            if kind is None or kind not in load_rules().by_kind:
                others += 1
            else:
                judged.append(self._judge(document, obj, kind, before.get(_identity(obj)), cluster))
        return Report(tuple(judged), others, sum(bool(source.documents) for source in sources))

    def _judge(
        self, document: Document, obj: Object, kind: Kind, before: Object | None, cluster: Cluster
    ) -> ObjectResult:
        operation = self.operation or (Operation.UPDATE if before else Operation.CREATE)
        request = Request(operation, kind, obj, before, name=obj.name, namespace=obj.namespace)
        response = review.judge(request, self.rules, cluster, self.policy)
        return ObjectResult(request, response, document, common.asked(request, self.rules, self.policy))


def _identity(obj: Object) -> tuple[str, str, str, str]:
    return obj.group, obj.kind, obj.namespace, obj.name


def _documents(sources: Iterable[Source]) -> list[Document]:
    return [document for source in sources for document in source.documents]


def _objects(sources: Iterable[Source], namespace: str) -> list[Object]:
    return [common.placed(document, namespace) for document in _documents(sources)]


def _looks_up(objects: Iterable[Object], rules: Rules) -> tuple[Kind, ...]:
    """What the rules for these objects look up: a live cluster need list nothing else."""
    judged = {kinds.of(obj) for obj in objects}
    return looked_up_kinds(Rules(rule for rule in rules if not judged.isdisjoint(rule.kinds)))


def _home(objects: Iterable[Object]) -> str:
    """The namespace of the objects, if it is one: who may not list in all namespaces may list there."""
    namespaces = {obj.namespace for obj in objects if obj.namespace}
    return namespaces.pop() if len(namespaces) == 1 else ""


def _read(paths: Sequence[str], stdin: str = "<stdin>") -> tuple[tuple[Source, ...], tuple[DocumentError, ...]]:
    """What the paths hold, and what could not be read of it, which also goes to stderr."""
    sources: list[Source] = []
    unread: list[DocumentError] = []
    for name, content in reader.find(paths, stdin):
        if isinstance(content, DocumentError):
            errors = [content]
        else:
            found, errors = reader.read(content, name)
            sources.append(Source(name, content, tuple(found), name == stdin and "-" in paths))
        unread += errors
        for error in errors:
            click.echo(str(error), err=True)
    return tuple(sources), tuple(unread)


def _tell(sources: Iterable[Source], chosen: Selector, result: Report) -> None:
    """Who was asked about each object."""
    judged = {id(one.document): one for one in result.judged}
    for document in _documents(sources):
        one = judged.get(id(document))
        if one:
            asked = f"{count(len(one.asked), 'rule')} asked"
        elif chosen.matches(Object(document.data).labels):
            asked = "no rule is about this kind"
        else:
            asked = "not selected"
        click.echo(f"{document.file}:{document.line}: {report.called(Object(document.data))}: {asked}", err=True)
