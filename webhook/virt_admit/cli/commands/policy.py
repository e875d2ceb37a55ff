"""``virt-admit policy``: check and show a policy, and show what another one would change for the
objects of a cluster.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from virt_admit.cli.cluster_source import require_judged
from virt_admit.cli.commands.policy_show import lint, show
from virt_admit.cli.options import output_option
from virt_admit.cli.output import failure, tell
from virt_admit.engine.admission_review import Verdict
from virt_admit.kube import snapshots
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count
from virt_admit.model.sanitize import line
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.reports.findings.judging import judge
from virt_admit.reports.findings.report import Report, identity
from virt_admit.reports.values import json_text
from virt_admit.rule import Action
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError


@dataclass(frozen=True, slots=True)
class ActionChange:
    """One finding whose action changes. ``off`` also means: no finding."""

    obj: Object
    rule: str
    path: str
    message: str
    before: Action
    after: Action


@click.group("policy", short_help="Check, show and compare policies.")
def command() -> None:
    """Check, show and compare policies."""


command.add_command(lint)
command.add_command(show)


@command.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--cluster",
    required=True,
    type=click.Path(path_type=Path),
    help="Read a snapshot (file or folder).",
)
@output_option
def diff(old: str, new: str, cluster: Path, output: str) -> int:
    """Show what changes for the objects of a cluster if the policy NEW replaces OLD.

    OLD and NEW are files, or audit, default or strict. Exit 0 no difference, 1 some, 2 the answer
    cannot be trusted.
    """
    try:
        rules, today = load_rules(), datetime.date.today()
        policies = [load_policy(name, rules).at(today) for name in (old, new)]
        snapshot = snapshots.load(cluster, tell)
    except (SettingError, PolicyError, OSError) as error:
        raise failure(error) from None
    require_judged(snapshot, rules.kinds, cluster)
    found = sorted(changes(snapshot, rules, *policies), key=_order)
    if output == "json":
        click.echo(json_text(list(map(_as_data, found))))
    for change in found if output == "text" else ():
        name = f"{change.obj.kind}/{change.obj.full_name}"
        text = f"{change.before} -> {change.after}: {change.path}: {change.message} [{change.rule}]"
        click.echo(line(f"{name}: {text}"))
    objects = {(change.obj.kind, change.obj.full_name) for change in found}
    tell(f"{count(len(found), 'finding')} of {count(len(objects), 'object')} would change")
    return int(bool(found))


def changes(cluster: Cluster, rules: Rules, old: Policy, new: Policy) -> Iterator[ActionChange]:
    """Yield every finding whose action differs between the policies."""
    before, after = (_findings(judge(cluster, rules.kinds, rules, policy)) for policy in (old, new))
    for key in before.keys() | after.keys():
        obj, verdict = after.get(key) or before[key]
        old_action, new_action = (
            found[key][1].action if key in found else Action.OFF for found in (before, after)
        )
        if old_action is not new_action:
            finding = verdict.finding
            yield ActionChange(
                obj, verdict.rule.id, str(finding.path), finding.message, old_action, new_action
            )


def _findings(report: Report) -> dict[tuple[str, ...], tuple[Object, Verdict]]:
    return {
        (*identity(each.obj).values(), found.rule.id, str(found.finding.path)): (each.obj, found)
        for each in report.results
        for found in each.response.verdicts
    }


def _order(change: ActionChange) -> tuple[str, ...]:
    return (*identity(change.obj).values(), change.rule, change.path)


def _as_data(change: ActionChange) -> dict[str, Any]:
    return {
        "object": identity(change.obj),
        "rule": change.rule,
        "path": change.path,
        "message": change.message,
        "before": str(change.before),
        "after": str(change.after),
    }
