"""A certificate lifetime is zero, negative or not a valid duration.

**Why.** HyperConverged, and KubeVirt on updates, cannot decode a malformed duration and reject the whole object. CDI,
and KubeVirt on creation, accept it. Their operators then cannot issue certificates, and once the current ones expire
the components cannot connect to each other. Every schema accepts a lifetime of zero, which gives certificates that
have expired when they are issued.

**Fix.** Write numbers with units, in quotes: ``48h``, ``1h30m``. A unit for days does not exist.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import cert_settings
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for written in cert_settings.written(obj):
        if written.value is None:
            yield Finding(written.field.path, f"certificates cannot be rotated, because {written.problem}")


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
