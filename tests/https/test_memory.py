"""Unfinished request bodies share one byte budget, and closed connections hold no memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apiserver.webhook import Webhook
from tests.https.clients import metric
from tests.https.reviews import review, vm
from tests.https.test_bad_input import FINE, assert_as_quick
from tests.waiting import eventually
from virt_admit.engine.decoding import MAX_BODY
from virt_admit.serving.body_budget import BodyBudget, Overloaded

HEAD = (
    b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
MEMORY_LIMIT = 512
"""MiB, as in manifests/base."""


def test_the_largest_body_is_dropped_and_the_others_stay() -> None:
    budget = BodyBudget(100)

    async def run() -> None:
        async with asyncio.timeout(10) as slow, asyncio.timeout(10) as quick:
            with budget.body(slow) as large, budget.body(quick) as small:
                budget.extend(large, b"x" * 80)
                budget.extend(small, b"y" * 30)
                assert large.dropped
                assert (b"".join(small.parts), budget.used) == (b"y" * 30, 30)
                with pytest.raises(Overloaded):
                    budget.extend(large, b"x")
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(1)  # the reader of the large body wakes up at once

    asyncio.run(run())
    assert budget.used == 0


def test_tiny_parts_cost_no_more_than_their_bytes() -> None:
    budget = BodyBudget()

    async def run() -> None:
        async with asyncio.timeout(60) as slow:
            with budget.body(slow) as body:
                for _ in range(300_000):
                    budget.extend(body, b"x")
                assert len(body.parts) == 5
                assert b"".join(body.parts) == b"x" * 300_000

    asyncio.run(run())


def unfinished(webhook: Webhook, size: int) -> ssl.SSLSocket:
    """A connection that has sent all but the last byte of a body,
    or as much of it as the webhook took.
    """
    plain = socket.create_connection(("127.0.0.1", webhook.port), timeout=30)
    peer = webhook.tls().wrap_socket(plain, server_hostname="localhost")
    with contextlib.suppress(OSError):
        peer.sendall(HEAD % size + b" " * (size - 1))
    return peer


def memory(webhook: Webhook) -> int:
    """MiB of the worker, at its highest."""
    states = [Path(worker, "status").read_text() for worker in webhook.workers]
    return (
        max(
            int(peak)
            for state in states
            for peak in re.findall(r"^VmHWM:\s+(\d+) kB", state, re.MULTILINE)
        )
        >> 10
    )


@pytest.mark.slow
def test_100_unfinished_large_bodies_stay_under_the_memory_limit(
    webhook: Webhook, own_webhook: Webhook
) -> None:
    with ThreadPoolExecutor(8) as threads:
        peers = list(threads.map(lambda _: unfinished(own_webhook, MAX_BODY), range(100)))
    try:
        assert_as_quick(own_webhook, webhook)
        peak = memory(own_webhook)
        assert peak < MEMORY_LIMIT / 2
        eventually(lambda: any(map(is_overloaded, peers)))
    finally:
        for peer in peers:
            peer.close()
    assert own_webhook.post("/validate", FINE)[0] == 200
    assert "Traceback" not in own_webhook.log.read_text()


@pytest.mark.slow
def test_closed_connections_hold_no_memory(own_webhook: Webhook) -> None:
    """Each held 65 KiB until the next garbage collection:
    250 MiB at 300 new connections a second.
    """
    context = own_webhook.tls()

    def connect_and_close(_: int) -> None:
        with socket.create_connection(("127.0.0.1", own_webhook.port), timeout=30) as plain:
            context.wrap_socket(plain, server_hostname="localhost").close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(connect_and_close, range(50)))
        before = memory(own_webhook)
        list(threads.map(connect_and_close, range(800)))
    assert memory(own_webhook) - before < 10


def is_overloaded(peer: ssl.SSLSocket) -> bool:
    """Return whether a response begins, and with 503.

    There is none if the webhook closed while the peer was sending.
    """
    peer.settimeout(0.05)
    try:
        return peer.recv(12) == b"HTTP/1.1 503"
    except OSError:
        return False


def test_a_small_body_is_answered_while_large_ones_are_read(webhook: Webhook) -> None:
    before = metric(webhook, "virt_admit_request_bodies_dropped_total")
    peers = [unfinished(webhook, MAX_BODY) for _ in range(12)]
    try:
        assert webhook.post("/validate", json.dumps(review(vm())).encode())[0] == 200
        eventually(lambda: any(map(is_overloaded, peers)))
        assert metric(webhook, "virt_admit_request_bodies_dropped_total") > before
    finally:
        for peer in peers:
            peer.close()
