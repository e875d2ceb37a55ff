"""Keys and certificates: how they are made, read and written. No clock, no files, no network.

Three kinds of certificate exist. A *signer* is a CA that API servers trust through ``caBundle``. A *serving cert*
is what the listener shows. A *cross certificate* is a new signer certified by the one before it; it follows the
serving cert in the chain and convinces those who know the old signer only.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Certificate = x509.Certificate

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

KEY_KINDS: Final = ("p256", "p384", "rsa2048", "rsa3072")

KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key", "next.crt", "next.key", "cross.crt")
"""The names under which a store keeps a state: the same in a Secret and in a directory."""

PRIVATE_KEYS: Final = tuple(key for key in KEYS if key.endswith(".key"))

BACKDATED: Final = timedelta(hours=1)
"""How far certificates begin before their making: the clocks of several API servers differ."""

SKEW: Final = timedelta(minutes=5)
"""A beginning or a note further in the future than this was made by a wrong clock."""

MAX_SIGNERS: Final = 8
"""Certificates in a bundle at most."""

_MAX_CERTIFICATE: Final = 10_000  # bytes of PEM; a signer with an RSA key of 4096 bits has 2,000
_BEGIN: Final = b"-----BEGIN "
_END: Final = b"-----END CERTIFICATE-----"
_LABEL: Final = r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?"
_DNS_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z)(\*\.)?{_LABEL}(\.{_LABEL})*\Z")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and the private key that fits it."""

    cert: Certificate
    key: PrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class State:
    """What a store holds, read. Says nothing of time: whether something has expired is asked with a ``now``."""

    signer: Pair | None = None
    bundle: tuple[Certificate, ...] = ()
    """Every trusted signer in the order of :func:`ordered`; those that have expired stay until the next save."""
    serving: Pair | None = None
    chain: tuple[Certificate, ...] = ()
    """What is shown behind the serving cert: the cross certificate, or nothing."""
    next: Pair | None = None
    announced: bool = False
    """Something is stored as the next signer, be it usable or not."""
    cross: Certificate | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """What was missing or unreadable, for people. Never contains what was read."""


# Making


def new_key(kind: str) -> PrivateKey:
    """Make a private key of one of :data:`KEY_KINDS`."""
    match kind:
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "rsa2048" | "rsa3072":
            return rsa.generate_private_key(public_exponent=65537, key_size=int(kind.removeprefix("rsa")))
    raise ValueError(f"unknown kind of key {kind!r}; known are {', '.join(KEY_KINDS)}")


def kind_of(key: PrivateKey) -> str:
    """The kind of a key: one of :data:`KEY_KINDS`, or what else it is in the same style."""
    if isinstance(key, rsa.RSAPrivateKey):
        return f"rsa{key.key_size}"
    return f"p{key.key_size}"


def new_signer(now: datetime, duration: timedelta, kind: str = "p256", names: Sequence[str] = ()) -> Pair:
    """Make a signer, valid from an hour before ``now`` for ``duration`` after it.

    Its path length is 1, not 0, because a cross certificate below it is a CA too. With ``names`` it is bound to them:
    whoever steals its key can pretend to be nobody else.
    """
    key = new_key(kind)
    name = _named(f"virt-admit signer {int(now.timestamp())}")
    builder = _certificate(name, name, key, now - BACKDATED, now + duration)
    builder = _as_authority(builder, path_length=1)
    if names:
        builder = builder.add_extension(_constraints(names), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(_authority(identifier), critical=False)
    return Pair(builder.sign(key, _hash(key)), key)


def new_serving(signer: Pair, names: Sequence[str], now: datetime, duration: timedelta, kind: str = "p256") -> Pair:
    """Make a serving cert for DNS names and IP addresses, within the life of its signer.

    Raises ValueError for a name that cannot stand in a certificate, and for no name at all.
    """
    if not names:
        raise ValueError("a serving cert needs a name")
    key = new_key(kind)
    begin = max(now - BACKDATED, signer.cert.not_valid_before_utc)
    end = min(now + duration, signer.cert.not_valid_after_utc)
    builder = _certificate(_named("virt-admit"), signer.cert.subject, key, begin, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    ).add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    ).add_extension(_authority(_identifier(signer.cert)), critical=False)
    return Pair(builder.sign(signer.key, _hash(signer.key)), key)


