"""Client certificates: which clients of the webhook are let in, and what is said of the others."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from tests.certs.test_tls import (
    NAMES,
    NOW,
    REFUSED,
    client,
    connect,
    handshake,
    serving,
    show,
    tls_1_2,
)
from virt_admit_certs.certificates import new_serving, new_signer
from virt_admit_certs.tls import TlsContextProvider


def test_no_session_replaces_a_client_certificate(signer):
    authority = trustme.CA()
    front = TlsContextProvider(client_ca=authority.cert_pem.bytes())
    show(front, serving(signer))
    context = tls_1_2(client(signer))
    authority.issue_cert("apiserver").configure_cert(context)
    first, _held = handshake(front, context)
    failures = []
    front.on_handshake_failure = failures.append

    with pytest.raises(ssl.SSLCertVerificationError, match="resumes a session"):
        handshake(front, context, first.session)
    assert failures == ["client_certificate"]
    assert not handshake(front, context)[0].session_reused


def test_clients_of_another_authority_are_refused_in_the_handshake(serve, signer):
    authority, stranger = trustme.CA(), trustme.CA()
    front = TlsContextProvider(client_ca=authority.cert_pem.bytes(), client_names=("apiserver",))
    show(front, serving(signer))
    port = serve(front)
    good, bad, none = client(signer), client(signer), client(signer)
    authority.issue_cert("apiserver").configure_cert(good)
    stranger.issue_cert("apiserver").configure_cert(bad)

    assert connect(port, good)
    for context, alert in ((bad, "ALERT_UNKNOWN_CA"), (none, "CERTIFICATE_REQUIRED")):
        with pytest.raises(ssl.SSLError, match=alert):
            connect(port, context)


def test_the_authority_of_clients_can_be_replaced(serve, signer):
    before, after = trustme.CA(), trustme.CA()
    front = TlsContextProvider(client_ca=before.cert_pem.bytes())
    show(front, serving(signer))
    port = serve(front)
    old, new = client(signer), client(signer)
    before.issue_cert("apiserver").configure_cert(old)
    after.issue_cert("apiserver").configure_cert(new)

    for no_ca in (b"no certificate", b""):
        with pytest.raises((ssl.SSLError, ValueError)):
            front.replace_client_ca(no_ca)
    assert connect(port, old)
    front.replace_client_ca(after.cert_pem.bytes())

    assert connect(port, new)
    with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
        connect(port, old)
    with pytest.raises(ValueError, match="not required"):
        TlsContextProvider().replace_client_ca(after.cert_pem.bytes())


def test_an_empty_authority_is_none_and_not_a_wish_to_let_everybody_in():
    with pytest.raises((ssl.SSLError, ValueError)):
        TlsContextProvider(client_ca=b"")


def test_clients_of_another_name_are_refused(serve, signer):
    authority = trustme.CA()
    front = TlsContextProvider(
        client_ca=authority.cert_pem.bytes(), client_names=("apiserver", "scheduler")
    )
    show(front, serving(signer))
    port = serve(front)
    for name, admitted in (("apiserver", True), ("kubelet", False)):
        context = client(signer)
        authority.issue_cert(name).configure_cert(context)
        with contextlib.nullcontext() if admitted else pytest.raises(REFUSED):
            assert connect(port, context)


def test_names_without_an_authority_let_nobody_in(serve, signer):
    front = TlsContextProvider(client_names=("apiserver",))
    show(front, serving(signer))

    with pytest.raises(REFUSED):
        connect(serve(front), client(signer))


@pytest.mark.parametrize(
    ("peer", "failure"),
    [
        ("good", None),
        ("distrusts", "peer_distrusts"),
        ("finds it expired", "peer_expired"),
        ("has no certificate", "no_client_certificate"),
        ("has a foreign one", "client_certificate"),
        ("has another name", "client_certificate"),
        ("speaks TLS 1.2", "protocol"),
        ("speaks no TLS", "protocol"),
        ("leaves", None),
    ],
)
def test_the_front_hears_why_a_handshake_fails(signer, peer, failure):
    authority, stranger = trustme.CA(), trustme.CA()
    front = TlsContextProvider(
        tls_min_version="1.3", client_ca=authority.cert_pem.bytes(), client_names=["apiserver"]
    )
    heard: list[str] = []
    front.on_handshake_failure = heard.append
    life = timedelta(minutes=-5 if peer == "finds it expired" else 5)
    show(front, new_serving(signer, NAMES, datetime.now(UTC), life))  # NOW may be long ago
    context = client(new_signer(NOW, timedelta(days=1)) if peer == "distrusts" else signer)
    if peer != "has no certificate":
        issuer = stranger if peer == "has a foreign one" else authority
        issuer.issue_cert("kubelet" if peer == "has another name" else "apiserver").configure_cert(
            context
        )
    if peer == "speaks TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = front.context.wrap_bio(to_server, to_client, server_side=True)
    theirs = context.wrap_bio(to_client, to_server, server_hostname=NAMES[0])
    sides = [ours, theirs]
    if peer == "speaks no TLS":
        to_server.write(b"GET / HTTP/1.1\r\n\r\n")
        sides = [ours]
    if peer == "leaves":
        to_server.write_eof()
        sides = [ours]

    for side in sides * 3:  # over a network that loses nothing
        if not heard:
            with contextlib.suppress(ssl.SSLError):
                side.do_handshake()

    assert heard == ([failure] if failure else [])


@pytest.mark.parametrize(
    ("names", "peer", "admitted"),
    [
        ((), None, True),
        (("a",), None, False),
        (("a",), {}, False),
        (("a",), {"subject": ((("commonName", "a"),),)}, True),
        (("a",), {"subject": ((("organizationName", "a"),),)}, False),
        (("a", "b"), {"subjectAltName": (("DNS", "c"), ("DNS", "b"))}, True),
        (("a",), {"subjectAltName": (("URI", "a"),)}, False),
    ],
)
def test_names_of_clients(names, peer, admitted):
    assert TlsContextProvider(client_names=names).is_allowed(peer) is admitted
