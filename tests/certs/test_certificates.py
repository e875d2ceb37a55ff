"""Signers, serving certs and cross certificates: what they contain, and when they are valid."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.certs.world import DAY, HOUR, NAMES, SECOND, START, trusts
from virt_admit_certs.certificates import (
    Pair,
    certs_pem,
    is_authority,
    issued_by,
    new_cross,
    new_serving,
    new_signer,
    valid,
)
from virt_admit_certs.keys import kind_of, new_key
from virt_admit_certs.names import names_of

LIFE = timedelta(days=30)


@pytest.fixture(scope="module")
def old() -> Pair:
    return new_signer(START, LIFE)


@pytest.fixture(scope="module")
def new() -> Pair:
    return new_signer(START + 15 * DAY, LIFE)


def extension(cert: x509.Certificate, kind: type) -> tuple[object, bool]:
    found = cert.extensions.get_extension_for_class(kind)
    return found.value, found.critical


class TestIssued:
    def test_signer(self, old):
        cert = old.cert
        usage, usage_critical = extension(cert, x509.KeyUsage)
        identifier, _ = extension(cert, x509.SubjectKeyIdentifier)
        authority, _ = extension(cert, x509.AuthorityKeyIdentifier)

        assert cert.subject == cert.issuer
        assert cert.subject.rfc4514_string() == f"CN=virt-admit signer {int(START.timestamp())}"
        assert extension(cert, x509.BasicConstraints) == (
            x509.BasicConstraints(ca=True, path_length=1),
            True,
        )
        assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (True, True, False)
        assert usage_critical
        assert authority.key_identifier == identifier.digest
        assert (cert.not_valid_before_utc, cert.not_valid_after_utc) == (START - HOUR, START + LIFE)
        assert issued_by(cert, cert)

    def test_serving(self, old):
        cert = new_serving(old, NAMES, START, 2 * DAY).cert
        usage, usage_critical = extension(cert, x509.KeyUsage)

        assert cert.subject.rfc4514_string() == "CN=virt-admit"
        assert extension(cert, x509.BasicConstraints) == (
            x509.BasicConstraints(ca=False, path_length=None),
            True,
        )
        assert (usage.digital_signature, usage.key_cert_sign, usage_critical) == (True, False, True)
        assert list(extension(cert, x509.ExtendedKeyUsage)[0]) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert names_of(cert) == NAMES
        assert (cert.not_valid_before_utc, cert.not_valid_after_utc) == (
            START - HOUR,
            START + 2 * DAY,
        )
        assert issued_by(cert, old.cert)
        assert not is_authority(cert)

    @pytest.mark.parametrize("offset", [-2 * DAY, timedelta(), LIFE - DAY])
    def test_serving_stays_within_the_life_of_its_signer(self, old, offset):
        cert = new_serving(old, NAMES, START + offset, 3 * DAY).cert

        assert old.cert.not_valid_before_utc <= cert.not_valid_before_utc
        assert cert.not_valid_after_utc <= old.cert.not_valid_after_utc

    def test_cross(self, old, new):
        now = START + 15 * DAY
        cross = new_cross(new.cert, old, now)

        assert (cross.subject, cross.issuer) == (new.cert.subject, old.cert.subject)
        assert cross.public_key() == new.cert.public_key()
        assert extension(cross, x509.BasicConstraints) == (
            x509.BasicConstraints(ca=True, path_length=0),
            True,
        )
        assert (
            extension(cross, x509.SubjectKeyIdentifier)[0]
            == extension(new.cert, x509.SubjectKeyIdentifier)[0]
        )
        assert (
            extension(cross, x509.AuthorityKeyIdentifier)[0].key_identifier
            == extension(old.cert, x509.SubjectKeyIdentifier)[0].digest
        )
        assert cross.not_valid_after_utc == old.cert.not_valid_after_utc
        leaf = new_serving(new, NAMES, now, DAY).cert
        assert trusts(certs_pem([old.cert]), (leaf, cross), now)
        assert not trusts(certs_pem([old.cert]), (leaf,), now)

    def test_serials_are_random_and_positive(self):
        serials = {new_signer(START, LIFE).cert.serial_number for _ in range(20)}

        assert len(serials) == 20
        assert all(0 < serial < 1 << 159 for serial in serials)
        assert max(serials) > 1 << 150

    @pytest.mark.parametrize("kind", ["p256", "p384"])
    def test_kinds_of_keys(self, kind):
        signer = new_signer(START, LIFE, kind)

        assert kind_of(signer.key) == kind
        assert issued_by(new_serving(signer, NAMES, START, DAY, kind).cert, signer.cert)

    def test_rsa(self):
        assert kind_of(new_key("rsa2048")) == "rsa2048"

    def test_an_unknown_kind_of_key_is_named(self):
        with pytest.raises(ValueError, match=r"rsa512.*p256"):
            new_key("rsa512")

    def test_a_serving_cert_needs_a_name(self, old):
        with pytest.raises(ValueError, match="needs a name"):
            new_serving(old, (), START, DAY)

    def test_private_keys_have_no_text(self, old):
        assert "PRIVATE" not in repr(old)
        assert "key" not in repr(old)


class TestValid:
    @pytest.mark.parametrize(
        ("at", "expected"),
        [
            (START - HOUR - timedelta(minutes=5) - SECOND, False),
            (START - HOUR - timedelta(minutes=5), True),
            (START, True),
            (START + LIFE - SECOND, True),
            (START + LIFE, False),
        ],
    )
    def test_boundaries(self, old, at, expected):
        assert valid(old.cert, at) is expected