def new_cross(signer: Certificate, by: Pair, now: datetime) -> Certificate:
    """Certify ``signer`` by the signer before it, as long as both live, for the names that it is bound to."""
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
    if constraints := bound(signer):
        builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_identifier(signer), critical=False)
    builder = builder.add_extension(_authority(_identifier(by.cert)), critical=False)
    return builder.sign(by.key, _hash(by.key))


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
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True).add_extension(
        _usage(key_cert_sign=True, crl_sign=True), critical=True
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
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


def _hash(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384:
    return hashes.SHA384() if kind_of(key) == "p384" else hashes.SHA256()


# Names


def canonical_name(name: str) -> str:
    """A DNS name in lower case or an IP address (without a zone) in its shortest form; ValueError for anything else."""
    lower = name.lower()
    if _DNS_NAME.match(lower) and not lower.rpartition(".")[2].isdigit():  # or it means to be an address
        return lower
    with contextlib.suppress(ValueError):
        if "%" not in name:
            return str(ipaddress.ip_address(name))
    raise ValueError(f"{name!r} is neither a DNS name nor an IP address")


def _general_name(name: str) -> x509.GeneralName:
    canonical = canonical_name(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(canonical))
    except ValueError:
        return x509.DNSName(canonical)


def _constraints(names: Iterable[str]) -> x509.NameConstraints:
    """Permits these names alone. X.509 cannot permit a DNS name without those below it."""
    permitted = [_subtree(name) for name in names]
    addressed = any(isinstance(tree, x509.IPAddress) for tree in permitted)
    return x509.NameConstraints(permitted, None if addressed else _ALL_ADDRESSES)


def _subtree(name: str) -> x509.GeneralName:
    found = _general_name(name.removeprefix("*."))
    return x509.IPAddress(ipaddress.ip_network(found.value)) if isinstance(found, x509.IPAddress) else found


_ALL_ADDRESSES: Final = tuple(x509.IPAddress(ipaddress.ip_network(block)) for block in ("0.0.0.0/0", "::/0"))
"""Excluded where no address is permitted: X.509 takes silence about a kind of names for consent."""


@functools.lru_cache(maxsize=64)
def bound(signer: Certificate) -> x509.NameConstraints | None:
    """What a signer is bound to, or None."""
    try:
        return signer.extensions.get_extension_for_class(x509.NameConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def permits(signer: Certificate, name: str) -> bool:
    """Whether verifiers accept a certificate of this signer that is for a name (as :func:`canonical_name` gives it)."""
    constraints = bound(signer)
    if constraints is None:
        return True
    wanted = _general_name(name)
    permitted = [tree for tree in constraints.permitted_subtrees or () if isinstance(tree, type(wanted))]
    excluded = [tree for tree in constraints.excluded_subtrees or () if isinstance(tree, type(wanted))]
    return (not permitted or any(_within(wanted, tree) for tree in permitted)) and not any(
        _within(wanted, tree) for tree in excluded
    )


def _within(name: x509.GeneralName, tree: x509.GeneralName) -> bool:
    if isinstance(name, x509.IPAddress):
        return name.value in tree.value
    return f".{name.value.removeprefix('*.')}".endswith(f".{tree.value.lower().lstrip('.')}")


def names_of(cert: Certificate) -> tuple[str, ...]:
    """The DNS names and IP addresses that a certificate is good for, in its own order."""
    try:
        extension = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(str(name.value).lower() for name in extension.value if isinstance(name, x509.DNSName | x509.IPAddress))


def good_for(cert: Certificate, name: str) -> bool:
    """Whether verifiers accept a certificate as that of a name: it has the name, or ``*`` for its first label."""
    return not {name, f"*.{name.partition('.')[2]}"}.isdisjoint(names_of(cert))


# Asking


def valid(cert: Certificate, now: datetime) -> bool:
    """Whether a certificate may be used at ``now``; a clock that is wrong by up to SKEW is forgiven."""
    return cert.not_valid_before_utc - SKEW <= now < cert.not_valid_after_utc


@functools.lru_cache(maxsize=64)
def issued_by(cert: Certificate, signer: Certificate) -> bool:
    """Whether ``signer`` really signed ``cert``."""
    try:
        cert.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_authority(cert: Certificate) -> bool:
    """Whether a certificate may sign others."""
    try:
        basic = cert.extensions.get_extension_for_class(x509.BasicConstraints).value
        if not basic.ca:
            return False
        return cert.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as missing:
        return missing.oid == x509.KeyUsage.oid  # without a key usage everything is allowed
    except ValueError:  # an extension twice, or not to be decoded
        return False


def sha256(cert: Certificate) -> str:
    """The fingerprint of a certificate in lower-case hexadecimal digits."""
    return cert.fingerprint(hashes.SHA256()).hex()


# Writing


def ordered(certs: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Each certificate once: newest first, then by fingerprint.

    Deterministic, for each changed byte of a ``caBundle`` makes an API server build new connections.
    """
    return tuple(sorted(set(certs), key=lambda cert: (-cert.not_valid_before_utc.timestamp(), sha256(cert))))


def bundle_of(
    now: datetime, needed: Sequence[Certificate], others: Iterable[Certificate] = ()
) -> tuple[Certificate, ...]:
    """The bundle for a save: what is needed, and the newest of the others that have not expired."""
    rest = [cert for cert in ordered(others) if cert.not_valid_after_utc > now and cert not in needed]
    return ordered([*needed, *rest[: MAX_SIGNERS - len(needed)]])


def certs_pem(certs: Iterable[Certificate]) -> bytes:
    """Certificates as PEM, one after the other."""
    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in certs)


def key_pem(key: PrivateKey) -> bytes:
    """A private key as PKCS#8 PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def render(state: State) -> dict[str, bytes]:
    """The content of a store for a state: the inverse of :func:`parse`. What does not exist has no key."""
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


# Reading


def parse(data: Mapping[str, bytes], notes: Mapping[str, str] | None = None) -> State:
    """Read the content of a store. Never raises: what cannot be used is left out and named in ``faults``."""
    faults: list[str] = []
    authorities = parse_bundle(data.get("ca.crt", b""), faults)
    signer = _signer(data, authorities, faults)
    serving, chain = _serving(data, faults)
    following = _next(data, authorities, faults)
    cross = _cross(data, signer, faults)
    needed = {pair.cert for pair in (signer, following) if pair}
    if serving:  # of somebody else's many authorities, those that matter
        needed |= {each for each in authorities if any(issued_by(cert, each) for cert in (serving.cert, *chain))}
    rest = [cert for cert in authorities if cert not in needed]
    bundle = ordered([*needed, *rest][:MAX_SIGNERS])
    if len(bundle) < len(authorities):
        faults.append(f"ca.crt: {len(authorities)} certificates, the newest {MAX_SIGNERS} count")
    return State(
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
    """The CA certificates of a bundle in the order of :func:`ordered`; what is no CA goes to ``faults``."""
    certs = parse_certs(pem, faults, name)
    authorities = ordered(cert for cert in certs if is_authority(cert))
    strangers = sum(not is_authority(cert) for cert in certs)
    if strangers:
        faults.append(f"{name}: {strangers} of {len(certs)} certificates are not a CA")
    return authorities


def parse_certs(pem: bytes, faults: list[str], name: str) -> list[Certificate]:
    """The certificates of a PEM file in its order; what is not a certificate goes to ``faults``."""
    if not pem.strip():
        faults.append(f"{name}: missing")
        return []
    blocks = pem.split(_BEGIN)[1:]
    certs = []
    for block in blocks:
        content, end, _ = block.partition(_END)
        if end and content.startswith(b"CERTIFICATE-----") and len(content) <= _MAX_CERTIFICATE:
            with contextlib.suppress(ValueError, UnsupportedAlgorithm):  # what is missing is counted below
                certs.append(_load(_BEGIN + content + end))
    if not certs or len(certs) != len(blocks):
        faults.append(f"{name}: unreadable")
    return certs


@functools.lru_cache(maxsize=64)  # every round reads the same ones
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


def _signer(data: Mapping[str, bytes], authorities: tuple[Certificate, ...], faults: list[str]) -> Pair | None:
    """The signer in force is the certificate whose key we have: so the two cannot disagree."""
    key = _key(data, "ca.key", faults)
    if key is None:
        return None
    for cert in authorities:
        if _fits(cert, key):
            return Pair(cert, key)
    faults.append("ca.key: fits no certificate of ca.crt")
    return None


def _serving(data: Mapping[str, bytes], faults: list[str]) -> tuple[Pair | None, tuple[Certificate, ...]]:
    certs = parse_certs(data.get("tls.crt", b""), faults, "tls.crt")
    key = _key(data, "tls.key", faults)
    if not certs or key is None:
        return None, ()
    if not _fits(certs[0], key):
        faults.append("tls.key: does not fit tls.crt")
        return None, ()
    return Pair(certs[0], key), tuple(certs[1:])


def _next(data: Mapping[str, bytes], authorities: tuple[Certificate, ...], faults: list[str]) -> Pair | None:
    if not data.get("next.crt") and not data.get("next.key"):
        return None
    certs = parse_certs(data.get("next.crt", b""), faults, "next.crt")
    key = _key(data, "next.key", faults)
    if not certs or key is None:
        return None
    if not _fits(certs[0], key):
        faults.append("next.key: does not fit next.crt")
        return None
    if certs[0] not in authorities:  # promoting it would show what nobody trusts
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
