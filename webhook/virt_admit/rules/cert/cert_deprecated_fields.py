"""KubeVirt's certificates use the older rotation fields.

**Why.** ``caRotateInterval``, ``certRotateInterval`` and ``caOverlapInterval`` still win over ``ca`` and ``server``,
so a mixture does not do what its newer half says. KubeVirt refuses the mixture on updates and accepts it on
creation, after which no further edit passes.

**Fix.** Use ``ca`` and ``server`` alone: ``caRotateInterval`` is ``ca.duration``, ``certRotateInterval`` is
``server.duration``, ``caOverlapInterval`` is ``ca.renewBefore``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import KUBEVIRT
from virt_admit.model.kubevirt import cert_settings
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(kubevirt: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    block = cert_settings.block(kubevirt)
    mixed = block[cert_settings.CA].present or block[cert_settings.SERVER].present
    for older, (group, role) in cert_settings.DEPRECATED.items():
        if not block[older].present:
            continue
        remedy = f"write {group}.{role} instead"
        yield Finding(
            block[older].path,
            f"this older field wins over ca and server, and KubeVirt refuses both together; {remedy}"
            if mixed
            else f"this field is deprecated; {remedy}",
            value=(block[older].value, mixed),
            cause=Cause.FORBIDDEN,
            max_action=Action.DENY if mixed else Action.WARN,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(KUBEVIRT,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/webhooks/kubevirt-update-admitter.go#validateCertificates",
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/certificates.go",
    ),
)
