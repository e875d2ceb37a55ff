"""Names in certificates, and name constraints."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509

from tests.certs.world import DAY, NAMES, START
from tests.for_each import for_each
from virt_admit_certs.certificates import Pair, new_cross, new_serving, new_signer
from virt_admit_certs.names import canonical_name, good_for, name_constraints_of, names_of, permits

LIFE = timedelta(days=30)


@pytest.fixture(scope="module")
def old() -> Pair:
    return new_signer(START, LIFE)


def extension(cert: x509.Certificate, kind: type) -> tuple[object, bool]:
    found = cert.extensions.get_extension_for_class(kind)
    return found.value, found.critical


class TestNames:
    @pytest.mark.parametrize(
        ("name", "canonical"),
        [
            ("Webhook.Shop.SVC", "webhook.shop.svc"),
            ("*.example.org", "*.example.org"),
            ("localhost", "localhost"),
            ("my_host", "my_host"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("2001:DB8:0::0:1", "2001:db8::1"),
            ("a" * 63 + ".svc", "a" * 63 + ".svc"),
            ("w." + "n" * 63 + ".svc.cluster.local", "w." + "n" * 63 + ".svc.cluster.local"),
        ],
    )
    def test_good(self, old, name, canonical):
        assert canonical_name(name) == canonical
        assert names_of(new_serving(old, (name,), START, DAY).cert) == (canonical,)

    @pytest.mark.parametrize(
        "name",
        ["", " ", "a b", "https://a", "a:443", "a/b", "ä.example", "a..b", "a.", "-a", "*", "a.*",
         "a" * 64, "a.\n",
         "a." * 127 + "aaa", "fe80::1%eth0", "300.1.1.1", "1.2.3", "::g"],
    )  # fmt: skip
    def test_bad(self, old, name):
        with pytest.raises(ValueError, match="neither a DNS name nor an IP address"):
            canonical_name(name)

    @pytest.mark.parametrize(
        ("names", "name", "good"),
        [
            (("a.b.svc",), "a.b.svc", True),
            (("A.B.svc",), "a.b.svc", True),
            (("*.b.svc",), "a.b.svc", True),
            (("*.b.svc",), "b.svc", False),
            (("*.svc",), "a.b.svc", False),
            (("b.svc",), "a.b.svc", False),
            (("192.0.2.1",), "192.0.2.1", True),
            (("192.0.2.1",), "192.0.2.2", False),
        ],
    )
    def test_good_for(self, old, names, name, good):
        assert good_for(new_serving(old, names, START, DAY).cert, name) is good

    def test_a_certificate_without_names_has_none(self, old):
        assert names_of(old.cert) == ()


class TestBound:
    """Signers that can vouch for some names alone."""

    def test_to_names_and_addresses(self):
        cert = new_signer(START, LIFE, names=("a.svc", "*.b.svc", "192.0.2.1", "::1")).cert

        constraints, critical = extension(cert, x509.NameConstraints)
        assert critical
        assert [str(tree.value) for tree in constraints.permitted_subtrees] == [
            "a.svc",
            "b.svc",
            "192.0.2.1/32",
            "::1/128",
        ]
        assert constraints.excluded_subtrees is None

    def test_to_names_excludes_addresses(self):
        constraints, _ = extension(new_signer(START, LIFE, names=NAMES).cert, x509.NameConstraints)

        assert [tree.value for tree in constraints.permitted_subtrees] == list(NAMES)
        assert [str(tree.value) for tree in constraints.excluded_subtrees] == ["0.0.0.0/0", "::/0"]

    def test_the_cross_certificate_is_bound_as_its_signer(self, old):
        signer = new_signer(START, LIFE, names=NAMES).cert

        cross = new_cross(signer, old, START)

        assert extension(cross, x509.NameConstraints) == extension(signer, x509.NameConstraints)
        assert name_constraints_of(new_cross(old.cert, old, START)) is None

    @for_each(
        "names, name, permitted",
        [
            ((), "anything", True),
            ((), "192.0.2.1", True),
            (("a.svc",), "a.svc", True),
            (("a.svc",), "below.a.svc", True),
            (("a.svc",), "*.a.svc", True),
            (("a.svc",), "ba.svc", False),
            (("a.svc",), "svc", False),
            (("a.svc",), "192.0.2.1", False),
            (("a.svc",), "::1", False),
            (("*.a.svc",), "*.a.svc", True),
            (("*.a.svc",), "b.svc", False),
            (("a.svc", "192.0.2.1"), "192.0.2.1", True),
            (("a.svc", "192.0.2.1"), "192.0.2.2", False),
            (("a.svc", "192.0.2.1"), "::1", False),
            (("a.svc", "::1"), "::1", True),
            (("192.0.2.1",), "a.svc", True),
        ],
    )
    def test_what_it_may_sign_for(self, names, name, permitted):
        assert permits(new_signer(START, LIFE, names=names).cert, name) is permitted
