"""Why a rule has its settings in a namespace: every layer that sets them, weakest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.policy.policy import EffectiveSettings, Policy, RuleSettings
from virt_admit.rule import Action, Rule

CLASS = "the rule itself"
"""The name of the weakest layer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What one layer sets for a rule."""

    layer: str
    settings: RuleSettings


def origins(policy: Policy, rule: Rule, namespace: str) -> Iterator[Origin]:
    """Yield what each layer sets for the rule in the namespace.

    The last one that sets a value wins.
    """
    yield Origin(CLASS, RuleSettings(rule.action, rule.fix_by_default if rule.fixable else None))
    for layer in policy.layers:
        if layer.covers(namespace):
            # a pattern never enables a rule that is off by default
            ignored = rule.action is Action.OFF and rule.id not in layer.rules
            for settings in layer.rulings(rule.id):
                yield Origin(layer.name, settings._replace(action=None) if ignored else settings)


def winner(policy: Policy, rule: Rule, namespace: str) -> tuple[EffectiveSettings, str]:
    """Return the settings of the rule in the namespace, and the layer that decides its action."""
    setting = [
        origin.layer
        for origin in origins(policy, rule, namespace)
        if origin.settings.action is not None
    ]
    return policy.decide(rule, namespace), setting[-1]
