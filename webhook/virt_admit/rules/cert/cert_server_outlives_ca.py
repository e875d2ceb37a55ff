"""A certificate lives longer than the authority that signs it.

**Why.** When the authority ends, every certificate that it signed ends with it, whatever stands inside: components
stop trusting each other while their own certificates look valid. HyperConverged and, on updates, KubeVirt refuse
this; CDI does not. Defaults count: an authority that was shortened may now end before the untouched certificates.

**Fix.** Make ``ca.duration`` at least as long as the others, better twice as long.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.objects import Object
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    groups = {group.name: group for group in cert_settings.groups(obj)}
    authority = groups.pop(cert_settings.CA, None)
    if authority is None:
        return
    for group in groups.values():
        if group.duration > authority.duration:
            default = "" if group.duration_field.present else "the default "
            yield Finding(
                group.duration_field.path,
                f"{default}{format_duration(group.duration)} is longer than the {format_duration(authority.duration)} "
                "of the CA that signs these certificates, and they end with it; shorten it or lengthen ca.duration",
                value=(group.duration, authority.duration),
            )


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
