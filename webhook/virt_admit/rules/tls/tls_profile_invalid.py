"""A TLS profile that no component can serve with.

**Why.** A custom profile below TLS 1.3 without a cipher that HTTP/2 demands stops every API server of the
virtualization layer; ciphers together with TLS 1.3, which has its own, are refused. HyperConverged and KubeVirt
refuse such profiles, CDI does not and fails later.

**Fix.** Use a named profile (``Old``, ``Intermediate``, ``Modern``), or list ECDHE-RSA-AES128-GCM-SHA256 or
ECDHE-ECDSA-AES128-GCM-SHA256 among the ciphers, or no ciphers at all with ``VersionTLS13``.
"""

from collections.abc import Iterator

from virt_admit.model import kinds
from virt_admit.model.kinds import CDI, HCO, KUBEVIRT
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Field, Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

TLS13 = "VersionTLS13"
VERSIONS = ("VersionTLS10", "VersionTLS11", "VersionTLS12", TLS13)
HTTP2_CIPHERS = frozenset(("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"))


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    profile = setting(obj, Setting.TLS)
    if kinds.of(obj) is KUBEVIRT:
        yield from _kubevirt(profile)
    elif profile["custom"].is_map:
        yield from _custom(profile["custom"])
    elif profile["type"].value == "Custom":
        yield Finding(
            profile["custom"].path, "type is Custom, so custom must say versions and ciphers", cause=Cause.REQUIRED
        )


def _kubevirt(profile: Field) -> Iterator[Finding]:
    version, ciphers = profile["minTLSVersion"], profile["ciphers"]
    if ciphers.is_list and ciphers.value and version.value in (None, "", TLS13):
        yield Finding(
            ciphers.path,
            "ciphers cannot be chosen with TLS 1.3, which is also what an absent minTLSVersion means here; "
            "remove them or set minTLSVersion: VersionTLS12",
            value=(version.value, ciphers.value),
            cause=Cause.NOT_SUPPORTED,
        )


def _custom(custom: Field) -> Iterator[Finding]:
    version, ciphers = custom["minTLSVersion"], custom["ciphers"]
    value = (version.value, ciphers.value)
    if version.value not in VERSIONS:
        yield Finding(
            version.path,
            f"{show(version.value)} is no TLS version; write one of {', '.join(VERSIONS)}",
            cause=Cause.NOT_SUPPORTED,
        )
    elif version.value == TLS13:
        if ciphers.is_list and ciphers.value:
            yield Finding(ciphers.path, "ciphers cannot be chosen with VersionTLS13; write an empty list", value=value)
    elif HTTP2_CIPHERS.isdisjoint(item.text for item in ciphers.items()):
        yield Finding(
            ciphers.path,
            f"HTTP/2 needs one of {' or '.join(sorted(HTTP2_CIPHERS))} below TLS 1.3; add it",
            value=value,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, CDI),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:pkg/webhooks/validator/validator.go#validateTLSSecurityProfiles",
        "kubevirt/kubevirt:pkg/virt-operator/webhooks/kubevirt-update-admitter.go#validateTLSConfiguration",
    ),
)
