"""A certificate lifetime is no duration, is negative, or is zero.

**Why.** HyperConverged, and KubeVirt on updates, cannot decode a malformed duration and refuse the whole object.
KubeVirt on creation and CDI accept it; then their operators cannot issue certificates, and sooner or later no
component of the virtualization layer can talk to another. A lifetime of zero is accepted everywhere and gives
certificates that have expired when they are issued.

**Fix.** Write numbers with units, in quotes: ``48h``, ``1h30m``. There is no unit for days.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for written in cert_settings.written(obj):
        if written.value is None:
            yield Finding(written.field.path, f"{written.problem}; certificates could not be rotated with it")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/validator.go#Handle",
        "OpenShift Virtualization, Node maintenance 11.4",
    ),
)
