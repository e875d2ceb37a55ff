"""``virt-admit check``: the webhook's engine on files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from virt_admit.cli import fixes, processes
from virt_admit.cli.cluster_source import (
    AnyCluster,
    load_cluster,
    load_policy,
    namespaced_object,
    warn_unreadable,
    with_objects,
)
from virt_admit.cli.findings_output import has_findings, missing_data_hint, print_summary, publish
from virt_admit.cli.fixes import FixResult
from virt_admit.cli.options import (
    ClusterOptions,
    ReportOptions,
    cluster_options,
    grouped,
    jobs_option,
    report_options,
    selector_option,
)
from virt_admit.cli.output import failure, tell
from virt_admit.cli.project import Project, find_project
from virt_admit.cli.sources import Source, Sources, read_sources
from virt_admit.documents.batches import batches
from virt_admit.documents.files import Exclude
from virt_admit.documents.reader import Document
from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.forecasts.placement.planned_objects import Planned, planned
from virt_admit.model.kubernetes import kinds, selectors
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.messages import count
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.reports.findings.formats import FORMATS
from virt_admit.reports.findings.report import ObjectResult, Report, called, of_file
from virt_admit.rule import Operation
from virt_admit.rules import Rules, listed_rules
from virt_admit.settings import SettingError


class CheckOptions(NamedTuple):
    """The options of ``check`` alone."""

    old: Path | None
    operation: str | None
    strict: bool
    namespace: str
    selector: str
    diff: bool
    fix: bool
    fail_if_no_objects: bool
    stdin_filename: str
    exclude: tuple[str, ...]
    jobs: int | None
    verbose: bool


BATCH: Final = 250
"""Objects that a process judges at a time. Of more,
rules look up only the fields that they read.
"""


@click.command("check", short_help="Judge manifest files as the webhook would.")
@click.argument("paths", nargs=-1, type=click.Path(readable=False), metavar="PATH…")
@cluster_options
@click.option(
    "--old",
    type=click.Path(path_type=Path),
    help="The current objects (file or folder), to judge an UPDATE of them.",
)
@click.option(
    "--operation",
    type=click.Choice(["CREATE", "UPDATE"]),
    help="Default: UPDATE for objects that --old contains, else CREATE.",
)
@report_options
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Skip these files and subfolders in folders; * also matches /.",
)
@click.option(
    "--strict", is_flag=True, help="Also fail on missing data, unknown kinds and duplicate keys."
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of objects that do not name one.",
)
@selector_option
@click.option(
    "--diff",
    is_flag=True,
    help="Show what --fix would change instead of the report. Exit 1 on any change.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Write the fixes into the files, then report. With -, print the fixed text on stdout.",
)
@click.option(
    "--fail-if-no-objects", is_flag=True, help="Exit 2 if no object of a supported kind is found."
)
@click.option(
    "--stdin-filename", default="<stdin>", metavar="NAME", help="Name of standard input in reports."
)
@jobs_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Print on stderr how many rules ran for each object."
)
@grouped("options", CheckOptions)
def command(
    paths: tuple[str, ...], source: ClusterOptions, reporting: ReportOptions, options: CheckOptions
) -> int:
    """Judge manifest files as the webhook would: apply its fixes in memory, then run the rules.

    PATH is a file, a folder (*.yaml *.yml *.json) or - for standard input; default: the paths of
    .virt-admit.yaml. Rules see all given objects, and those of a named cluster. Exit 0 clean, 1
    findings at or above --fail-on, 2 a file or the cluster could not be read, or a rule crashed.
    Rules without data are counted; only --strict fails on them (exit 1).
    """
    source.require_one()
    try:
        project = find_project()
        rules = reporting.rules()
        policy = _policy(source, reporting)
        selector = selectors.parse_text(options.selector)
    except (SettingError, PolicyError, ValueError, OSError) as error:
        raise failure(error) from None
    paths, source = _paths(paths, project), _source(source, project)
    outputs = _outputs(paths, reporting, options)
    old = read_sources([str(options.old)], strict=options.strict) if options.old else Sources()
    fixing = options.fix or options.diff
    found = _read(paths, project, options, fixing)
    sources, current = found.files, _objects(old.files, options.namespace)
    cluster = _cluster(source, sources, options.namespace, rules, reporting.quiet)
    judge = _FileJudge(cluster, current, selector, rules, policy, options, reporting)
    report, fixed = judge(sources, include_opt_in_fixes=fixing), fixes.NOTHING
    if options.diff:
        fixed = fixes.show(sources, report)
    elif options.fix:
        fixed = fixes.fix_files(sources, report)
        sources, report = fixed.sources, judge(fixed.sources)
    report = _with_reading(report, old, found, source, cluster, policy)
    publish(report, outputs, reporting)
    if options.fix and "-" in paths and not outputs:  # stdout has the fixed text
        click.echo(FORMATS["text"](report), nl=False, err=True)
    if options.verbose:
        _print_rule_counts(sources, selector, report)
    if not reporting.quiet:
        print_summary(report, policy, missing_data_hint(options.strict, source.given))
        if fixed.summary:
            tell(fixed.summary)
        if options.diff and has_findings(report, reporting.fail_on):
            tell("some findings need more than a fix. Run without --diff to see the report")
        project.print_file()
    return _exit_code(report, sources, fixed, reporting, options)


def _policy(source: ClusterOptions, reporting: ReportOptions) -> Policy:
    """Return the named policy, else that of the live cluster if one is read, else ``default``."""
    live = source if source.wants_live else None
    return load_policy(reporting.policy_choice(), reporting.policy_configmap, live)


def _with_reading(
    report: Report,
    old: Sources,
    found: Sources,
    source: ClusterOptions,
    cluster: AnyCluster,
    policy: Policy,
) -> Report:
    """Return the report with what was skipped or could not be read, and what it rests on."""
    report = report._replace(
        unreadable=(*old.unreadable, *found.unreadable),
        skipped=report.skipped + found.skipped,
        templates=found.templates,
        policy=policy.name,
    )
    if not source.given:
        return report
    # only reports about a cluster have evidence
    from virt_admit.cli.html_output import evidence  # noqa: PLC0415

    return report._replace(evidence=evidence(source, cluster))


def _paths(paths: tuple[str, ...], project: Project) -> tuple[str, ...]:
    """Return the paths of the command line, else those of the project."""
    if not paths and not project.paths:
        raise click.UsageError(
            "Missing argument 'PATH…': name files or folders, or set paths in .virt-admit.yaml"
        )
    return paths or project.paths


def _source(source: ClusterOptions, project: Project) -> ClusterOptions:
    return (
        source if source.given or not project.cluster else source._replace(cluster=project.cluster)
    )


def _read(paths: tuple[str, ...], project: Project, options: CheckOptions, keep: bool) -> Sources:
    excludes = (*map(Exclude, options.exclude), *project.excludes)
    return read_sources(paths, options.stdin_filename, excludes, options.strict, options.jobs, keep)


def _outputs(
    paths: Sequence[str], reporting: ReportOptions, options: CheckOptions
) -> list[tuple[str, str | None]]:
    """Return the formats with their files (None: stdout);
    empty if stdout has a diff or a fixed text instead.

    Raises:
        ClickException: a format is unknown, or several texts would go to stdout.
    """
    if options.diff and options.fix:
        raise click.UsageError("--diff only shows what --fix writes: choose one")
    other = "diff" if options.diff else "fixed text" if options.fix and "-" in paths else ""
    try:
        outputs = reporting.outputs() if reporting.output or not other else []
    except ValueError as error:
        raise failure(error) from None
    if other and any(file is None for _, file in outputs):
        raise click.UsageError(
            f"stdout contains the {other}. Write the report to a file: -o json=report.json"
        )
    return outputs


def _cluster(
    source: ClusterOptions, sources: Sequence[Source], namespace: str, rules: Rules, quiet: bool
) -> AnyCluster:
    """Return the named cluster, of a live one only the kinds that the rules for these objects look
    up.
    """
    if not source.given:
        return Snapshot()
    objects = _objects(sources, namespace)
    looks_up = _looks_up(objects, rules)
    cluster = load_cluster(source, looks_up, _only_namespace(objects), quiet, further=False)
    warn_unreadable(cluster, looks_up)
    return cluster


def _exit_code(
    report: Report,
    sources: Sequence[Source],
    fixed: FixResult,
    reporting: ReportOptions,
    options: CheckOptions,
) -> int:
    if report.unreadable or report.crashed or fixed.failed:
        return 2
    if options.fail_if_no_objects and not report.results:
        tell("no objects of a supported kind found")
        return 2
    duplicates = any(document.duplicates for document in _documents(sources))
    strict_findings = options.strict and (
        report.rules_without_data or report.other_kinds or duplicates
    )
    return int(bool(strict_findings or fixed.unfixed) or has_findings(report, reporting.fail_on))


class _FileJudge(NamedTuple):
    """Everything that the report on files depends on, except the files."""

    cluster: AnyCluster
    """The cluster that the objects are meant for."""
    old: Sequence[Object]
    """The current objects, for updates."""
    selector: Selector
    rules: Rules
    policy: Policy
    options: CheckOptions
    reporting: ReportOptions

    def __call__(self, sources: Sequence[Source], include_opt_in_fixes: bool = False) -> Report:
        """Return the report.

        With ``include_opt_in_fixes`` the objects are fixed as ``--fix`` does.
        """
        old = {_identity(obj): obj for obj in self.old}
        documents = _documents(sources)
        cluster = with_objects(self.cluster, self._looked_up(documents))
        cluster.provide(planned, _PlannedDocuments(self, documents, old))
        judge = partial(
            self._judged, cluster=cluster, old=old, include_opt_in_fixes=include_opt_in_fixes
        )
        shares = list(batches(documents, lambda _: 1, BATCH))
        judged = list(processes.share(judge, shares, self.options.jobs))
        results = tuple(
            one._replace(document=each)
            for batch, (found, _) in zip(shares, judged, strict=True)
            for each, one in zip(batch, found, strict=True)
            if one is not None
        )
        other_kinds = sum(others for _, others in judged)
        skipped = sum(len(source.documents) - len(source.objects) for source in sources)
        return Report(
            results, other_kinds, sum(bool(source.objects) for source in sources), skipped
        )

    def _judged(
        self,
        documents: Sequence[Document],
        cluster: Cluster,
        old: Mapping[_Identity, Object],
        include_opt_in_fixes: bool,
    ) -> tuple[list[ObjectResult | None], int]:
        """Return the result of each document (None: it is not judged),
        and the number of objects of other kinds.
        """
        found: list[ObjectResult | None] = []
        other_kinds = 0
        supported = listed_rules().about(self.reporting.target).by_kind
        for document in documents:
            obj, result = namespaced_object(document, self.options.namespace), None
            if self.selector.matches(obj.labels):
                kind = kinds.of(obj)
                if kind is None or kind not in supported:
                    other_kinds += 1
                else:
                    result = self._result(
                        document, obj, kind, old.get(_identity(obj)), cluster, include_opt_in_fixes
                    )
            found.append(result)
        return found, other_kinds

    def _looked_up(self, documents: Sequence[Document]) -> Iterator[Object]:
        """Yield the objects that rules may look up; of many, those of numerous kinds with the
        fields that rules read alone.
        """
        from virt_admit.kube.field_filter import retained_fields  # noqa: PLC0415 - see _looks_up

        found = [kinds.of(Object(document.data)) for document in documents]
        # to learn the fields takes longer than a few need
        judged = set(found) if len(documents) > BATCH else set()
        fields = retained_fields(self.rules.where(lambda rule: not judged.isdisjoint(rule.kinds)))
        for document, kind in zip(documents, found, strict=True):
            if not judged or kind is None or not kind.numerous:
                yield namespaced_object(document, self.options.namespace)
            elif kind in fields:
                obj = namespaced_object(document, self.options.namespace)
                yield Object(fields[kind].filter(obj.data), obj.namespace)

    def _result(
        self,
        document: Document,
        obj: Object,
        kind: Kind,
        old: Object | None,
        cluster: Cluster,
        include_opt_in_fixes: bool,
    ) -> ObjectResult:
        operation = self.options.operation or (Operation.UPDATE if old else Operation.CREATE)
        name, namespace, target = obj.name, obj.namespace, self.reporting.target
        request = Request(
            *(operation, kind, obj, old),
            name=name,
            namespace=namespace,
            target=target,
            has_variables=True,
        )
        response = review.judge(request, self.rules, cluster, self.policy, include_opt_in_fixes)
        return of_file(request, response, document, self.reporting.owner_label)


@dataclass(frozen=True)
class _PlannedDocuments:
    """The objects that are judged, which may take room from each other."""

    judge: _FileJudge
    documents: Sequence[Document]
    old: Mapping[_Identity, Object]

    def __iter__(self) -> Iterator[Planned]:
        for document in self.documents:
            obj = namespaced_object(document, self.judge.options.namespace)
            if self.judge.selector.matches(obj.labels):
                yield Planned(obj, self.old.get(_identity(obj)))


_Identity = tuple[str, str, str, str]


def _identity(obj: Object) -> _Identity:
    return obj.group, obj.kind, obj.namespace, obj.name


def _documents(sources: Iterable[Source]) -> list[Document]:
    return [document for source in sources for document in source.objects]


def _objects(sources: Iterable[Source], namespace: str) -> list[Object]:
    return [namespaced_object(document, namespace) for document in _documents(sources)]


def _looks_up(objects: Iterable[Object], rules: Rules) -> tuple[Kind, ...]:
    """Return the kinds that the rules for these objects look up."""
    # checking files alone looks up nothing
    from virt_admit.kube.field_filter import looked_up_kinds  # noqa: PLC0415

    object_kinds = {kinds.of(obj) for obj in objects}
    return looked_up_kinds(rules.where(lambda rule: not object_kinds.isdisjoint(rule.kinds)))


def _only_namespace(objects: Iterable[Object]) -> str:
    """Return the namespace of the objects if they share one:
    a user without cluster-wide rights may list there.
    """
    namespaces = {obj.namespace for obj in objects if obj.namespace}
    return namespaces.pop() if len(namespaces) == 1 else ""


def _print_rule_counts(sources: Iterable[Source], selector: Selector, report: Report) -> None:
    """Print on stderr how many rules ran for each object."""
    results = {id(result.document): result for result in report.results}
    for document in _documents(sources):
        obj = Object(document.data)
        result = results.get(id(document))
        if result:
            message = f"{count(len(result.response.evaluated_rules), 'rule')} ran"
        elif selector.matches(obj.labels):
            message = "no rule supports this kind"
        else:
            message = "not selected"
        tell(f"{document.file}:{document.line}: {called(obj)}: {message}")
