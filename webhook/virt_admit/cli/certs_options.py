"""Options with an environment variable, for `serve`, `watch` and `certs`: where certificates are
kept, and their schedule; the policy and the log.

Apart from the other options, because it imports cryptography, which `check` does not need.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from virt_admit.cli.options import Decorator, combined
from virt_admit_certs.schedule import PROFILES, SETTINGS


def flag(name: str, **attributes: Any) -> Decorator:
    """Return an option with its environment variable ``VIRT_ADMIT_<FLAG>``."""
    return click.option(
        name, envvar="VIRT_ADMIT_" + name.strip("-").upper().replace("-", "_"), **attributes
    )


def file_flag(name: str, **attributes: Any) -> Decorator:
    """Return an option whose value is a path, with its environment variable."""
    return flag(name, type=click.Path(path_type=Path), **attributes)


policy_flags: Final = combined(
    flag(
        "--policy",
        metavar="FILE|audit|default|strict",
        help=(
            "Policy file, or the name of a shipped policy. A file is reloaded when it changes.  "
            "[default: default]"
        ),
    ),
    flag(
        "--policy-configmap",
        metavar="NAMESPACE/NAME[,fallback=audit|default|strict]",
        help=(
            "Read the policy from this ConfigMap, key policy.yaml. It is reloaded when it changes."
        ),
    ),
)
"""The policy of a process that follows its changes."""

log_flags: Final = combined(
    flag(
        "--log-format",
        default="json",
        show_default=True,
        type=click.Choice(["json", "text"]),
        help="Log format.",
    ),
    flag(
        "--log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Lowest log level.",
    ),
)

_SCHEDULE_HELP: Final = {
    "serving-duration": "Lifetime of a serving certificate.  [default: 48h]",
    "serving-renew-before": (
        "Time before its expiry at which a serving certificate is renewed.  [default: 24h]"
    ),
    "signer-duration": "Lifetime of a signer (our CA).  [default: 720h]",
    "signer-renew-before": "Time before its expiry at which a signer is replaced.  [default: 360h]",
    "propagation": "Shortest time between publishing a signer and using it.  [default: 60s]",
    "check-interval": "Interval of the rotation loop.  [default: 10s]",
    "key": "p256, p384, rsa2048 or rsa3072.  [default: p256]",
    "name-constraints": "on: a signer may only sign the names of the certificate.  [default: off]",
    "profile": f"Sets the four durations at once: {', '.join(PROFILES)}.  [default: daily]",
}

issue_flags: Final = combined(
    flag(
        "--cert-name",
        multiple=True,
        metavar="NAME",
        help="Further DNS name or IP address in the certificate.",
    ),
    *(
        flag(f"--certs-{setting}", metavar="VALUE", help=_SCHEDULE_HELP[setting])
        for setting in SETTINGS
    ),
)
"""What is issued, and when it is renewed."""

certs_flags: Final = combined(
    file_flag("--certs", metavar="DIR", help="Keep CA and certificate in this folder."),
    flag(
        "--certs-secret",
        metavar="NAMESPACE/NAME",
        help="Keep CA and certificate in this Secret; default in a pod.",
    ),
    file_flag(
        "--certs-external",
        metavar="DIR",
        help="An external issuer writes tls.crt and tls.key into this folder.",
    ),
    flag(
        "--certs-external-secret",
        metavar="NAMESPACE/NAME",
        help="An external issuer writes this Secret.",
    ),
    flag(
        "--certs-external-ca",
        is_flag=True,
        help="Patch an external issuer's CA into the webhook configurations.",
    ),
    issue_flags,
)
"""Where certificates are kept, and the schedule: the same for ``serve`` and ``certs``."""
