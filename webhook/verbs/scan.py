"""``virt-admit scan``: the rules over everything that a cluster holds.

Nothing is fixed and nothing is written to the cluster: what is there is judged as if it were created now, by the rules
of the webhook and by those that only make sense for what runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from webhook import engine, gauges, report
from webhook.admission import Request
from webhook.inventory import shelves
from webhook.model import kinds, selectors
from webhook.model.cluster import Cluster, Unseen
from webhook.model.drain import Outcome
from webhook.model.kinds import Kind
from webhook.model.objects import Object
from webhook.policy import Policy, PolicyError
from webhook.report import Judged, Report
from webhook.rule import Operation
from webhook.rules import Rules, load_rules
from webhook.saving import Sweep, save
from webhook.settings import SettingError
from webhook.sources import load_policy, load_snapshot
from webhook.verbs import common
from webhook.verbs.drain import plan


@click.command("scan", short_help="Judge a live cluster or a snapshot of one.")
@common.cluster_options
@click.option("-n", "--namespace", default="", metavar="NAME", help="Judge only what is in this namespace.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Judge only what has these labels, as in kubectl.")
@common.report_options
@click.option("--strict", is_flag=True, help="What could not be seen is a finding too.")
@click.option(
    "--save", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write a snapshot of the cluster."
)
@click.option(
    "--metrics", default="", metavar="FILE|URL", help="Write gauges to a file, or push them to a Pushgateway."
)
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
) -> int:
    """Judge everything in a live cluster, or in a snapshot of one. Only reads.

    Exit 0 clean, 1 findings at or above --fail-on, 2 the answer cannot be trusted.
    """
    if cluster and (live or kubeconfig or context):
        raise click.UsageError("--cluster excludes --live, --kubeconfig and --context")
    if metrics and (namespace or selector):
        raise click.UsageError("--metrics are of the whole cluster: leave out --namespace and --selector")
    began = time.monotonic()
    try:
        outputs = report.parse_output(output)
        chosen = selectors.parse_text(selector)
        rules = common.selected(load_rules(), select, ignore)
        policy = load_policy(policy_name, load_rules()).at(datetime.date.today())
        snapshot = load_snapshot(cluster) if cluster else None
    except (SettingError, PolicyError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    room = shelves(load_rules(), whole=True) if file else shelves(rules)
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
    if not quiet:
        common.conclude(result, policy)
    blind = sorted(there.unreadable)
    if blind:
        click.echo(f"not allowed to list {', '.join(blind)}", err=True)
    if result.crashed or not there.unreadable.isdisjoint(kind.resource for kind in judged):
        return 2
    if metrics:
        _measure(result, there, time.monotonic() - began, metrics)
    return int(common.found(result, fail_on) or (strict and bool(result.blind)))


def judge(
    cluster: Cluster,
    which: Sequence[Kind],
    rules: Rules,
    policy: Policy,
    wanted: Callable[[Object], bool] = lambda _: True,
    progress: common.Progress = lambda _kind, _count: None,
) -> Report:
    """What the rules say of the objects of these kinds, each as if it were created now."""
    judged: list[Judged] = []
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


def _judge(obj: Object, kind: Kind, rules: Rules, cluster: Cluster, policy: Policy) -> Judged:
    request = Request(Operation.CREATE, kind, obj, name=obj.name, namespace=obj.namespace)
    response = engine.review(request, rules, cluster, policy)
    return Judged(dataclasses.replace(request, obj=_named(obj)), response)  # a cluster is too big to remember it all


def _named(obj: Object) -> Object:
    """What reports say of an object: who it is."""
    metadata = {key: obj.metadata[key].value for key in ("name", "namespace", "uid") if obj.metadata[key].present}
    return Object({"apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata})


def _measure(result: Report, there: Cluster, seconds: float, where: str) -> None:
    blockers = {node.name: len(node.having(Outcome.BLOCKS)) for node in plan(there).nodes}
    try:
        gauges.publish(gauges.gauges(result, blockers, seconds), where)
    except OSError as error:
        raise click.ClickException(f"--metrics {where}: {error}") from None


def _save(there: Sweep, file: Path) -> None:
    try:
        save(there, file)
    except OSError as error:
        raise click.ClickException(str(error)) from None
