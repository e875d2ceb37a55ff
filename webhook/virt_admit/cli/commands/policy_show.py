"""``virt-admit policy lint`` and ``policy show``: whether a policy is valid,
what is in force and why.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from virt_admit.cli.cluster_source import connect, load_policy
from virt_admit.cli.commands.doctor import InspectedApi
from virt_admit.cli.commands.doctor import connect as open_tls
from virt_admit.cli.options import ClusterOptions, output_option, rule_hint
from virt_admit.cli.output import failure
from virt_admit.install.inspect import Installation, Unreadable, expected_form
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count
from virt_admit.model.sanitize import line
from virt_admit.policy import files
from virt_admit.policy.explain import origins, winner
from virt_admit.policy.policy import Exemption, Policy, PolicyError, RuleSettings
from virt_admit.reports.values import json_text
from virt_admit.rule import Action, Rule
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import POLICY_CONFIGMAP, SettingError


@click.command("lint")
@click.argument("file", metavar="FILE")
def lint(file: str) -> int:
    """Check a policy file: its keys, rules, parameters and dates.
    Also print the exemptions that have expired.

    Exit 0 valid, 2 not valid.
    """
    try:
        policy = files.load_policy(file, load_rules()).at(datetime.date.today())
    except (SettingError, PolicyError, OSError) as error:
        raise failure(error) from None
    for exemption in policy.expired:
        expired = f"exemption for {exemption.match} expired on {exemption.until}"
        click.echo(line(f"{expired}: {exemption.reason}"))
    exemptions = len(policy.users) + len(policy.namespaces)
    layers = count(len(policy.layers), "layer")
    click.echo(f"{file}: valid ({layers}, {count(exemptions, 'exemption')})")
    return 0


@click.command("show")
@click.argument("namespace")
@click.argument("rule", required=False)
@click.option(
    "--policy",
    "policy_name",
    envvar="VIRT_ADMIT_POLICY",
    metavar="FILE|audit|default|strict",
    help="Show this policy instead of the one of the cluster.",
)
@click.option(
    "--policy-configmap",
    envvar="VIRT_ADMIT_POLICY_CONFIGMAP",
    metavar="NAMESPACE/NAME[,fallback=audit|default|strict]",
    help="The policy of the cluster. Default: the one that the webhook's Deployment names.",
)
@click.option("--kubeconfig", metavar="FILE", help="Kubeconfig of the cluster.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@output_option
def show(
    namespace: str,
    rule: str | None,
    policy_name: str | None,
    policy_configmap: str | None,
    output: str,
    **live: Any,
) -> int:
    """Show what is in force in NAMESPACE, and which layer of the policy decides it.

    With RULE: the settings of that rule in every layer, weakest first. Exit 0, or 2 if the policy
    cannot be read.
    """
    rules = load_rules()
    try:
        shown = _selected(rules, rule)
        source = ClusterOptions(live=True, **live)
        unasked = POLICY_CONFIGMAP if policy_name else ""
        configmap = policy_configmap or unasked or _deployed_configmap(source)
        policy = load_policy(policy_name, configmap, source)
    except (SettingError, PolicyError, OSError) as error:
        raise failure(error) from None
    if output == "json":
        click.echo(json_text(_as_data(policy, namespace, shown)))
        return 0
    click.echo(f"policy: {policy.name}")
    whole = _lines(policy, namespace, shown)
    for text in _rule_lines(policy, namespace, shown[0]) if rule else whole:
        click.echo(text)
    for exemption in _exemptions(policy, namespace, shown):
        click.echo(line(_exemption_line(exemption)))
    return 0


def _deployed_configmap(source: ClusterOptions) -> str:
    """Return the ConfigMap and the fallback that the webhook uses,
    or ours if the Deployment cannot be read.
    """
    installation = Installation(
        InspectedApi(connect(source)), load_rules(), datetime.datetime.now(datetime.UTC), open_tls
    )
    try:
        with expected_form():
            return installation.policy_configmap() or POLICY_CONFIGMAP
    except Unreadable:
        return POLICY_CONFIGMAP


def _selected(rules: Rules, name: str | None) -> Sequence[Rule]:
    if name is None:
        return list(rules)
    if name not in rules.by_id:
        raise SettingError(f"no rule has the id {name}. {rule_hint(name, rules)}")
    return [rules.by_id[name]]


def _lines(policy: Policy, namespace: str, rules: Sequence[Rule]) -> Iterator[str]:
    width = max(len(rule.id) for rule in rules)
    for rule in rules:
        action, layer = _in_force(policy, rule, namespace)
        yield line(f"{action!s:5}  {rule.id:{width}}  {layer}")


def _in_force(policy: Policy, rule: Rule, namespace: str) -> tuple[Action, str]:
    """Return the strongest action of a rule in the namespace, and what decides it:
    a layer or an exemption.
    """
    settings, layer = winner(policy, rule, namespace)
    exempt = [
        policy.exempt(rule, "", namespace, Object({"kind": kind.kind})) for kind in rule.kinds
    ]
    actions = [
        min(settings.action, each.max_action) if each else settings.action for each in exempt
    ]
    action = max(actions, default=settings.action)
    first = next((each for each in exempt if each), None)
    if first is None:
        return action, layer
    until = f" until {first.until}" if first.until else ""
    which = "" if all(exempt) else f" for {', '.join(first.kinds)} alone"
    why = f"{first.match}{until}: {first.reason}"
    return action, f"exempt{which}: {why} ({layer}: {settings.action})"


def _rule_lines(policy: Policy, namespace: str, rule: Rule) -> Iterator[str]:
    settings = policy.decide(rule, namespace)
    action, layer = _in_force(policy, rule, namespace)
    yield line(f"{rule.id} in namespace {namespace}: {action} ({layer})")
    yield f"  fix: {'on' if settings.fix else 'off' if rule.fixable else 'none'}"
    for name, value in _params(settings.params).items():
        yield f"  {name}: {value}"
    yield "layers, weakest first:"
    for origin in origins(policy, rule, namespace):
        yield f"  {origin.layer}: {json.dumps(_settings(origin.settings), default=str)}"


def _params(params: Any) -> dict[str, Any]:
    is_value = dataclasses.is_dataclass(params) and not isinstance(params, type)
    return dataclasses.asdict(params) if is_value else {}


def _settings(settings: RuleSettings) -> dict[str, Any]:
    """Return what a layer sets, without what it does not set."""
    action = str(settings.action) if settings.action is not None else None
    found = {"action": action, "fix": settings.fix, "params": dict(settings.params) or None}
    return {name: value for name, value in found.items() if value is not None}


def _exemptions(policy: Policy, namespace: str, rules: Sequence[Rule]) -> list[Exemption]:
    """Return the exemptions of the namespace and of users that are in force for one of the
    rules.
    """
    return [
        exemption
        for exemption in (*policy.namespaces, *policy.users)
        if exemption not in policy.expired
        and (exemption in policy.users or fnmatchcase(namespace, exemption.match))
        and any(fnmatchcase(rule.id, pattern) for rule in rules for pattern in exemption.rules)
    ]


def _exemption_line(exemption: Exemption) -> str:
    until = f" until {exemption.until}" if exemption.until else ""
    return (
        f"exempt: {exemption.match}: {', '.join(exemption.rules)}{until}: at most "
        f"{exemption.max_action}: {exemption.reason}"
    )


def _as_data(policy: Policy, namespace: str, rules: Sequence[Rule]) -> dict[str, Any]:
    return {
        "version": 1,
        "policy": policy.name,
        "namespace": namespace,
        "rules": [_rule_data(policy, namespace, rule) for rule in rules],
        "exemptions": [
            {
                "match": exemption.match,
                "rules": list(exemption.rules),
                "at_most": str(exemption.max_action),
                "until": exemption.until and str(exemption.until),
                "reason": exemption.reason,
            }
            for exemption in _exemptions(policy, namespace, rules)
        ],
    }


def _rule_data(policy: Policy, namespace: str, rule: Rule) -> dict[str, Any]:
    settings = policy.decide(rule, namespace)
    action, layer = _in_force(policy, rule, namespace)
    return {
        "rule": rule.id,
        "action": str(action),
        "fix": settings.fix,
        "layer": layer,
        "layers": [
            {"layer": each.layer, **_settings(each.settings)}
            for each in origins(policy, rule, namespace)
        ],
    }
