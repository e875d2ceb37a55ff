"""A call as an API server would make it: what is shown, and why a bundle does not trust it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from cryptography import x509

from virt_admit_certs.issue import Certificate

PATIENCE: Final = 10.0
"""Seconds to connect, and for each read; an API server gives the handshake as long."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call fails, and what helps: a line each."""

    reason: str
    remedy: str


def chain(host: str, port: int) -> tuple[Certificate, ...]:
    """What is shown to everybody, trusted or not, the serving cert first.

    Raises OSError if nobody answers, and ssl.SSLError if there is no handshake.
    """
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with _connected(host, port, host, context) as connection:
        return tuple(x509.load_der_x509_certificate(der) for der in _shown(connection))


def call(host: str, port: int, server_name: str, bundle: bytes, path: str = "/validate") -> Failure | None:
    """Send a review of nothing to ``host``, verified as ``server_name`` with ``bundle`` (PEM); None: it is answered.

    Without a bundle the roots of this machine count, as those of its own machine do for an API server. Raises OSError
    if nobody answers.
    """
    context = _context()
    try:
        if bundle:
            context.load_verify_locations(cadata=bundle.decode("ascii"))
        else:
            context.load_default_certs()
        with _connected(host, port, server_name, context) as connection:
            return _review(connection, server_name, path)
    except ssl.SSLError as error:
        return _tls_failure(error, server_name)
    except UnicodeDecodeError:
        return Failure("the bundle is not PEM", _PUBLISH)


def _context() -> ssl.SSLContext:
    """A client like the API server's: a trusted CA need not be a root, and only names in the SAN count."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    return context


def _connected(host: str, port: int, server_name: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((host, port), PATIENCE)
    try:
        return context.wrap_socket(plain, server_hostname=server_name)
    except ConnectionError:
        plain.close()
        raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF") from None
    except BaseException:
        plain.close()
        raise


def _shown(connection: Any) -> list[bytes]:
    if hasattr(connection, "get_unverified_chain"):
        return list(connection.get_unverified_chain())
    # Python 3.11 and 3.12 have it under a private name only
    return [ssl.PEM_cert_to_DER_cert(cert.public_bytes()) for cert in connection._sslobj.get_unverified_chain()]


def _review(connection: ssl.SSLSocket, server_name: str, path: str) -> Failure | None:
    uid = str(uuid.uuid4())
    client = http.client.HTTPConnection(server_name)
    client.sock = connection
    try:
        with contextlib.suppress(ConnectionError, ssl.SSLEOFError):  # the alert that says why is there to be read
            client.request("POST", path, json.dumps(_nothing(uid)), {"Content-Type": "application/json"})
        answer = client.getresponse()
        body = answer.read()
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLEOFError) as error:
        return Failure(f"no answer to a review ({type(error).__name__})", f"{_CLIENT}; or {_LOG}")
    if answer.status != HTTPStatus.OK:
        return Failure(f"a review to {path} is answered with HTTP status {answer.status}", _PATH)
    try:
        answered = json.loads(body)["response"]["uid"] == uid
    except (ValueError, TypeError, KeyError):
        answered = False
    return None if answered else Failure(f"what answers at {path} is not an admission webhook", _PATH)


def _nothing(uid: str) -> dict[str, Any]:
    """A review that no rule has an opinion on."""
    kind = {"group": "", "version": "v1"}
    name = "virt-admit-certs-verify"
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {**kind, "kind": "ConfigMap"},
            "resource": {**kind, "resource": "configmaps"},
            "operation": "CREATE",
            "namespace": "default",
            "name": name,
            "userInfo": {"username": name},
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}},
            "dryRun": True,
        },
    }


_STATUS: Final = "virt-admit certs status says what is stored and which step comes next"
_LOG: Final = "the log of the webhook says why"
_PATH: Final = "give the URL of the webhook itself, ending in /validate or /mutate"
_PUBLISH: Final = (
    "the caBundle must be what virt-admit certs bundle prints; the webhook repairs it within seconds if it may patch it"
)
_CLIENT: Final = "it demands a client certificate (--client-ca), which API servers have only if they are told to"
_NONE: Final = "it has no certificate to show yet: virt-admit certs status"

_VERIFICATIONS: Final = {  # by the codes of openssl/x509_vfy.h
    **dict.fromkeys((2, 18, 19, 20, 21), _PUBLISH),
    9: "the clock of whoever issued it is ahead, or the one of this machine behind",
    10: f"it was not renewed: {_STATUS}",
    **dict.fromkeys((62, 64), "serve with --cert-name and that name, or have it issued for that name"),
}
_ALERTS: Final = (
    ("CERTIFICATE_REQUIRED", _CLIENT),
    ("HANDSHAKE_FAILURE", _NONE),
    ("PROTOCOL_VERSION", "both sides speak TLS 1.2 or newer, but not the same one: see --tls-min-version"),
    ("WRONG_VERSION_NUMBER", "that port does not speak TLS: give the one of --bind"),
    ("RECORD_LAYER_FAILURE", "that port does not speak TLS: give the one of --bind"),
)


def _tls_failure(error: ssl.SSLError, server_name: str) -> Failure:
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _VERIFICATIONS.get(error.verify_code, _STATUS)
        return Failure(error.verify_message.rstrip(".") or f"not trusted as {server_name}", remedy)
    if isinstance(error, ssl.SSLEOFError):  # asyncio sends no alerts
        return Failure("it hangs up in the handshake", f"{_NONE}; or it takes no TLS version that this machine speaks")
    reason = error.reason or type(error).__name__
    for part, remedy in _ALERTS:
        if part in reason:
            return Failure(reason.replace("_", " ").lower(), remedy)
    return Failure(reason.replace("_", " ").lower(), _LOG)
