"""Contexts: what is negotiated, and certificates that are swapped while connections come in."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding

from tests.certs.listener import Server
from virt_admit_certs.certificates import Pair, certs_pem, new_cross, new_serving, new_signer, sha256
from virt_admit_certs.keys import KEY_KINDS, key_pem
from virt_admit_certs.tls import TlsContextProvider, build_context

NOW = datetime.now(UTC)
REFUSED = (OSError, AssertionError)  # a client may read the end before it knows that it is not let in
NAMES = ("webhook.test.svc", "localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def signer() -> Pair:
    return new_signer(NOW, timedelta(days=1))


def serving(signer: Pair, kind: str = "p256") -> Pair:
    return new_serving(signer, NAMES, NOW, timedelta(hours=1), kind)


def show(front: TlsContextProvider, pair: Pair, *chain: object) -> None:
    front.set_certificate(certs_pem([pair.cert, *chain]), key_pem(pair.key))


def client(*trusted: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certs_pem(pair.cert for pair in trusted).decode())
    return context


@pytest.fixture
def serve() -> Iterator[object]:
    servers: list[Server] = []

    def start(front: TlsContextProvider) -> int:
        servers.append(Server(front))
        return servers[-1].port

    yield start
    for server in servers:
        server.close()


def connect(port: int, context: ssl.SSLContext, name: str | None = "webhook.test.svc") -> bytes:
    """The certificate that a new connection got, as DER; it has carried a byte."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=name) as tls,
    ):
        assert tls.recv(1) == b"!"
        return tls.getpeercert(binary_form=True) or b""


def test_a_thousand_connections_over_fifty_swaps(serve, signer):
    front = TlsContextProvider()
    pairs = [serving(signer) for _ in range(51)]
    show(front, pairs[0])
    port = serve(front)
    unnamed = client(signer)
    unnamed.check_hostname = False
    verifying = client(signer)
    seen: set[bytes] = set()
    failures: list[str] = []
    connections = 0
    due = threading.Semaphore(0)

    def swap() -> None:
        for pair in pairs[1:]:
            due.acquire()
            show(front, pair)

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    for number in range(1000):
        if number % 20 == 5:
            due.release()  # and do not wait: the swap falls into a handshake, or not
        name = (*NAMES, None)[number % 4]
        try:
            seen.add(connect(port, verifying if name else unnamed, name))
        except (OSError, AssertionError) as error:
            failures.append(repr(error))
        connections += 1
    swapper.join(10)

    assert (failures, connections) == ([], 1000)
    assert len(seen) >= 25
    assert front.served is not None
    assert front.served.sha256 == sha256(pairs[-1].cert)
    assert front.served.not_after == pairs[-1].cert.not_valid_after_utc


@pytest.mark.parametrize("trusted", ["old", "new", "both"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_cross_certificate_convinces_every_verifier(serve, signer, trusted, version):
    following = new_signer(NOW, timedelta(days=2))
    front = TlsContextProvider()
    show(front, serving(following), new_cross(following.cert, signer, NOW))
    context = client(*{"old": [signer], "new": [following], "both": [signer, following]}[trusted])
    context.minimum_version = context.maximum_version = version

    assert connect(serve(front), context)


def test_without_the_cross_certificate_the_old_signer_does_not_do(serve, signer):
    front = TlsContextProvider()
    show(front, serving(new_signer(NOW, timedelta(days=2))))

    with pytest.raises(ssl.SSLCertVerificationError):
        connect(serve(front), client(signer))


@pytest.mark.parametrize("through", ["the signer", "its cross certificate"])
def test_verifiers_believe_a_bound_signer_for_its_names_alone(serve, signer, through):
    constrained = new_signer(NOW, timedelta(days=1), names=NAMES)
    trusted, chain = (
        (constrained, ()) if through == "the signer" else (signer, (new_cross(constrained.cert, signer, NOW),))
    )
    for names, believed in ((NAMES, True), (("localhost", "stolen.example"), False), (("localhost", "::1"), False)):
        front = TlsContextProvider()
        show(front, new_serving(constrained, names, NOW, timedelta(hours=1)), *chain)
        with contextlib.nullcontext() if believed else pytest.raises(ssl.SSLCertVerificationError, match="subtree"):
            assert connect(serve(front), client(trusted), "localhost")


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_every_kind_of_key_is_served(serve, kind):
    signer = new_signer(NOW, timedelta(days=1), kind)
    front = TlsContextProvider()
    show(front, serving(signer, kind))

    assert connect(serve(front), client(signer))


def test_before_the_first_certificate_there_is_an_alert_and_afterwards_an_answer(serve, signer):
    front = TlsContextProvider()
    port = serve(front)

    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        connect(port, client(signer))
    show(front, serving(signer))

    assert connect(port, client(signer))


def test_refresh_is_asked_before_each_handshake(serve, signer):
    front = TlsContextProvider()
    pair = serving(signer)
    front.before_connection = lambda: show(front, pair)

    assert connect(serve(front), client(signer)) == pair.cert.public_bytes(Encoding.DER)


def test_what_does_not_fit_is_refused_and_the_old_certificate_stays(signer):
    front = TlsContextProvider()
    good, other = serving(signer), serving(signer)
    show(front, good)
    before = front.served

    for cert, key in [
        (certs_pem([good.cert]), key_pem(other.key)),
        (b"", key_pem(good.key)),
        (certs_pem([good.cert])[:300], key_pem(good.key)),
        (certs_pem([good.cert]), b""),
    ]:
        with pytest.raises((ssl.SSLError, ValueError)):
            front.set_certificate(cert, key)

    assert front.served is before


@pytest.mark.parametrize(("minimum", "refused"), [("1.2", "TLSv1_1"), ("1.3", "TLSv1_2")])
def test_old_versions_of_tls_are_refused(serve, signer, minimum, refused):
    front = TlsContextProvider(tls_min_version=minimum)
    show(front, serving(signer))
    context = client(signer)
    with pytest.warns(DeprecationWarning, match="TLS") if refused == "TLSv1_1" else contextlib.nullcontext():
        context.minimum_version = context.maximum_version = ssl.TLSVersion[refused]

    with pytest.raises((ssl.SSLError, OSError)):
        connect(serve(front), context)


def test_there_are_no_session_tickets(serve, signer):
    front = TlsContextProvider()
    show(front, serving(signer))
    context = client(signer)
    port = serve(front)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=NAMES[0]) as tls,
    ):
        tls.recv(1)
        assert tls.session is None or not tls.session.has_ticket
        assert not tls.session_reused


