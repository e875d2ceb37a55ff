"""A template contains the password of a fence agent in plain text.

**Why.** Every user who can read the template, an audit log or a backup can use the password to
switch all nodes off.

**Fix.** Move the password into a Secret. Set the name of the Secret in ``sharedSecretName``, or per
node in ``nodeSecretNames``.
"""

from dataclasses import dataclass

from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE
from virt_admit.model.remediation.remediators import far_parameters
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, param, rule


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
        "parameters that hold credentials; a name with two dashes also matches without them",
    )


@rule(
    kinds=(FAR_TEMPLATE,),
    params=Params(),
    action=Action.WARN,
    sources=(
        "medik8s/fence-agents-remediation:fenceagentsremediation_params.go#collectAllSecretParams",
    ),
)
def check(template: Object, context: Context[Params]) -> Findings:
    credentials = context.params.parameters
    for name, value in far_parameters(template):
        if (name in credentials or f"--{name}" in credentials) and _has_value(value):
            yield Finding(
                value.path,
                "this credential is in plain text: every reader of the template can use it to "
                "switch nodes off. Move it into a Secret (sharedSecretName or nodeSecretNames).",
                value=name,  # never the credential
                cause=Cause.FORBIDDEN,
            )


def _has_value(value: Field) -> bool:
    return bool(value.text) or any(value.texts.values())
