"""``virt-admit rules``: the rules, their reasons and the schema of policies."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import sys
from typing import Any, Final

import click

from virt_admit.cli.options import output_option, rule_hint
from virt_admit.cli.output import wants_color
from virt_admit.install.policies import reason
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.policy.policy import SHIPPED
from virt_admit.rule import Action, Rule
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import API_VERSION

OPT_IN: Final = (
    "`check --fix` writes it unless the policy says fix: false. "
    "`/mutate` applies it to new VMs and pools if the policy says fix: true"
)
"""What happens to a fix that is off out of the box."""


@click.command("rules", short_help="List the rules, or show one rule with its reasons.")
@click.argument("rule_id", required=False, metavar="[ID]")
@output_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of policy files, for editors.")
def command(rule_id: str | None, output: str, schema: bool) -> int:
    """List the rules, or show one rule with its reasons, parameters and sources."""
    rules = load_rules()
    if schema:
        click.echo(json.dumps(policy_schema(rules), indent=2))
    elif rule_id is not None:
        rule = rules.by_id.get(rule_id)
        if rule is None:
            raise click.ClickException(f"no rule has the id {rule_id}. {rule_hint(rule_id, rules)}")
        click.echo(json.dumps(as_data(rule), indent=2) if output == "json" else shown(page(rule)))
    elif output == "json":
        click.echo(json.dumps([as_data(rule) for rule in rules], indent=2))
    else:
        width = max(len(rule.id) for rule in rules)
        for rule in rules:
            click.echo(f"{rule.id:{width}}  {rule.action!s:5}  {rule.title}")
    return 0


def as_data(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON data."""
    return {
        "id": rule.id,
        "title": rule.title,
        "action": str(rule.action),
        "fixes": rule.fixable,
        "admission": rule.at_admission,
        "scan": rule.in_scan,
        "target": dict(rule.target),
        "kinds": [kind.resource for kind in rule.kinds],
        "operations": [str(operation) for operation in rule.operations],
        "reads": [kind.resource for kind in rule.reads],
        "params": [
            {
                "name": param.name,
                "default": _default(rule, param),
                "doc": param.metadata.get("doc", ""),
            }
            for param in dataclasses.fields(rule.params)
        ],
        "sources": list(rule.sources),
        "page": inspect.cleandoc(rule.doc or ""),
    }


def page(rule: Rule) -> str:
    """Return the page of a rule, in Markdown."""
    data = as_data(rule)
    kinds = ", ".join(dict.fromkeys(kind.kind for kind in rule.kinds))
    scope = "check and scan" if rule.in_scan else "check"
    scope = f"at admission, {scope}" if rule.at_admission else f"{scope} only"
    lines = [
        f"# {rule.id}",
        "",
        data["page"],
        "",
        f"Kinds: {kinds}",
        f"Action: {data['action']} ({scope})",
    ]
    if rule.fixable:
        lines.append(f"Fix: {'`/mutate` applies it' if rule.fix_by_default else OPT_IN}")
    if rule.target:
        since = ", ".join(f"{component} {release}" for component, release in rule.target.items())
        lines.append(f"Target: runs only with `--target`, from {since} on")
    if rule.action is Action.DENY:
        exported = "a ValidatingAdmissionPolicy denies the same"
        floor = exported if rule.denials else f"not exported: {reason(rule)}"
        lines.append(f"Floor: {floor}")
    if data["reads"]:
        lines.append(f"Looks up: {', '.join(data['reads'])}")
    params = ((each["name"], each["default"], each["doc"]) for each in data["params"])
    lines += [f"Parameter {name} (default {default}): {doc}" for name, default, doc in params]
    return "\n".join([*lines, "Sources: " + "; ".join(rule.sources)])


def shown(text: str) -> str:
    """Return Markdown as it is; on a terminal as plain text, with bold headings."""
    if not sys.stdout.isatty():
        return text
    bold = functools.partial(click.style, bold=True) if wants_color() else str
    text = re.sub(r"(?m)^# (.*)$", lambda match: bold(match[1]), text)
    text = re.sub(r"\*\*(.+?)\*\*", lambda match: bold(match[1]), text)
    return re.sub(r"(`+)(.+?)\1", r"\2", text)


def policy_schema(rules: Rules) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of policy files for these rules and their
    parameters.
    """
    strings = {"type": "array", "items": {"type": "string"}}
    names = {"anyOf": [{"type": "string"}, strings]}
    action = {"enum": [str(value) for value in Action]}
    setting = _closed({"action": action, "fix": {"type": "boolean"}})
    settings = _closed({rule.id: _setting_schema(rule, action) for rule in rules})
    settings["patternProperties"] = {r"\*": setting}
    exemption = _closed(
        {
            "match": {"type": "string"},
            "rules": names,
            "kinds": names,
            "reason": {"type": "string", "minLength": 1},
            "until": {"type": "string", "format": "date"},
            "at_most": action,
        },
        required=["match", "rules", "reason"],
    )
    exemptions = {"type": "array", "items": exemption}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "virt-admit policy",
        **_closed(
            {
                "apiVersion": {"const": API_VERSION},
                "kind": {"const": "Policy"},
                "extends": {"enum": list(SHIPPED)},
                "rules": settings,
                "namespaces": {
                    "type": "array",
                    "items": _closed({"match": names, "rules": settings}, required=["match"]),
                },
                "exempt": _closed(
                    {"users": exemptions, "namespaces": exemptions, "annotations": names}
                ),
            }
        ),
    }


def _setting_schema(rule: Rule, action: dict[str, Any]) -> dict[str, Any]:
    params = {param.name: _param_schema(param) for param in dataclasses.fields(rule.params)}
    optional = {"params": _closed(params)} if params else {}
    schema = _closed({"action": action, "fix": {"type": "boolean"}, **optional})
    return schema | {"description": rule.title}


def _param_schema(param: dataclasses.Field[Any]) -> dict[str, Any]:
    doc = {"description": param.metadata.get("doc", "")}
    if "choices" in param.metadata:
        return {"enum": list(param.metadata["choices"]), **doc}
    if param.metadata.get("unit") == "duration" or isinstance(param.default, str):
        return {"type": "string", **doc}
    if param.metadata.get("unit") == "percent":
        return {"type": "string", "pattern": "^[0-9]{1,3}%$", **doc}
    if dataclasses.is_dataclass(param.default):
        fields = dataclasses.fields(param.default)
        return _closed({each.name: _param_schema(each) for each in fields}) | doc
    if isinstance(param.default, bool):
        return {"type": "boolean", **doc}
    if isinstance(param.default, int):
        return {"type": "integer", **doc}
    return {"type": "array", "items": {"type": "string"}, **doc}


def _closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _default(rule: Rule, param: dataclasses.Field[Any]) -> Any:
    return _written(param, getattr(rule.params, param.name))


def _written(param: dataclasses.Field[Any], value: Any) -> Any:
    """Return a value of a parameter as a policy writes it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {each.name: _written(each, getattr(value, each.name)) for each in fields}
    if param.metadata.get("unit") == "percent":
        return f"{value}%"
    return format_duration(value) if param.metadata.get("unit") == "duration" else value
