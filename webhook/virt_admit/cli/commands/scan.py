"""``virt-admit scan``: run the rules on all objects of a cluster.

A scan judges each object as if it were created now, by the rules of the webhook and by those for
scans alone. It fixes nothing. It writes reports and Events into the cluster only on request.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from virt_admit.cli import multi_cluster, processes
from virt_admit.cli.cluster_source import (
    AnyCluster,
    connect,
    list_live,
    load_policy,
    read_events,
    read_further_kinds,
    require_judged,
    warn_unreadable,
)
from virt_admit.cli.findings_output import STRICT_HINT, has_findings, print_summary, publish
from virt_admit.cli.html_output import evidence
from virt_admit.cli.options import (
    ClusterOptions,
    ClustersOptions,
    ReportOptions,
    clusters_options,
    grouped,
    jobs_option,
    report_options,
    selector_option,
)
from virt_admit.cli.output import failure, progress, tell
from virt_admit.documents.reader import DocumentError
from virt_admit.forecasts.drain.access import awaited_certificates
from virt_admit.forecasts.drain.control import kubevirt_updates
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.guests import ending_guests, failing_probes
from virt_admit.forecasts.drain.targets import rebuilt_volumes
from virt_admit.forecasts.outage import explanation, failover_figures, outages
from virt_admit.forecasts.upgrade import estimate_basis
from virt_admit.forecasts.upgrade.rehearsal import READS, Options, rehearse
from virt_admit.kube import snapshots
from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.kube.field_filter import NO_READS
from virt_admit.kube.stores import stores
from virt_admit.model.evidence import reported
from virt_admit.model.kubernetes import kinds, selectors, webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.messages import capital, did_you_mean, names
from virt_admit.model.node_updates import cluster_updates
from virt_admit.model.releases import UpgradeTarget
from virt_admit.policy.policy import Exemption, Policy, PolicyError
from virt_admit.reports import scan_metrics
from virt_admit.reports.findings.formats.policy_reports import WRITTEN
from virt_admit.reports.findings.judging import drains, is_complete, judge
from virt_admit.reports.findings.report import Report
from virt_admit.reports.outage import failover_metrics
from virt_admit.rule import Action, Operation
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError
from virt_admit_certs.errors import error_text

if TYPE_CHECKING:
    from virt_admit.kube.snapshots import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """The options of ``scan`` alone."""

    namespace: str
    selector: str
    strict: bool
    save: Path | None
    metrics: str
    write_reports: str | None
    events: bool
    jobs: int | None


@click.command("scan", short_help="Judge a live cluster or a snapshot of one.")
@clusters_options
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAME",
    help="Judge only the objects of this namespace.",
)
@selector_option
@report_options
@click.option("--strict", is_flag=True, help="Also fail on missing data.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a snapshot of the cluster.",
)
@click.option(
    "--metrics",
    default="",
    metavar="FILE|URL",
    help="Write gauges to a file, or push them to a Pushgateway.",
)
@click.option(
    "--write-reports",
    type=click.Choice([*WRITTEN]),
    is_flag=False,
    flag_value="openreports",
    metavar="[openreports|policyreport]",
    help="Write a report for each object into the live cluster.",
)
@click.option(
    "--events",
    is_flag=True,
    help="Write an Event for each rule and object with a denial or a warning.",
)
@jobs_option
@grouped("options", ScanOptions)
def command(clusters: ClustersOptions, reporting: ReportOptions, options: ScanOptions) -> int:
    """Judge all objects of a live cluster or of a snapshot.
    Only --write-reports and --events write to the cluster.

    Exit 0 clean, 1 findings at or above --fail-on, 2 objects could not be listed or a rule crashed;
    of several clusters (--cluster or --context repeated) the highest exit code. Rules without data
    are counted; --strict fails on them.
    """
    sources = clusters.each()
    _require_compatible(sources, reporting, options)
    try:
        outputs = reporting.outputs()
        writes_pages = any(form == "html" for form, _ in outputs)
        selector = selectors.parse_text(options.selector)
        run = _Scan(reporting, options, reporting.rules().in_scan, selector, writes_pages)
    except (SettingError, ValueError, OSError) as error:
        raise failure(error) from None
    if len(sources) > 1:
        if any(name in ("openreports", "policyreport") for name, _ in outputs):
            raise click.UsageError(
                "openreports and policyreport are for one cluster: the reports belong into it"
            )
        return _scan_several(sources, run, outputs)
    one = run(sources[0][1])
    publish(one.report, outputs, reporting, grouped_text=True)
    _write(sources[0][1], one.report, options, one.cluster.unreadable)
    one.print_conclusion(reporting, options)
    if one.complete and options.metrics:
        _write_metrics(one.report, one.cluster, time.monotonic() - one.started, options.metrics)
    return one.exit_code(reporting, options)


def _scan_several(
    sources: Sequence[multi_cluster.Named], run: _Scan, outputs: Sequence[tuple[str, str | None]]
) -> int:
    """Scan several clusters into one report. Return the highest exit code."""
    scanned: dict[str, Scanned] = {}

    def answer(name: str, source: ClusterOptions) -> multi_cluster.ClusterAnswer:
        one = scanned[name] = run(source)
        code = one.exit_code(run.reporting, run.options)
        return multi_cluster.ClusterAnswer(code, _verdicts(one))

    names = {id(source): name for name, source in sources}
    answers = multi_cluster.ask_each(sources, lambda source: answer(names[id(source)], source))
    every = ((name, each) for name, one in scanned.items() for each in one.report.results)
    results = tuple(result._replace(cluster=name) for name, result in every)
    report = Report(
        results,
        other_kinds=sum(one.report.other_kinds for one in scanned.values()),
        policy=", ".join(dict.fromkeys(one.report.policy for one in scanned.values())),
        unreadable=tuple(
            DocumentError(one.error, name) for name, one in answers.items() if one.error
        ),
        clusters={name: one.error for name, one in answers.items()},
        drains={name: own for name, one in scanned.items() for own in one.report.drains.values()},
        heading="\n".join((*multi_cluster.matrix(answers), "", "")),
        evidence=tuple(
            (f"{key} of {name}", value)
            for name, one in scanned.items()
            for key, value in one.report.evidence
        ),
    )
    publish(report, outputs, run.reporting, grouped_text=True)
    for name, one in answers.items():
        if one.error:
            tell(f"cluster {name} cannot be read: {one.error}")
        else:
            tell(f"cluster {name}:")
            found = scanned[name]
            _write(dict(sources)[name], found.report, run.options, found.cluster.unreadable)
            found.print_conclusion(run.reporting, run.options)
    return multi_cluster.worst_code(answers)


def _verdicts(one: Scanned) -> dict[str, str]:
    """Return the numbers of objects with a denial, and with warnings alone;
    and whether all could be read.
    """
    highest = Counter(
        max((verdict.action for verdict in result.response.verdicts), default=Action.OFF)
        for result in one.report.results
    )
    return {
        "objects": str(len(one.report.results)),
        "denied": str(highest[Action.DENY]),
        "warned": str(highest[Action.WARN]),
        "complete": "yes" if one.complete else "no",
    }


@dataclass(frozen=True, slots=True)
class Scanned:
    """The scan of one cluster."""

    report: Report
    policy: Policy
    cluster: AnyCluster
    rules: Rules
    complete: bool
    """Whether every object was listed and no rule crashed."""
    started: float

    def exit_code(self, reporting: ReportOptions, options: ScanOptions) -> int:
        """Return 2 if the scan is not complete, 1 with findings that count, else 0."""
        if not self.complete:
            return 2
        strict = options.strict and bool(self.report.rules_without_data)
        return int(has_findings(self.report, reporting.fail_on) or strict)

    def print_conclusion(self, reporting: ReportOptions, options: ScanOptions) -> None:
        """Print the summary, an update of KubeVirt,
        unused exemptions and unreadable kinds on stderr.
        """
        if not reporting.quiet:
            print_summary(self.report, self.policy, "" if options.strict else STRICT_HINT)
            some = options.namespace or options.selector or reporting.select or reporting.ignore
            partial = some or self.cluster.unreadable
            _print_unused(() if partial else unused(self.policy, self.report, self.rules))
            if update := kubevirt_updates.under_way(self.cluster):
                tell(f"{capital(update)} goes on, as far as is known.")
        warn_unreadable(self.cluster)


@dataclass(frozen=True, slots=True)
class _Scan:
    """What the scans of all clusters share."""

    reporting: ReportOptions
    options: ScanOptions
    rules: Rules
    selector: Selector
    writes_pages: bool = False
    """Whether a page is written, which also says what drains would meet."""

    def __call__(self, source: ClusterOptions) -> Scanned:
        """Judge one cluster.

        Raises:
            ClickException: the cluster or its policy cannot be read.
        """
        reporting, options, rules = self.reporting, self.options, self.rules
        started = time.monotonic()
        try:
            place = None if source.cluster else source
            policy = load_policy(reporting.policy_choice(), reporting.policy_configmap, place)
            snapshot = snapshots.load(source.cluster, tell) if source.cluster else None
        except (SettingError, PolicyError, ValueError, OSError) as error:
            raise failure(error) from None
        cluster = (
            list_live(source, self._stores(), options.namespace, reporting.quiet)
            if snapshot is None
            else snapshot
        )
        judged_kinds = [kind for kind in rules.kinds if kind.namespaced or not options.namespace]
        if snapshot is not None and source.cluster is not None:
            require_judged(snapshot, load_rules().in_scan.kinds, source.cluster)
        if isinstance(cluster, ClusterCache):
            read_events(source, cluster, options.namespace, reporting.quiet)
        if options.save:
            _save(cluster, options.save)
        if isinstance(cluster, ClusterCache) and not reporting.select:
            read_further_kinds(source, cluster, options.namespace, reporting.quiet)
        with progress("judging", len(judged_kinds), reporting.quiet) as show:
            report = judge(
                cluster,
                judged_kinds,
                rules,
                policy,
                self._is_selected,
                show,
                reporting.target,
                reporting.owner_label,
                processes.sharing(cluster, options.jobs, policy),
            )
        if options.namespace and not report.results and not reporting.quiet:
            tell(_no_object(options.namespace, cluster))
        others, seen = _other_kinds(snapshot, reporting.target), evidence(source, cluster)
        report = report._replace(other_kinds=others, policy=policy.name, evidence=seen)
        if not (options.namespace or options.selector):
            refusals = cluster_updates.refusals(cluster)
            refused = (f"{cluster_updates.NAME}: {each}" for each in refusals)
            said = (*report.messages, *refused)  # a rule judges these
            guests = (*failing_probes.notes(cluster), *ending_guests.notes(cluster))
            found = (*guests, *awaited_certificates.reported(cluster))
            own = reported.of_cluster(cluster, said)
            own = tuple(rebuilt_volumes.ending(each, cluster) for each in own)
            report = report._replace(reported=(*found, *own))
        if self.writes_pages:
            report = report._replace(drains={"": drains(cluster, self._is_selected)})
        complete = is_complete(report, cluster, judged_kinds)
        return Scanned(report, policy, cluster, rules, complete, started)

    def _stores(self) -> list[KindStore]:
        """Return stores for what the rules need,
        and what the metrics or a snapshot need besides.
        """
        if self.options.save:
            return stores(load_rules().in_scan, _OF_A_SNAPSHOT, whole=True)
        if self.options.metrics:
            return stores(self.rules, union(READS, outages.READS), _NOTED)
        return stores(self.rules, READS if self.writes_pages else NO_READS, _NOTED)

    def _is_selected(self, obj: Object) -> bool:
        return self.options.namespace in ("", obj.namespace) and self.selector.matches(obj.labels)


def _no_object(namespace: str, cluster: Sweep) -> str:
    """Return what to say about a namespace without objects: its name may be misspelt."""
    known = sorted({obj.namespace for obj in cluster if obj.namespace} - {namespace})
    meant = did_you_mean(namespace, known) if known else None
    return f"no object to judge in namespace {namespace}. " + (
        f"Did you mean {meant}?" if meant else f"Namespaces with objects: {names(known) or 'none'}"
    )


def _other_kinds(snapshot: Sweep | None, target: UpgradeTarget) -> int:
    """Return the number of objects of kinds that no rule supports."""
    supported = load_rules().about(target).by_kind
    return sum(kinds.of(obj) not in supported for obj in snapshot or ())


def _require_compatible(
    sources: Sequence[multi_cluster.Named], reporting: ReportOptions, options: ScanOptions
) -> None:
    if len(sources) > 1 and (options.save or options.metrics):
        raise click.UsageError("--save and --metrics are for one cluster")
    if sources[0][1].cluster and (options.write_reports or options.events):
        raise click.UsageError("--cluster excludes --write-reports and --events")
    if options.metrics and (options.namespace or options.selector):
        raise click.UsageError("--metrics needs the whole cluster: omit --namespace and --selector")
    if reporting.target and (options.metrics or options.write_reports or options.events):
        raise click.UsageError(
            "--target is about an upgrade: omit --metrics, --write-reports and --events"
        )
    if options.write_reports and (options.selector or reporting.select or reporting.ignore):
        raise click.UsageError(
            "--write-reports needs all objects and rules: omit --selector, --select and --ignore"
        )


def _print_unused(exemptions: Iterable[Exemption]) -> None:
    for exemption in exemptions:
        tell(f"unused exemption for {exemption.match}: {exemption.reason}")


def unused(policy: Policy, report: Report, rules: Rules) -> list[Exemption]:
    """Return the exemptions of namespaces in force that matched no finding of a report about
    everything.

    Exemptions for rules about updates alone are not included, because a scan judges no updates.
    """
    used = {
        policy.exempt(verdict.rule, result.request.user, result.request.namespace, result.obj)
        for result in report.results
        for verdict in result.response.verdicts
        if verdict.exempted
    }
    on_create = [rule.id for rule in rules if Operation.CREATE in rule.operations]
    return [
        exemption
        for exemption in policy.namespaces
        if exemption not in used
        and exemption not in policy.expired
        and any(fnmatchcase(rule, pattern) for rule in on_create for pattern in exemption.rules)
    ]


def _write(
    source: ClusterOptions, report: Report, options: ScanOptions, unreadable: frozenset[str]
) -> None:
    """Write reports and Events into the cluster, as the options say."""
    if not (options.write_reports or options.events):
        return
    # importing kubernetes takes 0.3 s
    from virt_admit.reports import cluster_writer  # noqa: PLC0415

    api = connect(source)
    now = datetime.datetime.now(datetime.UTC)
    refused: Exception | None = None
    try:
        if options.write_reports:
            form, seconds = WRITTEN[options.write_reports], int(now.timestamp())
            try:
                cluster_writer.write_reports(
                    api, form, report.results, unreadable, options.namespace, seconds
                )
            except cluster_writer.WriteRefused as error:
                refused = error
        if options.events:
            cluster_writer.write_events(api, report.results, now)
    except cluster_writer.NotWritten as error:
        raise failure(error) from None
    if refused is not None:
        raise failure(refused)


def _write_metrics(report: Report, cluster: Cluster, seconds: float, target: str) -> None:
    nodes = plan(cluster).nodes
    blockers = {node.name: node.blockers for node in nodes}
    drainable = {node.name: node.drainable for node in nodes}
    options = Options(node_minutes=estimate_basis.node_minutes(None, cluster))
    duration = rehearse(cluster, options, forecast_only=True).duration
    bundles = webhook_bundles.expiry(cluster)
    try:
        registry = scan_metrics.gauges(report, blockers, seconds, duration, bundles, drainable)
        failover_metrics.add(registry, failover_figures.figures(cluster))
        scan_metrics.publish(registry, target)
    except OSError as error:
        raise click.ClickException(f"--metrics {target}: {error_text(error)}") from None


_NOTED: Final = union(
    *(reported.REPORTING, failing_probes.READS, ending_guests.READS, awaited_certificates.READS),
    rebuilt_volumes.READS,
)
_OF_A_SNAPSHOT: Final = union(READS, dict.fromkeys(explanation.LOOKS_UP, ()))
"""What ``drain``, ``upgrade`` and ``explain`` read of a snapshot."""


def _save(cluster: Sweep, file: Path) -> None:
    try:
        snapshots.save(cluster, file)
    except OSError as error:
        raise failure(error) from None
