"""A remediation template uses a strategy that the operator or the cluster does not support.

**Why.** The schema rejects unknown strategies. ``OutOfServiceTaint`` needs Kubernetes 1.26: older
servers ignore the taint, so the workload is never moved off a failed node.

**Fix.** Write ``ResourceDeletion``. Self Node Remediation also supports ``Automatic``, which
selects a strategy.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, SNR_TEMPLATE
from virt_admit.model.messages import did_you_mean
from virt_admit.model.remediation.by_hand import hand_fences
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, Patch, rule, show

_TAINT: Final = "OutOfServiceTaint"
_STRATEGIES: Final = {
    SNR_TEMPLATE: ("Automatic", "ResourceDeletion", _TAINT),
    FAR_TEMPLATE: ("ResourceDeletion", _TAINT),
}
_FIELD: Final = "self.?spec.?template.?spec.?remediationStrategy"


@rule(
    kinds=(SNR_TEMPLATE, FAR_TEMPLATE),
    action=Action.DENY,
    fixable=True,
    denials=tuple(
        cel.Denial(
            when=(
                f"self.kind == '{kind.kind}' && {cel.present(_FIELD)} && !({_FIELD}.orValue(null) "
                f"in {list(known)})"
            ),
            path="'spec.template.spec.remediationStrategy'",
            message=cel.text(
                "this is not a valid strategy, so the schema rejects it. Write "
                f"{' or '.join(known)}."
            ),
            value=f"{_FIELD}.orValue(null)",
        )
        for kind, known in _STRATEGIES.items()
    ),
    sources=(
        (
            "medik8s/self-node-remediation:api/v1alpha1/"
            "selfnoderemediationtemplate_webhook.go#validateStrategy"
        ),
    ),
)
def check(template: Object, context: Context) -> Findings:
    strategy = template.at("spec", "template", "spec", "remediationStrategy")
    known = _STRATEGIES[SNR_TEMPLATE if kinds.of(template) is SNR_TEMPLATE else FAR_TEMPLATE]
    if not strategy.present:
        return
    if strategy.value not in known:
        suggestion = did_you_mean(strategy.value, known)
        yield Finding(
            strategy.path,
            f"{show(strategy.value)} is not a valid strategy, so the schema rejects it. Write "
            f"{' or '.join(known)}.",
            cause=Cause.NOT_SUPPORTED,
            fix=(Patch("replace", strategy.path, suggestion),) if suggestion else (),
            why="the value is misspelt",
        )
    elif strategy.value == _TAINT and not hand_fences.taint_works(context.cluster):
        yield Finding(
            strategy.path,
            f"{_TAINT} needs Kubernetes 1.26 or later, but this is "
            f"{context.cluster.server_version}. Write ResourceDeletion.",
            cause=Cause.NOT_SUPPORTED,
        )
