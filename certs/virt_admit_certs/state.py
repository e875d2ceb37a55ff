"""The content of a store: read from PEM, written as PEM."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from virt_admit_certs.certificates import (
    Certificate,
    Pair,
    certs_pem,
    is_authority,
    issued_by,
    sha256,
)
from virt_admit_certs.keys import PrivateKey, key_pem

KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key", "next.crt", "next.key", "cross.crt")
"""The keys of a store: the same in a Secret and in a directory."""

PRIVATE_KEYS: Final = tuple(key for key in KEYS if key.endswith(".key"))

MAX_SIGNERS: Final = 8
"""Certificates in a bundle at most."""

_MAX_CERTIFICATE: Final = 10_000  # bytes of PEM; a signer with an RSA key of 4096 bits has 2,000

_BEGIN: Final = b"-----BEGIN "

_END: Final = b"-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class CertificateState:
    """The parsed content of a store.

    Whether a certificate has expired is a separate question, with a ``now``.
    """

    signer: Pair | None = None
    bundle: tuple[Certificate, ...] = ()
    """Every trusted signer in the order of :func:`ordered`;
    expired ones remain until the next save.
    """
    serving: Pair | None = None
    chain: tuple[Certificate, ...] = ()
    """The certificates sent after the serving cert: the cross certificate, or none."""
    next: Pair | None = None
    announced: bool = False
    """A next signer is stored, whether it is valid or not."""
    cross: Certificate | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """What is missing or not valid, for people. Never quotes the content."""


def ordered(certs: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Return each certificate once: newest first, then by fingerprint.

    The order is deterministic, because an API server opens new connections after each change of a
    ``caBundle`` (kubernetes/apiserver: pkg/util/webhook/client.go#HookClient).
    """
    return tuple(
        sorted(set(certs), key=lambda cert: (-cert.not_valid_before_utc.timestamp(), sha256(cert)))
    )


def bundle_of(
    now: datetime, needed: Sequence[Certificate], others: Iterable[Certificate] = ()
) -> tuple[Certificate, ...]:
    """Return the bundle to save: the needed certificates,
    and the newest of the others that have not expired.
    """
    rest = [
        cert for cert in ordered(others) if cert.not_valid_after_utc > now and cert not in needed
    ]
    return ordered([*needed, *rest[: MAX_SIGNERS - len(needed)]])


def render(state: CertificateState) -> dict[str, bytes]:
    """Return the content of a store for a state: the inverse of :func:`parse`.

    Files that do not exist are omitted.
    """
    data = {"ca.crt": certs_pem(state.bundle)}
    if state.signer:
        data["ca.key"] = key_pem(state.signer.key)
    if state.serving:
        data["tls.crt"] = certs_pem([state.serving.cert, *state.chain])
        data["tls.key"] = key_pem(state.serving.key)
    if state.next:
        data["next.crt"] = certs_pem([state.next.cert])
        data["next.key"] = key_pem(state.next.key)
    if state.cross:
        data["cross.crt"] = certs_pem([state.cross])
    return data


def parse(data: Mapping[str, bytes], notes: Mapping[str, str] | None = None) -> CertificateState:
    """Parse the content of a store.

    Never raises: parts that are not valid are left out and named in ``faults``.
    """
    faults: list[str] = []
    authorities = parse_bundle(data.get("ca.crt", b""), faults)
    signer = _signer(data, authorities, faults)
    serving, chain = _serving(data, faults)
    following = _next(data, authorities, faults)
    cross = _cross(data, signer, faults)
    needed = {pair.cert for pair in (signer, following) if pair}
    if serving:  # an external bundle can contain many CAs: keep those that issued the chain
        needed |= {
            authority
            for authority in authorities
            if any(issued_by(cert, authority) for cert in (serving.cert, *chain))
        }
    rest = [cert for cert in authorities if cert not in needed]
    bundle = ordered([*needed, *rest][:MAX_SIGNERS])
    if len(bundle) < len(authorities):
        faults.append(f"ca.crt: {len(authorities)} certificates, the newest {MAX_SIGNERS} count")
    return CertificateState(
        signer=signer,
        bundle=bundle,
        serving=serving,
        chain=chain,
        next=following,
        announced=bool(data.get("next.crt") or data.get("next.key")),
        cross=cross,
        notes=dict(notes or {}),
        faults=tuple(faults),
    )


