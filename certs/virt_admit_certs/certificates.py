"""Make certificates and inspect them. No clock, no files, no network.

Three kinds of certificate exist. A *signer* is a CA that API servers trust through ``caBundle``. A
*serving cert* is what the listener sends. A *cross certificate* is a new signer certified by the
previous one: it follows the serving cert in the chain, so that API servers that know only the old
signer trust it too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from virt_admit_certs.keys import PrivateKey, new_key, signature_hash
from virt_admit_certs.names import general_name, name_constraints, name_constraints_of

Certificate = x509.Certificate

BACKDATED: Final = timedelta(hours=1)
"""How long before its creation a certificate becomes valid:
the clocks of several API servers differ.
"""

SKEW: Final = timedelta(minutes=5)
"""A start date or a note further in the future than this comes from a wrong clock."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    cert: Certificate
    key: PrivateKey = field(repr=False)


def new_signer(
    now: datetime, duration: timedelta, kind: str = "p256", names: Sequence[str] = ()
) -> Pair:
    """Make a signer, valid from an hour before ``now`` until ``duration`` after it.

    Its path length is 1, not 0, because a cross certificate below it is a CA too. With ``names`` it
    gets name constraints: a stolen key can impersonate only these names.
    """
    key = new_key(kind)
    name = _named(f"virt-admit signer {int(now.timestamp())}")
    builder = _certificate(name, name, key, now - BACKDATED, now + duration)
    builder = _as_authority(builder, path_length=1)
    if names:
        builder = builder.add_extension(name_constraints(names), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(_authority(identifier), critical=False)
    return Pair(builder.sign(key, signature_hash(key)), key)


def new_serving(
    signer: Pair, names: Sequence[str], now: datetime, duration: timedelta, kind: str = "p256"
) -> Pair:
    """Make a serving cert for DNS names and IP addresses, within the life of its signer.

    Raises:
        ValueError: a name is not valid in a certificate, or there are no names.
    """
    if not names:
        raise ValueError("a serving cert needs a name")
    key = new_key(kind)
    begin = max(now - BACKDATED, signer.cert.not_valid_before_utc)
    end = min(now + duration, signer.cert.not_valid_after_utc)
    builder = _certificate(_named("virt-admit"), signer.cert.subject, key, begin, end)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    ).add_extension(
        x509.SubjectAlternativeName([general_name(name) for name in names]), critical=False
    )
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    ).add_extension(_authority(_identifier(signer.cert)), critical=False)
    return Pair(builder.sign(signer.key, signature_hash(signer.key)), key)


def new_cross(signer: Certificate, by: Pair, now: datetime) -> Certificate:
    """Certify ``signer`` by the previous signer, while both are valid,
    with the name constraints of ``signer``.
    """
    end = min(signer.not_valid_after_utc, by.cert.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(signer.subject)
        .issuer_name(by.cert.subject)
        .public_key(signer.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )
    builder = _as_authority(builder, path_length=0)
    if constraints := name_constraints_of(signer):
        builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_identifier(signer), critical=False)
    builder = builder.add_extension(_authority(_identifier(by.cert)), critical=False)
    return builder.sign(by.key, signature_hash(by.key))


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _as_authority(builder: x509.CertificateBuilder, path_length: int) -> x509.CertificateBuilder:
    return builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=path_length), critical=True
    ).add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier(cert: Certificate) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(cert.public_key())


def _authority(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def valid(cert: Certificate, now: datetime) -> bool:
    """Return whether a certificate is valid at ``now``;
    a clock that is behind by up to SKEW is tolerated.
    """
    return cert.not_valid_before_utc - SKEW <= now < cert.not_valid_after_utc


@functools.lru_cache(maxsize=64)
def issued_by(cert: Certificate, signer: Certificate) -> bool:
    """Return whether ``signer`` signed ``cert``; verifies the signature."""
    try:
        cert.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_authority(cert: Certificate) -> bool:
    """Return whether a certificate may sign others."""
    try:
        basic = cert.extensions.get_extension_for_class(x509.BasicConstraints).value
        if not basic.ca:
            return False
        return cert.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return (
            missing.oid == x509.KeyUsage.oid
        )  # without a key usage, every usage is allowed (RFC 5280, section 4.2.1.3)
    except ValueError:  # a duplicate extension, or one that cannot be decoded
        return False


def sha256(cert: Certificate) -> str:
    """Return the fingerprint of a certificate, lower-case hexadecimal."""
    return cert.fingerprint(hashes.SHA256()).hex()


def certs_pem(certs: Iterable[Certificate]) -> bytes:
    """Return certificates as PEM, in this order."""
    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in certs)


def timestamp(at: datetime) -> str:
    """Return a time in RFC 3339, in UTC, as the notes contain it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
