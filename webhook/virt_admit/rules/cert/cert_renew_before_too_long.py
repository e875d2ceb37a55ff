"""A certificate's renewal margin is not shorter than its lifetime.

**Why.** ``renewBefore`` counts back from the end of a certificate. If it is longer than the
lifetime, renewal is due before the certificate is issued. HyperConverged and KubeVirt reject that,
CDI does not. If both are equal, renewal is due as soon as the certificate is issued, so the
operator rotates it on every reconciliation. The usual cause is a shortened ``duration`` with the
default ``renewBefore``.

**Fix.** Set both, with ``renewBefore`` at about half of ``duration``.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import cel_certificates, cert_settings
from virt_admit.rule import Action, Context, Finding, Findings, Object, format_duration, rule


@rule(
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=cel_certificates.GROUPS,
            when="item.renew[0] > item.duration[0]",
            path=f"{cel_certificates.CERT_PATH} + item.renew_path",
            message=(
                "'this margin, or its default, is longer than the duration, so renewal is always "
                "due. ' + 'Use about half of the duration.'"
            ),
            value="[item.renew[0], item.duration[0]]",
        ),
    ),
    sources=(
        (
            "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/"
            "validator.go#validateCertConfig"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-operator/webhooks/"
            "kubevirt-update-admitter.go#validateCertificates"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for group in cert_settings.groups(obj):
        duration = format_duration(group.duration)
        renew_before = format_duration(group.renew_before)
        if not group.renew_before_field.present:
            renew_before = f"the default {renew_before}"
        half = format_duration(group.duration // 2)
        if group.renew_before > group.duration:
            message = (
                f"{renew_before} is longer than the duration {duration}, so renewal is always due. "
                f"Use about {half}."
            )
            max_action = Action.DENY
        elif group.renew_before == group.duration:
            message = (
                f"{renew_before} equals the duration, so the certificate is rotated continuously. "
                f"Use about {half}."
            )
            max_action = Action.WARN
        else:
            continue
        value = (group.renew_before, group.duration)
        yield Finding(group.renew_before_field.path, message, value=value, max_action=max_action)
