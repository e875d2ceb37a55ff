"""A fence agent's password stands in the template.

**Why.** Whoever may read the template, an audit log or a backup of it, may then switch every node off.

**Fix.** Put it into a Secret and name that in ``sharedSecretName`` or, per node, in ``nodeSecretNames``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation.remediators import far_parameters
from virt_admit.rule import Action, Cause, Context, Finding, Rule, param


@dataclass(frozen=True)
class Params:
    parameters: tuple[str, ...] = param(
        (
            "-p",
            "--password",
            "--passwd",
            "--login-password",
            "--snmp-priv-passwd",
            "--secret-key",
            "--token",
            "--apikey",
        ),
        "The parameters that hold credentials; those with two dashes also count without them.",
    )


def check(template: Object, context: Context[Params]) -> Iterator[Finding]:
    credentials = context.params.parameters
    for name, value in far_parameters(template):
        if (name in credentials or f"--{name}" in credentials) and _says_something(value):
            yield Finding(
                value.path,
                "whoever may read this template can switch nodes off with it; put it into a Secret and name that in "
                "sharedSecretName or nodeSecretNames",
                value=name,  # never the credential
                cause=Cause.FORBIDDEN,
            )


def _says_something(value: Field) -> bool:
    return bool(value.text) or any(value.texts.values())


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    params=Params(),
    action=Action.WARN,
    check=check,
    sources=("medik8s/fence-agents-remediation:fenceagentsremediation_params.go#collectAllSecretParams",),
)
