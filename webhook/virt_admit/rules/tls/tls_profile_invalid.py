"""A TLS profile cannot be used by the servers of the virtualization layer.

**Why.** HTTP/2 requires certain ciphers. A custom profile below TLS 1.3 without one of them stops
every API server of the virtualization layer. TLS 1.3 has its own ciphers, so a profile that lists
ciphers for it is rejected. HyperConverged and KubeVirt reject such profiles. CDI accepts them and
fails later.

**Fix.** Use a named profile (``Old``, ``Intermediate``, ``Modern``). In a custom profile list
ECDHE-RSA-AES128-GCM-SHA256 or ECDHE-ECDSA-AES128-GCM-SHA256, or use ``VersionTLS13`` without
ciphers.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import cel_settings
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule, show

TLS13 = "VersionTLS13"
VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", TLS13)
HTTP2_CIPHERS = frozenset(("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"))

_PROFILE: Final = cel_settings.cel_setting(Setting.TLS)
_PATH: Final = cel_settings.cel_path(Setting.TLS)
_MINIMUM: Final = f"{_PROFILE}.?minTLSVersion.orValue(null)"
_WITH_CUSTOM: Final = f"self.kind != '{KUBEVIRT.kind}' && {cel.is_map(f'{_PROFILE}.?custom')}"
_VERSION: Final = f"{_PROFILE}.?custom.?minTLSVersion.orValue(null)"
_CIPHERS: Final = f"{_PROFILE}.?custom.?ciphers"


def _has_items(field: str) -> str:
    return f"{cel.items(field)}.size() > 0"


@rule(
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"self.kind == '{KUBEVIRT.kind}' && {_has_items(f'{_PROFILE}.?ciphers')}"
            f" && ({_MINIMUM} == null || {cel.one_of(_MINIMUM, ('', TLS13))})",
            path=f"{_PATH} + '.ciphers'",
            message=(
                "'KubeVirt rejects ciphers with TLS 1.3, which is the default without "
                "minTLSVersion. ' + 'Remove the ciphers or set minTLSVersion: VersionTLS12.'"
            ),
            value=f"[dyn({_MINIMUM}), {_PROFILE}.?ciphers.orValue(null)]",
        ),
        cel.Denial(
            when=f"{_WITH_CUSTOM} && !({cel.one_of(_VERSION, VERSIONS)})",
            path=f"{_PATH} + '.custom.minTLSVersion'",
            message=(
                f"{cel.shown(_VERSION)} + ' is not a valid TLS version. Use one of "
                f"{', '.join(VERSIONS)}.'"
            ),
            value=_VERSION,
        ),
        cel.Denial(
            when=f"{_WITH_CUSTOM} && {_VERSION} == '{TLS13}' && {_has_items(_CIPHERS)}",
            path=f"{_PATH} + '.custom.ciphers'",
            message="'TLS 1.3 has fixed ciphers, so this list is rejected. Use an empty list.'",
            value=f"[dyn({_VERSION}), {_CIPHERS}.orValue(null)]",
        ),
        cel.Denial(
            when=(
                f"{_WITH_CUSTOM} && {cel.one_of(_VERSION, VERSIONS)} && {_VERSION} != '{TLS13}' && "
                f"!{cel.items(_CIPHERS)}.exists(cipher, "
                f"{cel.one_of('cipher', tuple(sorted(HTTP2_CIPHERS)))})"
            ),
            path=f"{_PATH} + '.custom.ciphers'",
            message=f"'HTTP/2 below TLS 1.3 requires {' or '.join(sorted(HTTP2_CIPHERS))}; '"
            " + 'API servers would not start. Add one.'",
            value=f"[dyn({_VERSION}), {_CIPHERS}.orValue(null)]",
        ),
        cel.Denial(
            when=f"self.kind != '{KUBEVIRT.kind}' && !{cel.is_map(f'{_PROFILE}.?custom')}"
            f" && {_PROFILE}.?type.orValue(null) == 'Custom'",
            path=f"{_PATH} + '.custom'",
            message="'type Custom requires this field. Set minTLSVersion and ciphers in it.'",
            value=f"{_PROFILE}.?custom.orValue(null)",
        ),
    ),
    sources=(
        (
            "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/"
            "validator.go#validateTLSSecurityProfiles"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-operator/webhooks/"
            "kubevirt-update-admitter.go#validateTLSConfiguration"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    profile = setting(obj, Setting.TLS)
    if kinds.of(obj) is KUBEVIRT:
        yield from _kubevirt(profile)
    elif profile["custom"].is_map:
        yield from _custom(profile["custom"])
    elif profile["type"].value == "Custom":
        yield Finding(
            profile["custom"].path,
            "type Custom requires this field. Set minTLSVersion and ciphers in it.",
            cause=Cause.REQUIRED,
        )


def _kubevirt(profile: Field) -> Findings:
    version, ciphers = profile["minTLSVersion"], profile["ciphers"]
    if ciphers.is_list and ciphers.value and version.value in (None, "", TLS13):
        yield Finding(
            ciphers.path,
            "KubeVirt rejects ciphers with TLS 1.3, which is the default without minTLSVersion. "
            "Remove the ciphers or set minTLSVersion: VersionTLS12.",
            value=(version.value, ciphers.value),
            cause=Cause.NOT_SUPPORTED,
        )


def _custom(custom: Field) -> Findings:
    version, ciphers = custom["minTLSVersion"], custom["ciphers"]
    value = (version.value, ciphers.value)
    if version.value not in VERSIONS:
        yield Finding(
            version.path,
            f"{show(version.value)} is not a valid TLS version. Use one of {', '.join(VERSIONS)}.",
            cause=Cause.NOT_SUPPORTED,
        )
    elif version.value == TLS13:
        if ciphers.is_list and ciphers.value:
            yield Finding(
                ciphers.path,
                "TLS 1.3 has fixed ciphers, so this list is rejected. Use an empty list.",
                value=value,
            )
    elif HTTP2_CIPHERS.isdisjoint(item.text for item in ciphers.items()):
        yield Finding(
            ciphers.path,
            f"HTTP/2 below TLS 1.3 requires {' or '.join(sorted(HTTP2_CIPHERS))}; API servers "
            "would not start. Add one.",
            value=value,
        )
