"""TLS contexts: made fresh from PEM, and swapped while connections come in.

Needs nothing but ssl: whoever listens gives :attr:`Front.context` to its sockets once, and calls :meth:`Front.show`
for every new certificate.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes

TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

Failure = Literal["peer_distrusts", "peer_expired", "no_client_certificate", "client_certificate", "protocol"]
"""Why a handshake fails: the peer does not believe our certificate, or does not take it to be valid still; it shows
none, or not a good one; or it speaks no TLS that we do."""

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; TLS 1.3 has only good ones


def new_context(tls_min_version: str = "1.2") -> ssl.SSLContext:
    """A server's context without a certificate.

    No tickets: the API server's client keeps no sessions, and a resumed one would outlive a revoked signer. No ALPN:
    HTTP/1.1 is what the API server speaks to webhooks.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[tls_min_version]
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def build_context(cert_pem: bytes, key_pem: bytes, tls_min_version: str = "1.2") -> ssl.SSLContext:
    """A server's context with a certificate chain and its key. Raises ssl.SSLError if they do not fit."""
    context = new_context(tls_min_version)
    content = cert_pem.rstrip() + b"\n" + key_pem
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("serving", os.MFD_CLOEXEC)
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(content)
            context.load_cert_chain(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)
    else:  # OpenSSL wants a path, and here only a file has one: private, and gone at once
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "serving.pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            context.load_cert_chain(path)
    return context


@dataclass(frozen=True, slots=True)
class Shown:
    """The serving cert that new connections get."""

    not_before: datetime
    not_after: datetime
    sha256: str
    """Of the certificate, lower-case hexadecimal."""


class Front:
    """A context that stands for whichever certificate is current.

    Listeners get :attr:`context` once. Every connection begins in the context that is current by then: replacing one
    reference is the whole swap. A live context never gets another certificate; that would break handshakes under way.
    """

    def __init__(
        self, *, tls_min_version: str = "1.2", client_ca: bytes | None = None, client_names: Sequence[str] = ()
    ) -> None:
        """With ``client_ca`` (PEM) only clients with a certificate of it get in, with names only those that it names.

        Raises ssl.SSLError or ValueError for a CA that is none.
        """
        self._lock = threading.RLock()  # a new certificate and a new CA come from different threads
        self._tls_min_version = tls_min_version
        self._client_ca = client_ca
        self._client_names = frozenset(client_names)
        self._connection = _watched_by(self)
        self._current = self._ready(new_context(tls_min_version))  # without a certificate every handshake fails
        self._pem: tuple[bytes, bytes] | None = None
        self.shown: Shown | None = None
        self.refresh: Callable[[], None] = lambda: None
        """Called before each connection, to look whether something newer can be shown. Must be quick."""
        self.failed: Callable[[Failure], None] = lambda _failure: None
        """Called with the reason when a handshake fails, unless the peer just leaves. Must be quick."""
        self.context = _Standing(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = self.current

    def show(self, cert_pem: bytes, key_pem: bytes) -> None:
        """Show this certificate from the next connection on. Raises ssl.SSLError or ValueError, and changes nothing."""
        current = build_context(cert_pem, key_pem, self._tls_min_version)
        cert = x509.load_pem_x509_certificate(cert_pem)
        fingerprint = cert.fingerprint(hashes.SHA256()).hex()
        with self._lock:
            self._current = self._ready(current)
            self.shown = Shown(cert.not_valid_before_utc, cert.not_valid_after_utc, fingerprint)
            self._pem = (cert_pem, key_pem)

    def replace_client_ca(self, client_ca: bytes) -> None:
        """Believe clients of another CA from the next connection on.

        Raises ssl.SSLError or ValueError, and changes nothing, for a CA that is none or if none was asked for before.
        """
        if self._client_ca is None:
            raise ValueError("clients were never asked for certificates")
        _believe(new_context(), client_ca)
        with self._lock:
            self._client_ca = client_ca
            if self._pem:
                self.show(*self._pem)

    def admits(self, peer: Mapping[str, Any] | None) -> bool:
        """Whether a verified client (``getpeercert()``) has one of the wanted names; always true without names."""
        if not self._client_names:
            return True
        peer = peer or {}
        names = {value for kind, value in peer.get("subjectAltName", ()) if kind == "DNS"}
        names |= {value for rdn in peer.get("subject", ()) for kind, value in rdn if kind == "commonName"}
        return not names.isdisjoint(self._client_names)

    def _ready(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self._client_ca is not None:
            _believe(context, self._client_ca)
        context.sslobject_class = self._connection
        return context

    def current(self) -> ssl.SSLContext:
        """The context for the next connection."""
        self.refresh()
        return self._current


class _Standing(ssl.SSLContext):
    """Stands for the context that is current.

    Not by a callback for server names (``sni_callback``): Python prints a traceback for a name that is not ASCII.
    """

    current: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection, as asyncio does."""
        return self.current().wrap_bio(*arguments, **options)


def _believe(context: ssl.SSLContext, client_ca: bytes) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_ca.decode("ascii"))


def _watched_by(front: Front) -> type[ssl.SSLObject]:
    """Connections whose handshakes the front hears of, and in which it has the last word on who is let in."""

    class Watched(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except ssl.SSLError as error:
                if failure := failure_of(error):
                    front.failed(failure)
                raise
            if not front.admits(self.getpeercert()):
                front.failed("client_certificate")
                raise ssl.SSLCertVerificationError("the client has none of the wanted names")

    return Watched


def failure_of(error: ssl.SSLError) -> Failure | None:
    """Why a handshake fails; None if it just goes on, or the peer just leaves."""
    reason = error.reason
    if not reason or isinstance(error, ssl.SSLEOFError):
        return None
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return "peer_expired" if "EXPIRED" in reason else "peer_distrusts"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "no_client_certificate"
    return "client_certificate" if "CERTIFICATE_VERIFY_FAILED" in reason else "protocol"
