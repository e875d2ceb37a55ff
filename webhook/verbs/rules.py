"""``virt-admit rules``: what is judged, and why."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import click

from webhook.model.units import format_duration
from webhook.rule import Rule
from webhook.rules import load_rules


@click.command("rules", short_help="List the rules, or show one with its reasons.")
@click.argument("rule_id", required=False, metavar="[ID]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(rule_id: str | None, output: str) -> int:
    """List the rules, or show one with its reasons, parameters and sources."""
    rules = load_rules()
    if rule_id is not None:
        rule = rules.by_id.get(rule_id)
        if rule is None:
            raise click.ClickException(f"there is no rule {rule_id}; `virt-admit rules` lists them")
        click.echo(json.dumps(as_data(rule), indent=2) if output == "json" else page(rule))
    elif output == "json":
        click.echo(json.dumps([as_data(rule) for rule in rules], indent=2))
    else:
        width = max(len(rule.id) for rule in rules)
        for rule in rules:
            click.echo(f"{rule.id:{width}}  {rule.action!s:5}  {rule.title}")
    return 0


def as_data(rule: Rule) -> dict[str, Any]:
    """A rule as JSON data."""
    return {
        "id": rule.id,
        "title": rule.title,
        "action": str(rule.action),
        "fixes": rule.fixes,
        "admission": rule.admission,
        "kinds": [kind.resource for kind in rule.kinds],
        "operations": [str(operation) for operation in rule.operations],
        "reads": [kind.resource for kind in rule.reads],
        "params": [
            {"name": each.name, "default": _default(rule, each), "doc": each.metadata.get("doc", "")}
            for each in dataclasses.fields(rule.params)
        ],
        "sources": list(rule.sources),
        "page": inspect.cleandoc(rule.doc or ""),
    }


def page(rule: Rule) -> str:
    """A rule's page for people, in Markdown."""
    data = as_data(rule)
    where = ", ".join(kind.kind for kind in rule.kinds)
    when = "at admission, check and scan" if rule.admission else "check and scan only"
    lines = [f"# {rule.id}", "", data["page"], "", f"Kinds: {where}", f"Action: {data['action']} ({when})"]
    if rule.fixes:
        lines.append(f"Fix: `/mutate` applies it{'' if rule.fix else ' if the policy says fix: true'}")
    if data["reads"]:
        lines.append(f"Looks up: {', '.join(data['reads'])}")
    lines += [f"Parameter {each['name']} (default {each['default']}): {each['doc']}" for each in data["params"]]
    return "\n".join([*lines, "Sources: " + "; ".join(rule.sources)])


def _default(rule: Rule, each: dataclasses.Field[Any]) -> Any:
    value = getattr(rule.params, each.name)
    return format_duration(value) if each.metadata.get("unit") == "duration" else value
