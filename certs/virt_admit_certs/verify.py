"""Call a webhook as an API server would: which certificates it sends,
and why a bundle does not trust them.
"""

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

from virt_admit_certs.certificates import Certificate

PATIENCE: Final = 10.0
"""Seconds to connect, and for each read; the timeout of an API server for the handshake."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call fails, and the remedy: one line each."""

    reason: str
    remedy: str


def chain(host: str, port: int) -> tuple[Certificate, ...]:
    """Return the certificates that a server sends, without verifying them, the serving cert first.

    Raises:
        OSError: no server answers.
        ssl.SSLError: the handshake fails.
    """
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with _connected(host, port, host, context) as connection:
        return tuple(x509.load_der_x509_certificate(der) for der in _sent_certificates(connection))


def call(
    host: str, port: int, server_name: str, bundle: bytes, path: str = "/validate"
) -> CallFailure | None:
    """Send a review to ``host`` that matches no rule; return why it fails,
    or None if it is answered.

    Args:
        server_name: the name to verify.
        bundle: PEM to verify with. If empty, the root CAs of this machine, as an API server does.

    Raises:
        OSError: no server answers.
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
        return CallFailure("the bundle is not valid PEM", _PUBLISH)


def _context() -> ssl.SSLContext:
    """Return a context like the API server's: a trusted CA need not be a root,
    and only names in the SAN count.
    """
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


def _sent_certificates(connection: Any) -> list[bytes]:
    if hasattr(connection, "get_unverified_chain"):
        return list(connection.get_unverified_chain())
    # Python 3.11 and 3.12 have it under a private name only
    return [
        ssl.PEM_cert_to_DER_cert(cert.public_bytes())
        for cert in connection._sslobj.get_unverified_chain()
    ]


def _review(connection: ssl.SSLSocket, server_name: str, path: str) -> CallFailure | None:
    uid = str(uuid.uuid4())
    client = http.client.HTTPConnection(server_name)
    client.sock = connection
    try:
        with contextlib.suppress(
            ConnectionError, ssl.SSLEOFError
        ):  # reading the response raises the alert with the reason
            client.request(
                "POST",
                path,
                json.dumps(_review_without_rules(uid)),
                {"Content-Type": "application/json"},
            )
        response = client.getresponse()
        body = response.read()
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLEOFError) as error:
        return CallFailure(
            f"no response to a review ({type(error).__name__})", f"{_CLIENT}; or {_LOG}"
        )
    if response.status != HTTPStatus.OK:
        return CallFailure(
            f"the response to a review at {path} has HTTP status {response.status}", _PATH
        )
    try:
        answered = json.loads(body)["response"]["uid"] == uid
    except (ValueError, TypeError, KeyError):
        answered = False
    return (
        None
        if answered
        else CallFailure(f"the server at {path} is not an admission webhook", _PATH)
    )


def _review_without_rules(uid: str) -> dict[str, Any]:
    """Return a review that no rule applies to."""
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
            "object": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name},
            },
            "dryRun": True,
        },
    }


_STATUS: Final = "run virt-admit certs status: it shows what is stored and the next step"
_LOG: Final = "read the log of the webhook"
_PATH: Final = "use the URL of the webhook itself, ending in /validate or /mutate"
_PUBLISH: Final = (
    "the caBundle must be what virt-admit certs bundle prints; the webhook repairs it within "
    "seconds if it may patch it"
)
_CLIENT: Final = (
    "the webhook requires a client certificate (--client-ca); API servers send one only if "
    "configured to"
)
_NONE: Final = "the webhook has no certificate yet: run virt-admit certs status"

_VERIFICATIONS: Final = {  # by the codes of openssl/x509_vfy.h
    **dict.fromkeys((2, 18, 19, 20, 21), _PUBLISH),
    9: "the clock of the issuer is ahead, or the clock of this machine is behind",
    10: f"the certificate was not renewed: {_STATUS}",
    **dict.fromkeys(
        (62, 64), "serve with --cert-name and that name, or issue the certificate for that name"
    ),
}
_ALERTS: Final = (
    ("CERTIFICATE_REQUIRED", _CLIENT),
    ("HANDSHAKE_FAILURE", _NONE),
    (
        "PROTOCOL_VERSION",
        "both sides speak TLS 1.2 or newer, but no common version: see --tls-min-version",
    ),
    ("WRONG_VERSION_NUMBER", "that port does not speak TLS: use the port of --bind"),
    ("RECORD_LAYER_FAILURE", "that port does not speak TLS: use the port of --bind"),
)


def _tls_failure(error: ssl.SSLError, server_name: str) -> CallFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _VERIFICATIONS.get(error.verify_code, _STATUS)
        return CallFailure(
            error.verify_message.rstrip(".") or f"not trusted as {server_name}", remedy
        )
    if isinstance(error, ssl.SSLEOFError):  # asyncio sends no alerts
        return CallFailure(
            "the connection closes during the handshake",
            f"{_NONE}; or both sides have no common TLS version",
        )
    reason = error.reason or type(error).__name__
    for part, remedy in _ALERTS:
        if part in reason:
            return CallFailure(reason.replace("_", " ").lower(), remedy)
    return CallFailure(reason.replace("_", " ").lower(), _LOG)