def parse_bundle(pem: bytes, faults: list[str], name: str = "ca.crt") -> tuple[Certificate, ...]:
    """Return the CA certificates of a bundle in the order of :func:`ordered`; add other
    certificates to ``faults``.
    """
    certs = parse_certs(pem, faults, name)
    authorities = ordered(cert for cert in certs if is_authority(cert))
    others = sum(not is_authority(cert) for cert in certs)
    if others:
        faults.append(f"{name}: {others} of {len(certs)} certificates are not a CA")
    return authorities


def parse_certs(pem: bytes, faults: list[str], name: str) -> list[Certificate]:
    """Return the certificates of a PEM file in its order;
    add blocks that are not certificates to ``faults``.
    """
    if not pem.strip():
        faults.append(f"{name}: missing")
        return []
    blocks = pem.split(_BEGIN)[1:]
    certs = []
    for block in blocks:
        content, end, _ = block.partition(_END)
        if end and content.startswith(b"CERTIFICATE-----") and len(content) <= _MAX_CERTIFICATE:
            with contextlib.suppress(ValueError, UnsupportedAlgorithm):  # counted below
                certs.append(_load(_BEGIN + content + end))
    if not certs or len(certs) != len(blocks):
        faults.append(f"{name}: unreadable")
    return certs


@functools.lru_cache(maxsize=64)  # every round parses the same certificates
def _load(pem: bytes) -> Certificate:
    return x509.load_pem_x509_certificate(pem)


def _key(data: Mapping[str, bytes], name: str, faults: list[str]) -> PrivateKey | None:
    pem = data.get(name, b"")
    if not pem.strip():
        faults.append(f"{name}: missing")
        return None
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        faults.append(f"{name}: unreadable")
        return None
    if not isinstance(key, PrivateKey):
        faults.append(f"{name}: neither an elliptic-curve nor an RSA key")
        return None
    return key


def _fits(cert: Certificate, key: PrivateKey) -> bool:
    try:
        return cert.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


def _signer(
    data: Mapping[str, bytes], authorities: tuple[Certificate, ...], faults: list[str]
) -> Pair | None:
    """Find the current signer: the certificate of the stored key. So the two cannot disagree."""
    key = _key(data, "ca.key", faults)
    if key is None:
        return None
    for cert in authorities:
        if _fits(cert, key):
            return Pair(cert, key)
    faults.append("ca.key: fits no certificate of ca.crt")
    return None


def _serving(
    data: Mapping[str, bytes], faults: list[str]
) -> tuple[Pair | None, tuple[Certificate, ...]]:
    certs = parse_certs(data.get("tls.crt", b""), faults, "tls.crt")
    key = _key(data, "tls.key", faults)
    if not certs or key is None:
        return None, ()
    if not _fits(certs[0], key):
        faults.append("tls.key: does not fit tls.crt")
        return None, ()
    return Pair(certs[0], key), tuple(certs[1:])


def _next(
    data: Mapping[str, bytes], authorities: tuple[Certificate, ...], faults: list[str]
) -> Pair | None:
    if not data.get("next.crt") and not data.get("next.key"):
        return None
    certs = parse_certs(data.get("next.crt", b""), faults, "next.crt")
    key = _key(data, "next.key", faults)
    if not certs or key is None:
        return None
    if not _fits(certs[0], key):
        faults.append("next.key: does not fit next.crt")
        return None
    if certs[0] not in authorities:  # after its promotion no API server would trust us
        faults.append("next.crt: not in ca.crt")
        return None
    return Pair(certs[0], key)


def _cross(data: Mapping[str, bytes], signer: Pair | None, faults: list[str]) -> Certificate | None:
    if not data.get("cross.crt"):
        return None
    certs = parse_certs(data["cross.crt"], faults, "cross.crt")
    if not certs or signer is None:
        return None
    if not _fits(certs[0], signer.key):
        faults.append("cross.crt: does not certify the signer")
        return None
    return certs[0]
