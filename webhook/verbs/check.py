"""``virt-admit check``: the webhook's engine on files."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from webhook import documents, engine, formats, policy, report
from webhook.admission import Request
from webhook.documents import Document, DocumentError
from webhook.model import kinds
from webhook.model.cluster import Cluster, Snapshot
from webhook.model.objects import Object
from webhook.model.texts import count
from webhook.report import Judged, Report
from webhook.rule import Operation
from webhook.rules import Rules, load_rules
from webhook.settings import SettingError
from webhook.sources import load_policy, load_snapshot
from webhook.verbs import common


@click.command("check", short_help="Judge manifest files as the webhook would.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--cluster", type=click.Path(path_type=Path), help="Snapshot (file or folder) that look-ups are answered from."
)
@click.option("--old", type=click.Path(path_type=Path), help="What is there now (file or folder): judge an UPDATE.")
@click.option(
    "--operation", type=click.Choice(["CREATE", "UPDATE"]), help="Default: UPDATE for what --old has, else CREATE."
)
@common.report_options
@click.option(
    "--strict", is_flag=True, help="What could not be seen, unknown kinds and duplicate keys are findings too."
)
@click.option("-n", "--namespace", default="default", show_default=True, help="For objects that name none.")
@click.option("--fail-if-no-objects", is_flag=True, help="Nothing recognised is an error.")
@click.option("--stdin-filename", default="<stdin>", metavar="NAME", help="What reports call standard input.")
@click.option("-v", "--verbose", is_flag=True, help="On stderr, what became of each object.")
def command(
    paths: tuple[str, ...],
    cluster: Path | None,
    old: Path | None,
    operation: str | None,
    policy_name: str,
    output: tuple[str, ...],
    fail_on: str,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    namespace: str,
    fail_if_no_objects: bool,
    stdin_filename: str,
    verbose: bool,
    color: str,
    quiet: bool,
) -> int:
    """Judge manifest files as the webhook would: apply its fixes in mind, then the rules.

    PATH is a file, a folder (*.yaml *.yml *.json) or - for standard input. All objects see each other. Exit 0 clean,
    1 findings at or above --fail-on, 2 the answer cannot be trusted.
    """
    try:
        outputs = formats.parse_output(output)
        rules = common.selected(load_rules(), select, ignore)
        decided = load_policy(policy_name, load_rules()).at(datetime.date.today())
        snapshot = load_snapshot(cluster) if cluster else Snapshot()
        before, missed = _read([str(old)]) if old else ([], [])
    except (SettingError, policy.PolicyError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    found, unread = _read(paths, stdin_filename)
    result = _judge(found, before, operation, namespace, rules, snapshot, decided)
    result = dataclasses.replace(result, unread=(*missed, *unread))
    common.publish(result, outputs, color)
    if verbose:
        _tell(found, result)
    if not quiet:
        common.conclude(result, decided)
    if result.unread or result.crashed:
        return 2
    if fail_if_no_objects and not result.judged:
        click.echo("no object that a rule is about", err=True)
        return 2
    if strict and (result.blind or result.other_kinds or any(document.duplicates for document in found)):
        return 1
    return int(common.found(result, fail_on))


def _read(paths: Sequence[str], stdin: str = "<stdin>") -> tuple[list[Document], list[DocumentError]]:
    """All documents in the paths, and what could not be read, which also goes to stderr."""
    found: list[Document] = []
    unread: list[DocumentError] = []
    for name, content in documents.find(paths, stdin):
        good, errors = ([], [content]) if isinstance(content, DocumentError) else documents.read(content, name)
        found += good
        unread += errors
        for error in errors:
            click.echo(str(error), err=True)
    return found, unread


def _tell(found: Iterable[Document], result: Report) -> None:
    """Who was asked about each object."""
    judged = {id(one.document): one for one in result.judged}
    for document in found:
        one = judged.get(id(document))
        asked = f"{count(len(one.asked), 'rule')} asked" if one else "no rule is about this kind"
        click.echo(f"{document.file}:{document.line}: {report.called(Object(document.data))}: {asked}", err=True)


def _judge(
    found: list[Document],
    before: list[Document],
    operation: str | None,
    namespace: str,
    rules: Rules,
    snapshot: Snapshot,
    decided: policy.Policy,
) -> Report:
    objects = [(document, common.placed(document, namespace)) for document in found]
    old = {_identity(obj): obj for obj in (common.placed(document, namespace) for document in before)}
    cluster: Cluster = snapshot.with_objects(obj for _, obj in objects)
    judged, others = [], 0
    for document, obj in objects:
        kind = kinds.of(obj)
        if kind is None or kind not in load_rules().by_kind:
            others += 1
            continue
        previous = old.get(_identity(obj))
        request = Request(
            operation or (Operation.UPDATE if previous else Operation.CREATE),
            kind,
            obj,
            previous,
            name=obj.name,
            namespace=obj.namespace,
        )
        response = engine.judge(request, rules, cluster, decided)
        judged.append(Judged(request, response, document, common.asked(request, rules, decided)))
    return Report(tuple(judged), others, len({document.file for document in found}))


def _identity(obj: Object) -> tuple[str, str, str, str]:
    return obj.group, obj.kind, obj.namespace, obj.name
