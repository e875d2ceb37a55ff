"""A toleration or node requirement for the SNR agents is not valid.

**Why.** The operator copies these fields into the DaemonSet of its agents. The API server rejects
that DaemonSet, so the nodes get no agent. A node without an agent never reboots itself. The
operator's webhook rejects most of these values too; for the others, the syntax of keys and values,
the rule only warns.

**Fix.** Tolerations: operator ``Equal`` or ``Exists`` (without a value), effect ``NoSchedule``,
``PreferNoSchedule`` or ``NoExecute``. Requirements: a key, and ``In`` or ``NotIn`` with values,
``Exists`` or ``DoesNotExist`` without, ``Gt`` or ``Lt`` with one integer.
"""

from typing import Any, Final

from virt_admit.model import cel, cel_selectors
from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.kubernetes.selectors import IN, NODE_OPERATORS, NOT_IN, parse_requirements
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, rule, show

OPERATORS: Final = ("", "Equal", "Exists")
EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
REQUIREMENTS: Final = "customDsNodeSelectorRequirements"

_REQUIREMENTS: Final = f"self.?spec.?{REQUIREMENTS}"


def _word(key: str) -> str:
    """Return a text of a toleration, empty for any other value, in CEL."""
    return f"({cel.is_text(f'item.?{key}')} ? item.{key} : '')"


_VALID_TOLERATION: Final = (
    f"{cel.one_of(_word('operator'), OPERATORS)} && {cel.one_of(_word('effect'), EFFECTS)}"
    f" && !({_word('operator')} == 'Exists' && {_word('value')} != '')"
)


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=cel.items("self.?spec.?customDsTolerations"),
            when=f"type(item) == map && !({_VALID_TOLERATION})",
            path="'spec.customDsTolerations'",
            message=(
                "'this is not a valid toleration. Write operator Equal, or Exists without a value, "
                "and effect ' + 'NoSchedule, PreferNoSchedule or NoExecute.'"
            ),
            value="item",
        ),
        cel.Denial(
            when=f"{cel.present(_REQUIREMENTS)} && type({_REQUIREMENTS}.orValue(null)) != list",
            path=f"'spec.{REQUIREMENTS}'",
            message=(
                f"{cel.shown(f'{_REQUIREMENTS}.orValue(null)')} + ' is not a list of requirements'"
            ),
            value=f"{_REQUIREMENTS}.orValue(null)",
        ),
        cel.Denial(
            each=cel.items(_REQUIREMENTS),
            when=f"!{cel_selectors.valid_requirement('item', NODE_OPERATORS, syntax=False)}",
            path=f"'spec.{REQUIREMENTS}'",
            message=(
                "'this is not a valid requirement: write a key, and In or NotIn with values, "
                "Exists or DoesNotExist ' + 'without, Gt or Lt with one integer in quotes'"
            ),
            value="item",
        ),
    ),
    sources=(
        (
            "medik8s/"
            "self-node-remediation:selfnoderemediationconfig_webhook.go#validateCustomTolerations"
        ),
        (
            "medik8s/"
            "self-node-remediation:selfnoderemediationconfig_webhook.go#validateCustomDsNodeSelectors"
        ),
    ),
)
def check(config: Object, _context: Context) -> Findings:
    for toleration in config.at("spec", "customDsTolerations").items():
        if problem := _problem(toleration):
            yield Finding(toleration.path, problem)
    field = config["spec"][REQUIREMENTS]
    webhook = parse_requirements(_without_syntax(field), NODE_OPERATORS, REQUIREMENTS)[1]
    refused = {subpath for subpath, _ in webhook}
    for subpath, problem in parse_requirements(field.value, NODE_OPERATORS, REQUIREMENTS)[1]:
        action = Action.DENY if subpath in refused else Action.WARN
        yield Finding(config.at("spec", *subpath).path, problem, max_action=action)


def _without_syntax(field: Field) -> Any:
    """Return the requirements with valid keys and values,
    because the webhook does not look at their syntax.
    """
    return [_valid(item) for item in field.value] if field.is_list else field.value


def _valid(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    key, values = item.get("key"), item.get("values")
    if isinstance(key, str) and key:
        key = "key"
    if isinstance(values, list) and item.get("operator") in (IN, NOT_IN):
        values = ["value" if isinstance(value, str) else value for value in values]
    return {**item, "key": key, "values": values}


def _problem(toleration: Field) -> str | None:
    operator, effect = toleration["operator"].text or "", toleration["effect"].text or ""
    if operator not in OPERATORS:
        return f"{show(operator)} is not a valid toleration operator. Write Equal or Exists."
    if operator == "Exists" and toleration["value"].text:
        return "a toleration with operator Exists takes no value. Remove the value, or write Equal."
    if effect not in EFFECTS:
        valid = "NoSchedule, PreferNoSchedule or NoExecute"
        return f"{show(effect)} is not a valid taint effect. Write {valid}."
    return None
