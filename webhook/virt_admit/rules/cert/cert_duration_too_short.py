"""A certificate lifetime or its renewal margin is shorter than ten minutes.

**Why.** Components load a new certificate with a delay, and every renewal rolls new trust out to
all of them. With lifetimes of minutes they reject each other's certificates from time to time,
which breaks migrations and consoles. HyperConverged rejects less than ten minutes. KubeVirt and CDI
accept it.

**Fix.** Write at least ``10m``. Lifetimes of hours or days are usual.
"""

from virt_admit.model import cel, cel_durations
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubernetes.units import MINUTE
from virt_admit.model.kubevirt.settings import cel_certificates, cert_settings
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule, show

# hyperconverged-cluster-operator:pkg/webhooks/validator/validator.go#validateCertConfig
SHORTEST = 10 * MINUTE


@rule(
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=f"(self.kind == '{HCO.kind}' ? {cel_certificates.WRITTEN_IN_VALID_GROUPS} : [])",
            when=f"{cel_durations.parsed('item.value')}.exists(time, time < {SHORTEST})",
            path=f"{cel_certificates.CERT_PATH} + item.path",
            message=(
                f"{cel.shown('item.value')} + ' is less than 10m; components would reject each "
                "other\\'s certificates. Use hours.'"
            ),
            value="item.value",
        ),
    ),
    sources=(
        (
            "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/"
            "validator.go#validateCertConfig"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    max_action = Action.DENY if kinds.of(obj) is HCO else Action.WARN
    lifetimes = tuple(cert_settings.written(obj))
    invalid = {written.group for written in lifetimes if written.value is None}
    for written in lifetimes:
        if written.group not in invalid and written.value is not None and written.value < SHORTEST:
            yield Finding(
                written.field.path,
                f"{show(written.field.value)} is less than 10m; components would reject each "
                "other's certificates. Use hours.",
                max_action=max_action,
            )
