"""TLS contexts for a listener whose certificate changes while connections come in.

A listener gives :attr:`TlsContextProvider.context` to its sockets once, and calls
:meth:`TlsContextProvider.set_certificate` for every new certificate.
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

HandshakeFailure = Literal[
    "peer_distrusts", "peer_expired", "no_client_certificate", "client_certificate", "protocol"
]
"""Why a handshake fails: the peer does not trust our certificate, or considers it expired; the peer
sends no client certificate, or one that is not valid; or both sides have no TLS version or cipher
in common.
"""

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; all ciphers of TLS 1.3 are secure


def new_context(tls_min_version: str = "1.2") -> ssl.SSLContext:
    """Return the context of a server, without a certificate.

    Without session tickets: the API server's client keeps no sessions. Python cannot switch off
    OpenSSL's session cache, so clients of TLS 1.2 may resume by session id, but only in the same
    context: every new certificate or client CA ends all sessions. Without ALPN: the API server
    speaks HTTP/1.1 to webhooks.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[tls_min_version]
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def build_context(cert_pem: bytes, key_pem: bytes, tls_min_version: str = "1.2") -> ssl.SSLContext:
    """Return the context of a server with a certificate chain and its key.

    Raise ssl.SSLError if they do not match.
    """
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
    else:  # OpenSSL requires a path: without memfd (macOS) a private file exists for a moment
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "serving.pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            context.load_cert_chain(path)
    return context


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """The serving cert of new connections."""

    not_before: datetime
    not_after: datetime
    sha256: str
    """The fingerprint of the certificate, lower-case hexadecimal."""


class TlsContextProvider:
    """An SSL context that always serves the current certificate;
    a swap never interrupts open handshakes.

    Listeners get :attr:`context` once. Every connection starts in the context that is current at
    that time, so replacing one reference is the whole swap. No context in use ever gets another
    certificate: that would break open handshakes.
    """

    def __init__(
        self,
        *,
        tls_min_version: str = "1.2",
        client_ca: bytes | None = None,
        client_names: Sequence[str] = (),
    ) -> None:
        """Build a context without a certificate; until there is one, every handshake fails.

        Args:
            tls_min_version: ``1.2`` or ``1.3``.
            client_ca: PEM. If given, clients need a certificate of this CA.
            client_names: If given, the client certificate needs one of these names.

        Raises:
            ssl.SSLError, ValueError: the CA is not valid.
        """
        self._lock = threading.RLock()  # a new certificate and a new CA come from different threads
        self._tls_min_version = tls_min_version
        self._client_ca = client_ca
        self._client_names = frozenset(client_names)
        self._connection = _connection_class(self)
        self._current = self._prepare(new_context(tls_min_version))
        self._pem: tuple[bytes, bytes] | None = None
        self.served: ServedCertificate | None = None
        self.before_connection: Callable[[], None] = lambda: None
        """Called before each connection, to load a newer certificate. Must be quick."""
        self.on_handshake_failure: Callable[[HandshakeFailure], None] = lambda _failure: None
        """Called with the reason when a handshake fails, unless the peer only disconnects.
        Must be quick.
        """
        self.context = _DelegatingContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current_context = self.current_context

    def set_certificate(self, cert_pem: bytes, key_pem: bytes) -> None:
        """Serve this certificate from the next connection on.

        Raise ssl.SSLError or ValueError, changing nothing.
        """
        current = build_context(cert_pem, key_pem, self._tls_min_version)
        cert = x509.load_pem_x509_certificate(cert_pem)
        fingerprint = cert.fingerprint(hashes.SHA256()).hex()
        with self._lock:
            self._current = self._prepare(current)
            self.served = ServedCertificate(
                cert.not_valid_before_utc, cert.not_valid_after_utc, fingerprint
            )
            self._pem = (cert_pem, key_pem)

    def replace_client_ca(self, client_ca: bytes) -> None:
        """Trust clients of another CA from the next connection on.

        Raises:
            ssl.SSLError, ValueError: the CA is not valid, or clients need no certificates; nothing
                changes.
        """
        if self._client_ca is None:
            raise ValueError("client certificates are not required")
        _trust_client_ca(new_context(), client_ca)
        with self._lock:
            self._client_ca = client_ca
            if self._pem:
                self.set_certificate(*self._pem)

    @property
    def authenticates_clients(self) -> bool:
        """Whether clients need a certificate."""
        return self._client_ca is not None

    def is_allowed(self, peer: Mapping[str, Any] | None) -> bool:
        """Return whether a verified client (``getpeercert()``) has one of the names.

        True if no names are required.
        """
        if not self._client_names:
            return True
        peer = peer or {}
        names = {value for kind, value in peer.get("subjectAltName", ()) if kind == "DNS"}
        names |= {
            value for rdn in peer.get("subject", ()) for kind, value in rdn if kind == "commonName"
        }
        return not names.isdisjoint(self._client_names)

    def current_context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        self.before_connection()
        return self._current

    def _prepare(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self._client_ca is not None:
            _trust_client_ca(context, self._client_ca)
        context.sslobject_class = self._connection
        return context


class _DelegatingContext(ssl.SSLContext):
    """Starts each connection in the current context.

    A server name callback (``sni_callback``) could do the same, but Python prints a traceback for a
    server name that is not ASCII.
    """

    current_context: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Start a connection. asyncio calls this method."""
        return self.current_context().wrap_bio(*arguments, **options)


def _trust_client_ca(context: ssl.SSLContext, client_ca: bytes) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_ca.decode("ascii"))


def _connection_class(provider: TlsContextProvider) -> type[ssl.SSLObject]:
    """Return a class of connections that check the client's name and report failed handshakes to
    the provider.
    """

    class Connection(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except ssl.SSLError as error:
                if failure := failure_of(error):
                    provider.on_handshake_failure(failure)
                raise
            # would outlive the client certificate
            if provider.authenticates_clients and self.session_reused:
                provider.on_handshake_failure("client_certificate")
                raise ssl.SSLCertVerificationError(
                    "the client resumes a session instead of presenting its certificate"
                )
            if not provider.is_allowed(self.getpeercert()):
                provider.on_handshake_failure("client_certificate")
                raise ssl.SSLCertVerificationError(
                    "the client certificate has none of the required names"
                )

    return Connection


def failure_of(error: ssl.SSLError) -> HandshakeFailure | None:
    """Return why a handshake failed, or None if it only continues or the peer only disconnected."""
    reason = error.reason
    if not reason or isinstance(error, ssl.SSLEOFError):
        return None
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return "peer_expired" if "EXPIRED" in reason else "peer_distrusts"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "no_client_certificate"
    return "client_certificate" if "CERTIFICATE_VERIFY_FAILED" in reason else "protocol"
