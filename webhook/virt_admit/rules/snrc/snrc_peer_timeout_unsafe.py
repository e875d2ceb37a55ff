"""The peer request timeout is shorter than the API server timeout.

**Why.** A node that cannot reach the API server asks its peers, and each peer first asks the API
server. If ``peerRequestTimeout`` is shorter than that, the node misses the answer and may reboot
although it is healthy. The operator warns, and uses ``apiServerTimeout`` + 2s instead.

**Fix.** Set ``peerRequestTimeout`` to at least ``apiServerTimeout`` + 2s. The defaults are 7s and
5s.
"""

from virt_admit.model.kubernetes.kinds import SNR_CONFIG
from virt_admit.model.remediation.remediators import PEER_REQUEST_MARGIN, snr_time
from virt_admit.rule import Action, Context, Finding, Findings, Object, format_duration, rule


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.WARN,
    sources=(
        (
            "medik8s/"
            "self-node-remediation:selfnoderemediationconfig_webhook.go#validatePeerTimeoutSafety"
        ),
    ),
)
def check(config: Object, _context: Context) -> Findings:
    try:
        request_timeout = snr_time(config, "peerRequestTimeout")
        api_timeout = snr_time(config, "apiServerTimeout")
    except ValueError:
        return
    safe = api_timeout + PEER_REQUEST_MARGIN
    if request_timeout < safe:
        yield Finding(
            config.at("spec", "peerRequestTimeout").path,
            f"{format_duration(request_timeout)} is less than apiServerTimeout + 2s: a node would "
            "stop waiting before its peer can answer, so the operator overrides the value. Write "
            f"{format_duration(safe)}.",
            value=(request_timeout, api_timeout),
        )
