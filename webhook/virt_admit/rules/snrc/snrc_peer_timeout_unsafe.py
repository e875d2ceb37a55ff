"""A node gives up on its peer before the peer can have heard from the API server.

**Why.** A node that lost the API server asks its peers, and each peer first asks the API server itself. If
``peerRequestTimeout`` ends earlier than that, the answer is missed and a healthy node may reboot. The operator warns
too and silently uses ``apiServerTimeout`` + 2s instead.

**Fix.** ``peerRequestTimeout`` of at least ``apiServerTimeout`` + 2s. The defaults are 7s and 5s.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import SNR_CONFIG
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import PEER_REQUEST_MARGIN, snr_time
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(config: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    try:
        asked, answered = snr_time(config, "peerRequestTimeout"), snr_time(config, "apiServerTimeout")
    except ValueError:
        return
    safe = answered + PEER_REQUEST_MARGIN
    if asked < safe:
        yield Finding(
            config.at("spec", "peerRequestTimeout").path,
            f"{format_duration(asked)} is less than apiServerTimeout + 2s: a node stops waiting before its peer can "
            f"answer; the operator overrides it, write {format_duration(safe)}",
            value=(asked, answered),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(SNR_CONFIG,),
    action=Action.WARN,
    check=check,
    sources=("medik8s/self-node-remediation:selfnoderemediationconfig_webhook.go#validatePeerTimeoutSafety",),
)
