"""A SelfNodeRemediationConfig has a name that the operator does not read.

**Why.** The operator reads only ``self-node-remediation-config`` in its own namespace. Its webhook
rejects any other name. A second object would have no effect.

**Fix.** Edit ``self-node-remediation-config``.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.remediation.remediators import SNR_CONFIG_NAME
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Operation, rule, show


@rule(
    kinds=(SNR_CONFIG,),
    operations=(Operation.CREATE,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"self.metadata.?name.orValue('') != {cel.text(SNR_CONFIG_NAME)}",
            path="'metadata.name'",
            message=f"'the operator reads only {SNR_CONFIG_NAME}. Edit that object.'",
        ),
    ),
    sources=(
        "medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validateSingleton",
    ),
)
def check(config: Object, _context: Context) -> Findings:
    if config.name != SNR_CONFIG_NAME:
        yield Finding(
            config.metadata["name"].path,
            f"the operator ignores {show(config.name)}; it reads only {SNR_CONFIG_NAME}. Edit that "
            "object.",
            cause=Cause.NOT_SUPPORTED,
        )
