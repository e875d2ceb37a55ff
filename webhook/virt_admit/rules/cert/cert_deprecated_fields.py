"""KubeVirt's certificate rotation uses deprecated fields.

**Why.** ``caRotateInterval``, ``certRotateInterval`` and ``caOverlapInterval`` override ``ca`` and ``server``, so the
newer fields have no effect next to them. KubeVirt rejects both together on updates but accepts them on creation. After
such a creation KubeVirt rejects every further edit.

**Fix.** Use only ``ca`` and ``server``: ``caRotateInterval`` is ``ca.duration``, ``certRotateInterval`` is
``server.duration``, ``caOverlapInterval`` is ``ca.renewBefore``.
"""

from virt_admit.model.kubevirt.settings import cert_settings
from virt_admit.rule import KUBEVIRT, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(KUBEVIRT,),
    action=Action.DENY,
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/webhooks/kubevirt-update-admitter.go#validateCertificates",
        "kubevirt/kubevirt:pkg/virt-operator/resource/apply/certificates.go",
    ),
)
def check(kubevirt: Object, _context: Context) -> Findings:
    block = cert_settings.block(kubevirt)
    mixed = block[cert_settings.CA].present or block[cert_settings.SERVER].present
    for deprecated, (group, role) in cert_settings.DEPRECATED.items():
        if not block[deprecated].present:
            continue
        remedy = f"Use {group}.{role} instead."
        yield Finding(
            block[deprecated].path,
            f"this deprecated field overrides ca and server; KubeVirt rejects updates that set both. {remedy}"
            if mixed
            else f"this field is deprecated. {remedy}",
            value=(block[deprecated].value, mixed),
            cause=Cause.FORBIDDEN,
            max_action=Action.DENY if mixed else Action.WARN,
        )
