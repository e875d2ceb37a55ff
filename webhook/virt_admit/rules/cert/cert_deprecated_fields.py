"""KubeVirt's certificate rotation uses deprecated fields.

**Why.** ``caRotateInterval``, ``certRotateInterval`` and ``caOverlapInterval`` override ``ca`` and
``server``, so the newer fields have no effect next to them. KubeVirt rejects both together on
updates but accepts them on creation. After such a creation KubeVirt rejects every further edit.

**Fix.** Use only ``ca`` and ``server``: ``caRotateInterval`` is ``ca.duration``,
``certRotateInterval`` is ``server.duration``, ``caOverlapInterval`` is ``ca.renewBefore``.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubevirt.settings import cel_settings, cert_settings
from virt_admit.model.kubevirt.settings.configuration import Setting
from virt_admit.rule import KUBEVIRT, Action, Cause, Context, Finding, Findings, Object, rule

_BLOCK: Final = cel_settings.cel_setting(Setting.CERTIFICATES)


@rule(
    kinds=(KUBEVIRT,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=f"[{', '.join(map(cel.text, cert_settings.DEPRECATED))}]",
            when=f"({cel.present(f'{_BLOCK}.?ca')} || {cel.present(f'{_BLOCK}.?server')})"
            f" && {cel.entries(_BLOCK)}[?item].orValue(null) != null",
            path=f"{cel_settings.cel_path(Setting.CERTIFICATES)} + '.' + item",
            message=(
                "'this deprecated field overrides ca and server; KubeVirt rejects updates that set "
                "both. ' + 'Use the field of ca or server instead.'"
            ),
            value=f"{cel.entries(_BLOCK)}[item]",
        ),
    ),
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-operator/webhooks/"
            "kubevirt-update-admitter.go#validateCertificates"
        ),
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
            (
                "this deprecated field overrides ca and server; KubeVirt rejects updates that set "
                f"both. {remedy}"
            )
            if mixed
            else f"this field is deprecated. {remedy}",
            value=(block[deprecated].value, mixed),
            cause=Cause.FORBIDDEN,
            max_action=Action.DENY if mixed else Action.WARN,
        )