def handshake(
    front: TlsContextProvider, context: ssl.SSLContext, resumed: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection in memory, after the handshake. The server keeps the session while its end exists."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = front.context.wrap_bio(to_server, to_client, server_side=True)
    peer = context.wrap_bio(to_client, to_server, server_hostname=NAMES[0], session=resumed)
    for _ in range(3):
        for end in (peer, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return peer, server


def tls_1_2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def test_a_session_of_tls_1_2_ends_with_the_certificate(signer):
    front = TlsContextProvider()
    show(front, serving(signer))
    context = tls_1_2(client(signer))
    first, _held = handshake(front, context)
    assert handshake(front, context, first.session)[0].session_reused, "Python has no switch against it"

    show(front, serving(signer))

    assert not handshake(front, context, first.session)[0].session_reused


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

    for nobody in (b"no certificate", b""):
        with pytest.raises((ssl.SSLError, ValueError)):
            front.replace_client_ca(nobody)
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
    front = TlsContextProvider(client_ca=authority.cert_pem.bytes(), client_names=("apiserver", "scheduler"))
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
    front = TlsContextProvider(tls_min_version="1.3", client_ca=authority.cert_pem.bytes(), client_names=["apiserver"])
    heard: list[str] = []
    front.on_handshake_failure = heard.append
    life = timedelta(minutes=-5 if peer == "finds it expired" else 5)
    show(front, new_serving(signer, NAMES, NOW, life))
    context = client(new_signer(NOW, timedelta(days=1)) if peer == "distrusts" else signer)
    if peer != "has no certificate":
        issuer = stranger if peer == "has a foreign one" else authority
        issuer.issue_cert("kubelet" if peer == "has another name" else "apiserver").configure_cert(context)
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


def test_a_key_never_gets_a_name_in_the_file_system(signer, monkeypatch):
    opened: list[str] = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda self, path: (opened.append(path), load(self, path))[1]
    )
    pair = serving(signer)

    build_context(certs_pem([pair.cert]), key_pem(pair.key))

    assert len(opened) == 1
    assert opened[0].startswith("/proc/self/fd/")
    assert not os.path.exists(opened[0])


def test_without_memfd_a_private_file_does_and_is_gone_at_once(signer, monkeypatch):
    opened: list[tuple[str, int]] = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_cert_chain",
        lambda self, path: (opened.append((path, os.stat(path).st_mode & 0o777)), load(self, path))[1],
    )
    pair = serving(signer)

    build_context(certs_pem([pair.cert]), key_pem(pair.key))

    [(path, mode)] = opened
    assert mode == 0o600
    assert not os.path.exists(path)


def test_swaps_leave_nothing_behind(signer):
    front = TlsContextProvider()
    measured = []

    for _ in range(2):
        for _ in range(300):
            show(front, serving(signer))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        measured.append((len(os.listdir("/proc/self/fd")), pages))

    (descriptors, pages), after = measured
    assert after[0] == descriptors
    assert after[1] < pages + 256  # a MiB; contexts that are kept would be six
