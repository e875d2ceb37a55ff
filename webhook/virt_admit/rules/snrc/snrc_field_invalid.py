"""A field of a SelfNodeRemediationConfig has a type or a number that the schema rejects.

**Why.** The API server rejects the object, so the operator keeps its old settings, or has none.
Quoted numbers and quoted ``true`` come from templates that quote every value. Only
``virt-admit check`` sees such objects.

**Fix.** Write the value without quotes, or with quotes for ``watchdogFilePath`` and
``endpointHealthCheckUrl``. The least ``hostPort`` and ``maxApiErrorThreshold`` is 1, the least
``minPeersForRemediation`` is 0.
"""

from collections.abc import Mapping
from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

INTEGERS: Final[Mapping[str, int | None]] = {
    "hostPort": 1,
    "maxApiErrorThreshold": 1,
    "minPeersForRemediation": 0,
    "safeTimeToAssumeNodeRebootedSeconds": None,
}
"""The least value of each integer."""

BOOLEANS: Final = ("isSoftwareRebootEnabled",)
TEXTS: Final = ("watchdogFilePath", "endpointHealthCheckUrl")
LISTS: Final = ("customDsTolerations", "customDsNodeSelectorRequirements")


def _expected(least: int | None) -> str:
    return "an integer without quotes" + ("" if least is None else f", {least} or more")


def _denial(name: str, valid: str, example: str) -> cel.Denial:
    """Return the denial of a field in CEL; ``valid`` has {} in place of its value."""
    value = f"self.?spec.?{name}.orValue(null)"
    return cel.Denial(
        when=f"{value} != null && !({valid.replace('{}', value)})",
        path=f"'spec.{name}'",
        message=(
            f"{cel.shown(value)} + ' has a type or a number that the schema rejects. Write "
            f"{example}.'"
        ),
        value=value,
    )


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.DENY,
    denials=(
        *(
            _denial(
                name,
                f"type({{}}) == int{'' if least is None else f' && {{}} >= {least}'}",
                _expected(least),
            )
            for name, least in INTEGERS.items()
        ),
        *(_denial(name, "type({}) == bool", "true or false without quotes") for name in BOOLEANS),
        *(_denial(name, "type({}) == string", "a text in quotes") for name in TEXTS),
        *(_denial(name, "type({}) == list", "a list") for name in LISTS),
    ),
    sources=(
        (
            "medik8s/self-node-remediation:config/crd/bases/"
            "self-node-remediation.medik8s.io_selfnoderemediationconfigs.yaml"
        ),
    ),
)
def check(config: Object, _context: Context) -> Findings:
    spec = config["spec"]
    for name, least in INTEGERS.items():
        yield from _integer(spec[name], least)
    for names, expected, example in (
        (BOOLEANS, bool, "true or false without quotes"),
        (TEXTS, str, "a text in quotes"),
        (LISTS, list, "a list"),
    ):
        for field in (spec[name] for name in names):
            if field.value is not None and not isinstance(field.value, expected):
                yield _wrong_type(field, example)


def _integer(field: Field, least: int | None) -> Findings:
    if field.value is not None and field.integer is None:
        yield _wrong_type(field, "an integer without quotes")
    elif field.integer is not None and least is not None and field.integer < least:
        yield Finding(
            field.path,
            f"{field.integer} is below {least}, so the schema rejects it. Write {least} or more.",
        )


def _wrong_type(field: Field, example: str) -> Finding:
    return Finding(
        field.path,
        f"{show(field.value)} has the wrong type, so the schema rejects it. Write {example}.",
        cause=Cause.TYPE,
    )
