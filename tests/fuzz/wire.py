"""Damaged TLS and HTTP against the running webhook: no other client may notice."""

from __future__ import annotations

import atexit
import json
import random
import shutil
import socket
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final

from tests.apiserver.webhook import Webhook
from tests.fuzz import corpus
from tests.fuzz.mutation import changed_text
from tests.https.reviews import review, vm

PATIENCE: Final = 0.3
"""Seconds to wait for an answer to damaged bytes. None may come:
half a request waits for its rest.
"""
SLOWEST: Final = 10.0
"""Seconds within which a valid review is answered meanwhile: the API server's usual time-out."""
HEADERS: Final = (
    b"Content-Length: %d",
    b"Content-Length: %d\r\nContent-Length: 3",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Expect: 100-continue\r\nContent-Length: %d",
    b"Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: %d",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
)


@cache
def webhook() -> Webhook:
    """The webhook on loopback, until this process ends."""
    folder = tempfile.mkdtemp(prefix="virt-admit-fuzz-")
    running = Webhook(Path(folder))
    running.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(running.stop)
    return running


def wire(chance: random.Random) -> None:
    """Damaged bytes are answered or dropped; a valid review right after them is answered, and no
    traceback is logged.
    """
    server = webhook()
    logged = server.log.stat().st_size
    send_damaged(server, chance)
    start = time.monotonic()
    status, reply = server.post("/validate", json.dumps(review(vm(), uid="7")).encode())
    assert status == 200
    assert reply["response"]["uid"] == "7"
    assert time.monotonic() - start < SLOWEST
    assert b"Traceback" not in server.log.read_bytes()[logged:]


def send_damaged(server: Webhook, chance: random.Random) -> None:
    """Send a request that is damaged somewhere, with TLS or without,
    and read what comes back for a moment.
    """
    body = chance.choice(corpus.reviews())
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % chance.choice(
        [b"/validate", b"/mutate"]
    )
    header = chance.choice(HEADERS)
    whole = head + (header % len(body) if b"%d" in header else header) + b"\r\n\r\n" + body
    sent = changed_text(chance, whole[: chance.choice([200, len(whole)])], [whole])
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=SLOWEST)
    peer: socket.socket = plain
    try:
        if chance.random() < 0.8:
            peer = server.tls().wrap_socket(plain, server_hostname="localhost")
        peer.sendall(sent)
        if chance.random() < 0.3:
            peer.shutdown(socket.SHUT_WR)
        peer.settimeout(PATIENCE)
        while peer.recv(65_536):
            pass
    except OSError:
        pass  # the webhook may hang up at any time
    finally:
        peer.close()
