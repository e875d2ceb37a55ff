"""``virt-admit policy diff``: what another policy would change for the objects that exist."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from virt_admit.cli.common import failure
from virt_admit.cli.scan import judge
from virt_admit.engine.admission_review import Verdict
from virt_admit.kube import snapshots
from virt_admit.model.cluster import Cluster
from virt_admit.model.messages import count
from virt_admit.model.objects import Object
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.reports.report import Report, identity
from virt_admit.rule import Action
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError


@dataclass(frozen=True, slots=True)
class Change:
    """One finding that leads to something else; ``off`` stands for no finding at all."""

    obj: Object
    rule: str
    path: str
    message: str
    before: Action
    after: Action


@click.group("policy", short_help="Compare policies.")
def command() -> None:
    """Compare policies."""


@command.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--cluster", required=True, type=click.Path(path_type=Path), help="A snapshot (file or folder).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def diff(old: str, new: str, cluster: Path, output: str) -> int:
    """Say what the policy NEW would change for the objects of a cluster that are judged by OLD now.

    OLD and NEW are files, or audit, default or strict. Exit 0 no difference, 1 some, 2 the answer cannot be trusted.
    """
    try:
        rules, today = load_rules(), datetime.date.today()
        policies = [load_policy(name, rules).at(today) for name in (old, new)]
        snapshot = snapshots.load(cluster)
    except (SettingError, PolicyError, OSError) as error:
        raise failure(error) from None
    found = sorted(changes(snapshot, rules, *policies), key=_order)
    if output == "json":
        click.echo(json.dumps([_as_data(change) for change in found], indent=2, ensure_ascii=False))
    for change in found if output == "text" else ():
        name = f"{change.obj.kind}/{change.obj.full_name}"
        click.echo(f"{name}: {change.before} -> {change.after}: {change.path}: {change.message} [{change.rule}]")
    objects = {(change.obj.kind, change.obj.full_name) for change in found}
    click.echo(f"{count(len(found), 'finding')} of {count(len(objects), 'object')} would change", err=True)
    return int(bool(found))


def changes(cluster: Cluster, rules: Rules, old: Policy, new: Policy) -> Iterator[Change]:
    """Every finding whose action differs between the policies."""
    before, after = (_findings(judge(cluster, rules.kinds, rules, policy)) for policy in (old, new))
    for key in before.keys() | after.keys():
        obj, verdict = after.get(key) or before[key]
        was, becomes = (found[key][1].action if key in found else Action.OFF for found in (before, after))
        if was is not becomes:
            finding = verdict.finding
            yield Change(obj, verdict.rule.id, str(finding.path), finding.message, was, becomes)


def _findings(report: Report) -> dict[tuple[str, ...], tuple[Object, Verdict]]:
    return {
        (*identity(one.obj).values(), verdict.rule.id, str(verdict.finding.path)): (one.obj, verdict)
        for one in report.judged
        for verdict in one.response.verdicts
    }


def _order(change: Change) -> tuple[str, ...]:
    return (*identity(change.obj).values(), change.rule, change.path)


def _as_data(change: Change) -> dict[str, Any]:
    return {
        "object": identity(change.obj),
        "rule": change.rule,
        "path": change.path,
        "message": change.message,
        "before": str(change.before),
        "after": str(change.after),
    }
