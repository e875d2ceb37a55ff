"""Bytes that are not valid TLS: rejected at once, without a traceback,
while other clients are answered.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl

import pytest

from tests.apiserver.webhook import Webhook
from tests.https.reviews import review, vm
from tests.waiting import eventually
from virt_admit.serving.gunicorn_worker import HANDSHAKE_TIMEOUT

FINE = json.dumps(review(vm())).encode()

pytestmark = pytest.mark.usefixtures("unharmed")


def client_hello(server_name: bytes) -> bytes:
    """The first record of a TLS 1.2 client that asks for this name,
    with the few extensions that OpenSSL needs.
    """

    def sized(content: bytes, bytes_of_size: int = 2) -> bytes:
        return len(content).to_bytes(bytes_of_size, "big") + content

    extensions = {
        0: sized(b"\0" + sized(server_name)),
        10: sized(b"\x00\x1d\x00\x17"),  # x25519, P-256
        13: sized(b"\x04\x03\x08\x04"),  # ECDSA with P-256, RSA-PSS
    }
    listed = b"".join(
        number.to_bytes(2, "big") + sized(content) for number, content in extensions.items()
    )
    suites = b"\xc0\x2b\xc0\x2f"  # ECDHE with AES-128-GCM
    body = b"\x03\x03" + os.urandom(32) + b"\0" + sized(suites) + b"\x01\0" + sized(listed)
    return b"\x16\x03\x01" + sized(b"\x01" + sized(body, 3))


def answer(webhook, sent: bytes) -> bytes:
    """The first bytes of an answer; empty if the connection is closed."""
    with socket.create_connection(("127.0.0.1", webhook.port), timeout=10) as peer:
        peer.sendall(sent)
        try:
            return peer.recv(16)
        except ConnectionError:
            return b""


def refused(got: bytes) -> bool:
    return got == b"" or got[0] == 21  # an alert


@pytest.mark.parametrize(
    "name",
    [
        b"localhost",
        b"*.svc",
        b"127.0.0.1",
        b"xn--",
        b"a..b",
        b"x" * 255,
        b"\xc3\xa4.svc",
        b"\xff\xfe",
        b"a\0b",
        b"",
        b"x" * 256,
    ],
)
def test_any_server_name_gets_the_certificate_or_an_alert(webhook, name):
    """The server name does not matter; OpenSSL rejects some that are not valid."""
    got = answer(webhook, client_hello(name))

    assert got[:2] == b"\x16\x03" or (refused(got) and name in (b"a\0b", b"x" * 256))


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /validate HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 1000,
        b"\x16\x03\x01\x40\x00" + b"\xa5" * 0x4000,
        b"\x80\x2e\x01\x00\x02" + b"\0" * 43,
        client_hello(b"localhost")[:-1] + b"\0" * 100,
        b"\x15\x03\x01\x00\x02\x02\x2a",
    ],
    ids=["plain HTTP", "zeros", "a record of noise", "SSL 2", "a damaged hello", "an alert"],
)
def test_bytes_that_are_not_tls_are_rejected(webhook, sent):
    assert refused(answer(webhook, sent))


def test_slow_or_silent_handshakes_do_not_delay_other_clients(webhook):
    hello = client_hello(b"localhost")
    peers = [socket.create_connection(("127.0.0.1", webhook.port)) for _ in range(20)]
    try:
        for number, peer in enumerate(peers):
            peer.sendall(hello[: number * 3])
        assert webhook.post("/validate", FINE)[0] == 200
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.slow
def test_an_unfinished_handshake_times_out(webhook):
    with (
        socket.create_connection(
            ("127.0.0.1", webhook.port), timeout=HANDSHAKE_TIMEOUT + 30
        ) as silent,
        socket.create_connection(
            ("127.0.0.1", webhook.port), timeout=HANDSHAKE_TIMEOUT + 30
        ) as slow,
    ):
        slow.sendall(client_hello(b"localhost")[:50])
        assert (silent.recv(1), slow.recv(1)) == (b"", b"")


def test_a_client_that_disconnects_during_a_request(webhook):
    """The fixture ``unharmed`` has the assertions.

    ``unwrap`` waits until the webhook has seen the end.
    """
    plain = socket.create_connection(("127.0.0.1", webhook.port), timeout=10)
    tls = webhook.tls().wrap_socket(plain, server_hostname="localhost")
    tls.sendall(b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")

    tls.unwrap().close()


def refuse(plain: socket.socket, trusting: ssl.SSLContext) -> None:
    """Begin a handshake, refuse the certificate, and wait for the end:
    who closes first may take the alert back.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    refused = False
    while not refused:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(65536))
        except ssl.SSLCertVerificationError:
            plain.sendall(outgoing.read())
            refused = True
    assert plain.recv(1) == b""


def test_a_client_that_distrusts_the_certificate_is_counted_and_triggers_a_reconcile(tmp_path):
    """For example an API server whose caBundle was overwritten. The next round is an hour away."""
    stranger = ssl.create_default_context()  # trusts what this machine does
    with Webhook(tmp_path, environment={"VIRT_ADMIT_CERTS_CHECK_INTERVAL": "1h"}) as running:

        def metric(name: str) -> float:
            found = re.search(
                rf"^virt_admit_{re.escape(name)} (.*)$", running.ops("/metrics")[1], re.MULTILINE
            )
            return float(found[1]) if found else 0

        looked = metric("certificate_last_check_timestamp_seconds")
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain:
            refuse(plain, stranger)

        eventually(lambda: metric('tls_handshake_failures_total{reason="peer_distrusts"}') == 1)
        eventually(lambda: metric("certificate_last_check_timestamp_seconds") > looked)
