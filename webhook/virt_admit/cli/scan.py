"""``virt-admit scan``: the rules over everything that a cluster holds.

Nothing is fixed, and nothing but reports and Events is written to the cluster, on demand. What is there is judged as
if it were created now, by the rules of the webhook and by those that only make sense for what runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virt_admit.cli import common
from virt_admit.cli.drain import plan
from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.kube import snapshots
from virt_admit.kube.cache import stores
from virt_admit.model import kinds, selectors
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import Kind
from virt_admit.model.kubevirt.drain import VmOutcome
from virt_admit.model.objects import Object
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import Exemption, Policy, PolicyError
from virt_admit.reports import formats, scan_metrics
from virt_admit.reports.formats.policy_reports import WRITTEN
from virt_admit.reports.report import ObjectResult, Report
from virt_admit.rule import Operation
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError

if TYPE_CHECKING:
    from virt_admit.kube.client import Api


@click.command("scan", short_help="Judge a live cluster or a snapshot of one.")
@common.cluster_options
@click.option("-n", "--namespace", default="", metavar="NAME", help="Judge only what is in this namespace.")
@common.selector_option
@common.report_options
@click.option("--strict", is_flag=True, help="What could not be seen is a finding too.")
@click.option(
    "--save", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write a snapshot of the cluster."
)
@click.option(
    "--metrics", default="", metavar="FILE|URL", help="Write gauges to a file, or push them to a Pushgateway."
)
@click.option(
    "--write-reports",
    "form",
    type=click.Choice([*WRITTEN]),
    is_flag=False,
    flag_value="openreports",
    metavar="[openreports|policyreport]",
    help="Keep a report for each object in the live cluster.",
)
@click.option("--events", is_flag=True, help="Write an Event for each rule and object that it denies or warns of.")
def command(
    cluster: Path | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    selector: str,
    policy_name: str,
    output: tuple[str, ...],
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    color: str,
    quiet: bool,
    strict: bool,
    file: Path | None,
    metrics: str,
    form: str | None,
    events: bool,
) -> int:
    """Judge everything in a live cluster, or in a snapshot of one. Writes nothing there unless asked to.

    Exit 0 clean, 1 findings at or above --fail-on, 2 the answer cannot be trusted.
    """
    if cluster and (live or kubeconfig or context or form or events):
        raise click.UsageError("--cluster excludes --live, --kubeconfig, --context, --write-reports and --events")
    if metrics and (namespace or selector):
        raise click.UsageError("--metrics are of the whole cluster: leave out --namespace and --selector")
    if form and (selector or select or ignore):
        raise click.UsageError(
            "--write-reports is about all objects and rules: leave out --selector, --select, --ignore"
        )
    began = time.monotonic()
    try:
        outputs = formats.parse_output(output)
        chosen = selectors.parse_text(selector)
        rules = common.selected(load_rules(), select, ignore)
        policy = load_policy(policy_name, load_rules()).at(datetime.date.today())
        snapshot = snapshots.load(cluster) if cluster else None
    except (SettingError, PolicyError, ValueError, OSError) as error:
        raise common.failure(error) from None
    room = stores(load_rules(), whole=True) if file else stores(rules)
    there = common.sweep(room, kubeconfig, context, namespace, quiet) if snapshot is None else snapshot
    if file:
        _save(there, file)

    def wanted(obj: Object) -> bool:
        return namespace in ("", obj.namespace) and chosen.matches(obj.labels)

    judged = [kind for kind in rules.kinds if kind.namespaced or not namespace]
    with common.progress("judging", len(judged), quiet) as show:
        result = judge(there, judged, rules, policy, wanted, show)
    others = sum(kinds.of(obj) not in load_rules().by_kind for obj in snapshot or ())
    result = dataclasses.replace(result, other_kinds=others)
    common.publish(result, outputs, color)
    if form or events:
        _write(common.api(kubeconfig, context), result, form, events, there.unreadable, namespace)
    if not quiet:
        common.conclude(result, policy)
        whole = not (namespace or selector or select or ignore or there.unreadable)
        for exemption in unused(policy, result, rules) if whole else ():
            click.echo(f"exemption of {exemption.match} silences nothing: {exemption.reason}", err=True)
    blind = sorted(there.unreadable)
    if blind:
        click.echo(f"not allowed to list {', '.join(blind)}", err=True)
    if result.crashed or not there.unreadable.isdisjoint(kind.resource for kind in judged):
        return 2
    if metrics:
        _measure(result, there, time.monotonic() - began, metrics)
    return int(common.found(result, fail_on) or (strict and bool(result.blind)))


def unused(policy: Policy, result: Report, rules: Rules) -> list[Exemption]:
    """The exemptions of namespaces that are in force and silenced no finding of this report about everything.

    Those of rules that speak only of changes are not among them: a scan does not meet changes.
    """
    used = {
        policy.exempt(verdict.rule, one.request.user, one.request.namespace, one.obj)
        for one in result.judged
        for verdict in one.response.verdicts
        if verdict.exempted
    }
    met = [rule.id for rule in rules if Operation.CREATE in rule.operations]
    return [
        each
        for each in policy.namespaces
        if each not in used
        and each not in policy.expired
        and any(fnmatchcase(rule, pattern) for rule in met for pattern in each.rules)
    ]


def judge(
    cluster: Cluster,
    which: Sequence[Kind],
    rules: Rules,
    policy: Policy,
    wanted: Callable[[Object], bool] = lambda _: True,
    progress: common.Progress = lambda _kind, _count: None,
) -> Report:
    """What the rules say of the objects of these kinds, each as if it were created now."""
    judged: list[ObjectResult] = []
    for kind in which:
        progress(kind, 0)
        for count, obj in enumerate(_objects(cluster, kind), 1):
            if wanted(obj):
                judged.append(_judge(obj, kind, rules, cluster, policy))
            if count % 100 == 0:
                progress(kind, count)
    return Report(tuple(judged))


def _objects(cluster: Cluster, kind: Kind) -> Iterator[Object]:
    try:
        yield from cluster.list(kind)
    except Unseen:  # there may be more; the caller knows which kinds could not be read
        return


def _judge(obj: Object, kind: Kind, rules: Rules, cluster: Cluster, policy: Policy) -> ObjectResult:
    request = Request(Operation.CREATE, kind, obj, name=obj.name, namespace=obj.namespace)
    response = review.review(request, rules, cluster, policy)
    asked = common.asked(request, rules, policy)
    named = dataclasses.replace(request, obj=_named(obj))  # a cluster is too big to remember it all
    return ObjectResult(named, response, asked=asked)


def _named(obj: Object) -> Object:
    """What reports say of an object: who it is."""
    metadata = {key: obj.metadata[key].value for key in ("name", "namespace", "uid") if obj.metadata[key].present}
    return Object({"apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata})


def _write(api: Api, result: Report, form: str | None, events: bool, unreadable: frozenset[str], home: str) -> None:
    from virt_admit.reports import cluster_writer  # noqa: PLC0415 - kubernetes takes 0.3 s

    now = datetime.datetime.now(datetime.UTC)
    try:
        if form:
            seconds = int(now.timestamp())
            cluster_writer.write_reports(api, WRITTEN[form], result.judged, unreadable, home, seconds)
        if events:
            cluster_writer.write_events(api, result.judged, now)
    except cluster_writer.NotWritten as error:
        raise common.failure(error) from None


def _measure(result: Report, there: Cluster, seconds: float, where: str) -> None:
    blockers = {node.name: len(node.having(VmOutcome.BLOCKS)) for node in plan(there).nodes}
    try:
        scan_metrics.publish(scan_metrics.gauges(result, blockers, seconds), where)
    except OSError as error:
        raise click.ClickException(f"--metrics {where}: {error}") from None


def _save(there: snapshots.Sweep, file: Path) -> None:
    try:
        snapshots.save(there, file)
    except OSError as error:
        raise common.failure(error) from None
