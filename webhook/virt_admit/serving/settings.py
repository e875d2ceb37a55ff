"""The settings of ``serve``: one frozen value that the command line makes from flags and
``VIRT_ADMIT_*`` variables.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virt_admit.settings import SERVICE_NAMES, SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Certs:
    """Where certificates are stored and who issues them. Exactly one of the four stores is set."""

    directory: Path | None = None
    secret: str = ""
    external: Path | None = None
    external_secret: str = ""
    external_ca: bool = False
    """Whether to patch an external issuer's CA into the webhook configurations."""
    schedule: Mapping[str, str] = field(default_factory=dict)
    """``--certs-<setting>`` values by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of ``virt-admit serve``. A change needs a restart."""

    bind: str = "0.0.0.0:8443"
    ops_bind: str = "0.0.0.0:8080"
    """``off`` disables the ops listener."""
    certs: Certs = field(default_factory=Certs)
    cert_names: tuple[str, ...] = SERVICE_NAMES
    cluster: Path | None = None
    live: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    policy: str = "default"
    policy_configmap: str = ""
    """``NAMESPACE/NAME[,fallback=…]`` of the ConfigMap with the policy; empty: ``policy`` holds."""
    workers: int = 1
    client_ca: Path | None = None
    client_names: tuple[str, ...] = ()
    tls_min_version: str = "1.2"
    stop_delay: float = 5.0
    """Seconds between SIGTERM and closing the listener, so that endpoint updates can propagate."""


def address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` or ``[IPv6]:PORT`` into host and port.

    Raises:
        SettingError: the text has another form.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SettingError(f"{text!r} is not HOST:PORT")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise SettingError(f"{text!r} is not HOST:PORT") from None
    return host or "0.0.0.0", int(port)  # noqa: S104 - as in the documentation of --bind
