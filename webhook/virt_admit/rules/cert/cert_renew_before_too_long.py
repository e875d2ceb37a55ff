"""A certificate is renewed earlier than it is issued.

**Why.** ``renewBefore`` counts from the end of a certificate. If it is longer than the lifetime, the certificate is
due before it exists; HyperConverged and KubeVirt refuse that, CDI does not. If the two are equal the certificate is
due at the moment it is issued, and is rotated at every pass of the operator. Often only ``duration`` was shortened
and the default of ``renewBefore`` stayed.

**Fix.** Set both, ``renewBefore`` to about half of ``duration``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.objects import Object
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for group in cert_settings.groups(obj):
        duration, renew_before = format_duration(group.duration), format_duration(group.renew_before)
        if not group.renew_before_field.present:
            renew_before = f"the default {renew_before}"
        half = format_duration(group.duration // 2)
        if group.renew_before > group.duration:
            text, max_action = f"{renew_before} is longer than the duration {duration}; write about {half}", Action.DENY
        elif group.renew_before == group.duration:
            text = f"{renew_before} equals the duration, so it is rotated at every pass; write about {half}"
            max_action = Action.WARN
        else:
            continue
        value = (group.renew_before, group.duration)
        yield Finding(group.renew_before_field.path, text, value=value, max_action=max_action)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/validator.go#validateCertConfig",
        "kubevirt/kubevirt:pkg/virt-operator/webhooks/kubevirt-update-admitter.go#validateCertificates",
    ),
)
