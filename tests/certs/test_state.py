"""The content of a store: parsed, ordered and written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certs.world import DAY, HOUR, NAMES, START
from virt_admit_certs.certificates import (
    Pair,
    certs_pem,
    is_authority,
    new_cross,
    new_serving,
    new_signer,
    sha256,
)
from virt_admit_certs.keys import key_pem, new_key
from virt_admit_certs.state import KEYS, CertificateState, bundle_of, ordered, parse, render

LIFE = timedelta(days=30)


@pytest.fixture(scope="module")
def old() -> Pair:
    return new_signer(START, LIFE)


@pytest.fixture(scope="module")
def new() -> Pair:
    return new_signer(START + 15 * DAY, LIFE)


def full(old: Pair, new: Pair) -> CertificateState:
    """A state in which everything exists: a signer promoted, and the next one announced."""
    third = new_signer(START + 16 * DAY, LIFE)
    cross = new_cross(new.cert, old, START + 15 * DAY)
    return CertificateState(
        signer=new,
        bundle=ordered([old.cert, new.cert, third.cert]),
        serving=new_serving(new, NAMES, START + 15 * DAY, 2 * DAY),
        chain=(cross,),
        next=third,
        announced=True,
        cross=cross,
        notes={"promoted-at": "2026-01-16T00:00:00Z"},
    )


class TestBundle:
    def test_order_is_newest_first_then_fingerprint(self):
        same_time = [new_signer(START, LIFE).cert for _ in range(5)]
        newer = new_signer(START + DAY, LIFE).cert

        found = ordered([*same_time, newer, *same_time])

        assert found[0] == newer
        assert list(found[1:]) == sorted(same_time, key=sha256)
        assert ordered(reversed(found)) == found

    def test_expired_ones_leave_with_a_save_and_at_most_eight_stay(self, old):
        signers = [new_signer(START + n * DAY, LIFE).cert for n in range(12)]
        short = new_signer(START, HOUR).cert
        now = START + 2 * HOUR

        found = bundle_of(now, (signers[0],), [*signers, short])

        assert len(found) == 8
        assert signers[0] in found  # needed, though the oldest
        assert short not in found
        assert found == ordered(found)
        assert set(found) - {signers[0]} == set(signers[5:])


class TestRead:
    def test_what_was_written_is_read(self, old, new):
        state = full(old, new)
        data = render(state)

        read = parse(data, state.notes)

        assert set(data) == set(KEYS)
        assert render(read) == data
        assert read.faults == ()
        assert (read.signer.cert, read.next.cert, read.serving.cert) == (
            state.signer.cert,
            state.next.cert,
            state.serving.cert,
        )
        assert (read.bundle, read.chain, read.cross, read.notes, read.announced) == (
            state.bundle,
            state.chain,
            state.cross,
            state.notes,
            True,
        )

    def test_nothing(self):
        state = parse({})

        assert (state.signer, state.bundle, state.serving, state.next, state.announced) == (
            None,
            (),
            None,
            None,
            False,
        )
        assert state.faults == (
            "ca.crt: missing",
            "ca.key: missing",
            "tls.crt: missing",
            "tls.key: missing",
        )

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("damage", ["missing", "empty", "half", "garbage", "binary", "other"])
    def test_one_damaged_key_spoils_only_what_it_belongs_to(self, old, new, key, damage):
        state = full(old, new)
        data = render(state)
        other = render(full(new_signer(START, LIFE), new_signer(START, LIFE)))
        data[key] = {
            "missing": b"",
            "empty": b" \n",
            "half": data[key][:200],
            "garbage": b"not PEM at all",
            "binary": bytes(range(256)),
            "other": other[key],
        }[damage]
        if damage == "missing":
            del data[key]

        read = parse(data, {})

        assert (read.signer is None) == key.startswith("ca.")
        assert (read.serving is None) == key.startswith("tls.")
        assert (read.next is None) == (key.startswith("next.") or key == "ca.crt")
        assert read.announced
        assert (read.cross is None) == (key == "cross.crt" or key.startswith("ca."))
        silent = key == "cross.crt" and damage == "missing"
        assert bool(read.faults) != silent
        assert all("PRIVATE" not in fault and len(fault) < 100 for fault in read.faults)

    def test_the_next_signer_counts_only_if_the_bundle_has_it(self, old, new):
        data = render(full(old, new)) | {"ca.crt": certs_pem([new.cert, old.cert])}

        read = parse(data)

        assert read.next is None
        assert read.announced
        assert read.faults == ("next.crt: not in ca.crt",)

    def test_of_the_bundle_only_authorities_count_each_once(self, old):
        leaf = new_serving(old, NAMES, START, DAY)
        stranger = x509.load_pem_x509_certificate(trustme.CA().cert_pem.bytes())
        key = key_pem(new_key("p256"))
        data = {
            "ca.crt": b"a comment\n" + certs_pem([leaf.cert, old.cert, stranger, old.cert]) + key,
            "ca.key": key_pem(old.key),
        }

        read = parse(data)

        assert read.signer.cert == old.cert
        assert read.bundle == ordered([old.cert, stranger])
        assert read.faults[:2] == ("ca.crt: unreadable", "ca.crt: 1 of 4 certificates are not a CA")

    def test_too_many_strangers_do_not_push_the_signer_out(self, old):
        newer = [new_signer(START + DAY, LIFE).cert for _ in range(9)]

        read = parse({"ca.crt": certs_pem([*newer, old.cert]), "ca.key": key_pem(old.key)})

        assert read.signer.cert == old.cert
        assert old.cert in read.bundle
        assert len(read.bundle) == 8
        assert "ca.crt: 10 certificates, the newest 8 count" in read.faults

    def test_of_somebody_elses_many_authorities_the_issuer_stays(self, old):
        newer = [new_signer(START + DAY, LIFE).cert for _ in range(100)]
        serving = new_serving(old, NAMES, START, DAY)
        data = {
            "ca.crt": certs_pem([*newer, old.cert]),
            "tls.crt": certs_pem([serving.cert]),
            "tls.key": key_pem(serving.key),
        }

        read = parse(data)

        assert old.cert in read.bundle
        assert len(read.bundle) == 8

    def test_an_overlong_certificate_is_refused(self, old):
        padded = certs_pem([old.cert]).replace(b"\n", b"\n" + b"\n" * 500)

        assert parse({"ca.crt": padded}).faults[0] == "ca.crt: unreadable"

    @pytest.mark.parametrize("label", ["CERTIFICATE", "A"])
    def test_a_megabyte_of_beginnings_is_read_in_one_pass(self, old, label):
        """Of what has no end, each beginning must not be looked for to the end of the file: that
        took a quarter hour.
        """
        hostile = f"-----BEGIN {label}-----\n".encode() * 50_000

        read = parse({"ca.crt": hostile + certs_pem([old.cert]), "ca.key": key_pem(old.key)})

        assert read.signer.cert == old.cert
        assert read.faults[0] == "ca.crt: unreadable"

    def test_other_kinds_of_keys_are_refused(self, old):
        foreign = ed25519.Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        data = {"ca.crt": certs_pem([old.cert]), "ca.key": foreign}

        assert "ca.key: neither an elliptic-curve nor an RSA key" in parse(data).faults

    def test_traditional_keys_of_others_are_read(self, old):
        serving = new_serving(old, NAMES, START, DAY)
        assert isinstance(serving.key, ec.EllipticCurvePrivateKey)
        sec1 = serving.key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )

        assert parse({"tls.crt": certs_pem([serving.cert]), "tls.key": sec1}).serving is not None

    def test_an_authority_without_key_usage_is_one(self, old):
        key = new_key("p256")
        name = x509.Name([])
        builder = (
            x509.CertificateBuilder(name, name, key.public_key(), 1)
            .not_valid_before(START)
            .not_valid_after(START + DAY)
        )

        from cryptography.hazmat.primitives.hashes import SHA256

        with_ca = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        assert is_authority(with_ca.sign(key, SHA256()))
        assert not is_authority(builder.sign(key, SHA256()))

    @pytest.mark.slow
    @settings(max_examples=200, deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(KEYS),
            st.one_of(
                st.binary(max_size=60),
                st.sampled_from(
                    [
                        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                        b"-----BEGIN CERTIFICATE-----\n\xff\n-----END CERTIFICATE-----\n",
                    ]
                ),
            ),
        ),
        st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
    )
    def test_reading_never_raises(self, data, notes):
        state = parse(data, notes)

        assert state.signer is None
        assert state.faults
        assert parse(render(replace(state, notes={}))).bundle == ()
