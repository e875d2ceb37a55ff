"""A certificate lives longer than the CA that signs it.

**Why.** When the CA expires, every certificate that it signed becomes untrusted, even if it has not
expired itself. The components then reject each other while their own certificates look valid.
HyperConverged and, on updates, KubeVirt reject this, CDI does not. Defaults count: a shortened
``ca.duration`` may be less than the default of the others.

**Fix.** Make ``ca.duration`` at least as long as the others, better twice as long.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import cel_certificates, cert_settings
from virt_admit.rule import Action, Context, Finding, Findings, Object, format_duration, rule

_LONGER: Final = (
    f"[{cel_certificates.GROUPS}].map(groups, groups.filter(ca, ca.name == "
    f"'{cert_settings.CA}').map(ca, groups.filter(g, g.duration[0] > ca.duration[0]).map(g, "
    "{'path': g.duration_path, 'value': dyn([g.duration[0], ca.duration[0]])})) + [[]])[0][0]"
)
"""The groups that live longer than the CA. None if the CA has a value that is not valid."""


@rule(
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=_LONGER,
            when="true",
            path=f"{cel_certificates.CERT_PATH} + item.path",
            message=(
                "'this lifetime, or its default, is longer than that of the CA; these certificates "
                "are rejected once it ' + 'expires. Shorten them or lengthen ca.duration.'"
            ),
            value="item.value",
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
    groups = {group.name: group for group in cert_settings.groups(obj)}
    ca = groups.pop(cert_settings.CA, None)
    if ca is None:
        return
    for group in groups.values():
        if group.duration > ca.duration:
            default = "" if group.duration_field.present else "the default "
            yield Finding(
                group.duration_field.path,
                f"{default}{format_duration(group.duration)} is longer than the "
                f"{format_duration(ca.duration)} of the CA; these certificates are rejected once "
                "it expires. Shorten them or lengthen ca.duration.",
                value=(group.duration, ca.duration),
            )
