"""Clients of a webhook whose certificate changes."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from tests.apiserver.webhook import Webhook
from tests.https.reviews import review, vm
from tests.load import Poster
from virt_admit_certs.certificates import sha256

FINE = json.dumps(review(vm())).encode()


NOW = datetime.now(UTC)


NAMES = (
    "localhost",
    "127.0.0.1",
    "virt-admit-webhook.virt-admit.svc",
    "virt-admit-webhook.virt-admit.svc.cluster.local",
)


QUICK = {"VIRT_ADMIT_CERTS_UNSAFE_INTERVALS": "1", "VIRT_ADMIT_CERTS_CHECK_INTERVAL": "50ms"}
"""Look twenty times a second."""


ROTATIONS = "virt_admit_certificate_rotations_total"


def metric(webhook: Webhook, name: str, labels: str = "") -> float:
    """The sum of a metric's samples, of those with these labels."""
    lines = re.findall(rf"^{name}(?:{{(.*)}})? (.*)$", webhook.ops("/metrics")[1], re.MULTILINE)
    return sum(float(value) for found, value in lines if labels in found)


class Client:
    """A client that learns of a new bundle late, as API servers do,
    and counts the certificates that it is shown.
    """

    LATE = 0.3  # seconds

    def __init__(self, ca: Path, port: int) -> None:
        self._ca, self._port = ca, port
        self._lock = threading.Lock()
        self._read = -1.0
        self._trust: ssl.SSLContext | None = None
        self.seen: set[bytes] = set()

    def __call__(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._trusting(), timeout=10
        )
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        self.seen.add(hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").digest())
        return connection

    def _trusting(self) -> ssl.SSLContext:
        with self._lock:
            if self._trust is None or time.monotonic() - self._read > self.LATE:
                self._trust, self._read = (
                    ssl.create_default_context(cafile=self._ca),
                    time.monotonic(),
                )
            return self._trust


def shown(webhook: Webhook) -> str:
    """The fingerprint of what a new connection gets, whether it is trusted or not."""
    pem = ssl.get_server_certificate(("127.0.0.1", webhook.port), timeout=10)
    return sha256(x509.load_pem_x509_certificate(pem.encode()))


def send(webhook: Webhook, trusting: ssl.SSLContext) -> None:
    """One request over a connection of its own. Raises OSError if it is not let in."""

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", webhook.port, context=trusting, timeout=10)

    Poster(connect, "/validate", FINE, keep=False).send()
