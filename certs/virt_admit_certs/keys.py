"""Private keys: make, identify and write them."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

KEY_KINDS: Final = ("p256", "p384", "rsa2048", "rsa3072")


def new_key(kind: str) -> PrivateKey:
    """Make a private key of one of the :data:`KEY_KINDS`."""
    match kind:
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "rsa2048" | "rsa3072":
            return rsa.generate_private_key(
                public_exponent=65537, key_size=int(kind.removeprefix("rsa"))
            )
    raise ValueError(f"unknown kind of key {kind!r}; known are {', '.join(KEY_KINDS)}")


def kind_of(key: PrivateKey) -> str:
    """Return the kind of a key: one of :data:`KEY_KINDS`, or a name of the same form."""
    if isinstance(key, rsa.RSAPrivateKey):
        return f"rsa{key.key_size}"
    return f"p{key.key_size}"


def signature_hash(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384:
    return hashes.SHA384() if kind_of(key) == "p384" else hashes.SHA256()


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as PKCS#8 PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
