"""Contexts: what is negotiated, and certificates that are swapped while connections come in."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from virt_admit_certs.certificates import (
    Pair,
    certs_pem,
    new_cross,
    new_serving,
    new_signer,
    sha256,
)
from virt_admit_certs.keys import KEY_KINDS, key_pem
from virt_admit_certs.tls import TlsContextProvider, build_context

NOW = datetime.now(UTC)
# a client may read the end before it knows that it is not let in
REFUSED = (OSError, AssertionError)
NAMES = ("webhook.test.svc", "localhost", "127.0.0.1")


def serving(signer: Pair, kind: str = "p256") -> Pair:
    return new_serving(signer, NAMES, NOW, timedelta(hours=1), kind)


def show(front: TlsContextProvider, pair: Pair, *chain: object) -> None:
    front.set_certificate(certs_pem([pair.cert, *chain]), key_pem(pair.key))


def client(*trusted: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certs_pem(pair.cert for pair in trusted).decode())
    return context


def connect(port: int, context: ssl.SSLContext, name: str | None = "webhook.test.svc") -> bytes:
    """The certificate that a new connection got, as DER; it has carried a byte."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=name) as tls,
    ):
        assert tls.recv(1) == b"!"
        return tls.getpeercert(binary_form=True) or b""


@pytest.mark.slow
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
    due, shown = threading.Semaphore(0), threading.Semaphore(0)

    def swap() -> None:
        for pair in pairs[1:]:
            due.acquire()
            show(front, pair)
            shown.release()

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    for number in range(1000):
        if number % 20 == 5:
            due.release()  # and do not wait: the swap falls into a handshake, or not
        if number % 20 == 15:
            assert shown.acquire(timeout=60)
        name = (*NAMES, None)[number % 4]
        try:
            seen.add(connect(port, verifying if name else unnamed, name))
        except (OSError, AssertionError) as error:
            failures.append(repr(error))
        connections += 1
    swapper.join(60)

    assert not swapper.is_alive()
    assert (failures, connections) == ([], 1000)
    assert len(seen) == len(pairs)
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
        (constrained, ())
        if through == "the signer"
        else (signer, (new_cross(constrained.cert, signer, NOW),))
    )
    for names, believed in (
        (NAMES, True),
        (("localhost", "stolen.example"), False),
        (("localhost", "::1"), False),
    ):
        front = TlsContextProvider()
        show(front, new_serving(constrained, names, NOW, timedelta(hours=1)), *chain)
        with (
            contextlib.nullcontext()
            if believed
            else pytest.raises(ssl.SSLCertVerificationError, match="subtree")
        ):
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
    with (
        pytest.warns(DeprecationWarning, match="TLS")
        if refused == "TLSv1_1"
        else contextlib.nullcontext()
    ):
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
    """Both ends of a connection in memory, after the handshake.

    The server keeps the session while its end exists.
    """
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
    assert handshake(front, context, first.session)[0].session_reused, (
        "Python has no switch against it"
    )

    show(front, serving(signer))

    assert not handshake(front, context, first.session)[0].session_reused


def test_a_key_never_gets_a_name_in_the_file_system(signer, monkeypatch):
    opened: list[str] = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_cert_chain",
        lambda self, path: (opened.append(path), load(self, path))[1],
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
        lambda self, path: (opened.append((path, os.stat(path).st_mode & 0o777)), load(self, path))[
            1
        ],
    )
    pair = serving(signer)

    build_context(certs_pem([pair.cert]), key_pem(pair.key))

    [(path, mode)] = opened
    assert mode == 0o600
    assert not os.path.exists(path)


@pytest.mark.slow
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
