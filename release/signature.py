"""Signatures over the files of a release.

A release signs without a stored key: cosign proves the identity of the workflow. The dry run has a
throw-away key and no network, and signs as `cosign sign-blob --key` does: ECDSA over SHA-256, in
base64.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from release.settings import DIST, REGISTRY, VERSION, run
from release.tools import tool


def sign(checksums: Path) -> list[Path]:
    """Sign the checksums, and image and chart in the registry; return the files with signatures."""
    if key := os.environ.get("SIGNING_KEY"):
        return sign_with_key(checksums, Path(key))
    bundle = checksums.with_suffix(".sigstore.json")
    run(tool("cosign"), "sign-blob", "--yes", "--bundle", bundle, checksums)
    digests = {name: (DIST / f"{name}.digest").read_text().strip() for name in ("image", "chart")}
    for name, digest in {
        "virt-admit": digests["image"],
        "charts/virt-admit": digests["chart"],
    }.items():
        run(tool("cosign"), "sign", "--yes", "--recursive", f"{REGISTRY}/{name}@{digest}")
    image = f"{REGISTRY}/virt-admit@{digests['image']}"
    for kind, file in (("spdxjson", "spdx"), ("cyclonedx", "cdx")):
        predicate = DIST / f"virt-admit-{VERSION}.{file}.json"
        run(tool("cosign"), "attest", "--yes", "--type", kind, "--predicate", predicate, image)
    return [bundle]


def sign_with_key(checksums: Path, key: Path) -> list[Path]:
    """Sign the checksums; return the files with signature and public key."""
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is not an EC key")
    signature, public = checksums.with_suffix(".sig"), checksums.with_suffix(".pub")
    raw = private.sign(checksums.read_bytes(), ec.ECDSA(hashes.SHA256()))
    signature.write_bytes(base64.b64encode(raw))
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(encoding, form))
    return [signature, public]
