"""A SelfNodeRemediationConfig has a name that the operator does not read.

**Why.** The operator reads only ``self-node-remediation-config`` in its own namespace. Its webhook rejects any other name. A
second object would have no effect.

**Fix.** Edit ``self-node-remediation-config``.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.remediation.remediators import SNR_CONFIG_NAME
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Operation, Rule


def check(config: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if config.name != SNR_CONFIG_NAME:
        yield Finding(
            config.metadata["name"].path,
            f"the operator ignores {show(config.name)}; it reads only {SNR_CONFIG_NAME}. Edit that object.",
            cause=Cause.NOT_SUPPORTED,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_CONFIG,),
    operations=(Operation.CREATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validateSingleton",),
)
