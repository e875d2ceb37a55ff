"""A certificate lifetime is zero, negative or not a valid duration.

**Why.** HyperConverged, and KubeVirt on updates, cannot decode a malformed duration and reject the
whole object. CDI, and KubeVirt on creation, accept it. Their operators then cannot issue
certificates, and once the current ones expire the components cannot connect to each other. Every
schema accepts a lifetime of zero, which gives certificates that have expired when they are issued.

**Fix.** Write numbers with units, in quotes: ``48h``, ``1h30m``. A unit for days does not exist.
"""

from virt_admit.model import cel, cel_durations
from virt_admit.model.kubevirt.settings import cel_certificates, cert_settings
from virt_admit.rule import CDI, HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=cel_certificates.WRITTEN,
            when=f"!{cel_certificates.VALID}",
            path=f"{cel_certificates.CERT_PATH} + item.path",
            message=(
                "'certificates cannot be rotated, because ' + "
                f"({cel_durations.is_invalid('item.value')} ? "
                f"{cel_durations.problem('item.value')} : {cel.shown('item.value')} + "
                "(item.value.startsWith('-') ? ' is negative' : ' lets certificates expire') + ': "
                "write a duration such as 48h')"
            ),
            value="item.value",
        ),
    ),
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/validator.go#Handle",
        "OpenShift Virtualization, Node maintenance 11.4",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for written in cert_settings.written(obj):
        if written.value is None:
            yield Finding(
                written.field.path, f"certificates cannot be rotated, because {written.problem}"
            )
