"""What the server adds to gunicorn and to the library's HTTP server, one by one."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import subprocess
import sys
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from gunicorn.config import Config

from tests.apiserver.control_plane import free_port
from tests.apiserver.webhook import VIRT_ADMIT
from tests.waiting import eventually
from virt_admit.serving import gunicorn_app, gunicorn_worker, ops_server

WITH_IPV6 = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6"
)
GREETING = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(_scope, _receive, send):
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


def served(patience: float, talk: Callable[[int], None]) -> int:
    """Let peers talk, over plain TCP, to connections that wait for a request for so many seconds.

    Return how many connections were closed at the limit.
    """
    dropped: list[int] = []

    class Connection(gunicorn_worker.Connection):
        def __init__(self, worker: object) -> None:
            super().__init__(worker)
            self._keepalive = patience

    async def run() -> None:
        loop = asyncio.get_running_loop()
        config = Config()
        worker = SimpleNamespace(
            cfg=config,
            log=gunicorn_app._Log(config),
            loop=loop,
            asgi=hello,
            nr=0,
            nr_conns=0,
            alive=True,
            max_requests=10,
            without_request={},
            count_dropped=lambda: dropped.append(1),
        )
        async with await loop.create_server(lambda: Connection(worker), "127.0.0.1", 0) as listener:
            await asyncio.to_thread(talk, listener.sockets[0].getsockname()[1])
        while worker.nr_conns:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    return len(dropped)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def everything(peer: socket.socket) -> bytes:
    """What comes until the connection is closed."""
    return b"".join(iter(lambda: peer.recv(1000), b""))


@pytest.mark.parametrize(
    ("sent", "patience", "end"),
    [(b"", 0.05, b""), (GREETING[:10], 0.05, b""), (GREETING + GREETING[:10], 5, b"hi")],
    ids=["nothing", "half", "half of a second"],
)
def test_a_peer_that_sends_no_request_times_out(sent, patience, end):
    def talk(port: int) -> None:
        with connect(port) as peer:
            peer.sendall(sent)
            assert everything(peer)[-2:] == end

    served(patience, talk)


def closed(peer: socket.socket) -> bool:
    """Whether the server closes this connection without an answer."""
    with contextlib.suppress(ConnectionError):
        return everything(peer) == b""
    return True


def test_connections_above_the_limit_are_closed(monkeypatch):
    monkeypatch.setattr(gunicorn_worker, "MAX_CONNECTIONS", 2)

    def answered(peer: socket.socket) -> bool:
        peer.sendall(GREETING)
        return peer.recv(1000).startswith(b"HTTP/1.1 200")

    def talk(port: int) -> None:
        with connect(port) as first, connect(port) as second:
            assert answered(first)
            assert answered(second)
            with connect(port) as third, contextlib.suppress(ConnectionError):
                assert everything(third) == b""
            assert answered(first)
            assert answered(second)
            first.sendall(GREETING.replace(b"Host", b"Connection: close\r\nHost"))
            everything(first)
            with connect(port) as fourth:
                assert answered(fourth)

    assert served(60, talk) == 1


def test_at_the_limit_the_oldest_connection_without_a_request_makes_room(monkeypatch):
    monkeypatch.setattr(gunicorn_worker, "MAX_CONNECTIONS", 3)

    def talk(port: int) -> None:
        with connect(port) as used, connect(port) as oldest, connect(port) as half:
            used.sendall(GREETING)
            assert used.recv(1000).startswith(b"HTTP/1.1 200")
            half.sendall(GREETING[:10])
            with connect(port) as new, connect(port) as newest:
                assert closed(oldest)
                assert closed(half)
                for peer in (used, new, newest):
                    peer.sendall(GREETING)
                    assert peer.recv(1000).startswith(b"HTTP/1.1 200")

    assert served(60, talk) == 2


def test_at_the_limit_the_oldest_tls_handshake_makes_room(monkeypatch):
    """5,000 half-open handshakes, which need no credentials, took 470 MiB."""
    monkeypatch.setattr(gunicorn_worker, "MAX_HANDSHAKES", 2)
    authority, dropped = trustme.CA(), []
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    handshakes = gunicorn_worker.Handshakes(lambda: dropped.append(1))

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            transport.write(b"hi")

    def accept() -> Greeter:
        handshakes.begin()
        return Greeter()

    def talk(port: int) -> None:
        with connect(port) as oldest, connect(port) as second, connect(port) as third:
            assert closed(oldest)
            with client.wrap_socket(connect(port), server_hostname="localhost") as secured:
                assert closed(second)
                assert secured.recv(2) == b"hi"  # the server has ended the handshake, too
                with connect(port), connect(port):
                    assert closed(third)
                    secured.settimeout(0.1)
                    # a connection whose handshake has ended stays
                    with pytest.raises(TimeoutError):
                        secured.recv(1)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(accept, "127.0.0.1", 0, ssl=server) as listener:
            await asyncio.to_thread(talk, listener.sockets[0].getsockname()[1])

    asyncio.run(run())
    assert len(dropped) == 3


def test_a_tls_connection_holds_a_small_read_buffer(monkeypatch):
    """2000 connections with asyncio's default of 256 KiB would take 500 MiB."""
    # so that other tests keep theirs
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    gunicorn_worker.limit_tls_buffers()

    async def buffer() -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        connection = SSLProtocol(
            asyncio.get_running_loop(), asyncio.Protocol(), context, None, True
        )
        connection.connection_lost(None)
        return len(connection._ssl_buffer)

    assert asyncio.run(buffer()) == 32 * 1024


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=WITH_IPV6)])
def test_probes_are_answered_over_both_families(host):
    port = free_port()

    def app(_environ, start_response):
        start_response("200 OK", [])
        return [b"ok"]

    ops_server.serve_ops(f"[{host}]:{port}", app)
    connection = http.client.HTTPConnection(host, port, timeout=10)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok"
    connection.close()


def ops_port() -> int:
    """The port of an ops listener that answers ok."""
    port = free_port()

    def app(_environ, start_response):
        start_response("200 OK", [])
        return [b"ok"]

    ops_server.serve_ops(f"127.0.0.1:{port}", app)
    return port


def test_silent_clients_do_not_stop_probes(monkeypatch):
    """Each connection has a thread; above the limit the oldest connection is closed."""
    monkeypatch.setattr(ops_server, "MAX_CONNECTIONS", 5)
    threads = threading.active_count()
    port = ops_port()
    silent = [connect(port) for _ in range(20)]
    try:
        with connect(port) as probe:
            probe.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert everything(probe).endswith(b"ok")
        assert everything(silent[0]) == b""
        eventually(lambda: threading.active_count() <= threads + 1 + 5)
    finally:
        for peer in silent:
            peer.close()


def test_a_silent_client_of_the_ops_listener_is_not_an_error(monkeypatch, capfd, caplog):
    monkeypatch.setattr(ops_server._Quiet, "timeout", 0.05)
    with connect(ops_port()) as silent:
        assert everything(silent) == b""
    assert capfd.readouterr().err == ""
    assert caplog.text == ""


def test_the_ops_listener_answers_in_one_piece():
    """Else a process that ends while it answers a probe sends the headers alone."""
    port = ops_port()
    for _ in range(50):
        with connect(port) as probe:
            probe.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert probe.recv(65_536).endswith(b"\r\n\r\nok")


def test_a_port_in_use_is_reported_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ("--certs", tmp_path / "certs", "--bind", "127.0.0.1:0", "--ops-bind", bind)
        ended = subprocess.run(
            [VIRT_ADMIT, "serve", *flags], check=False, capture_output=True, text=True, timeout=60
        )

    assert ended.returncode == 2
    assert f"virt-admit: --ops-bind {bind}: Address already in use\n" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_api_servers_close_idle_connections_first():
    """They do so after 90 seconds, and a POST on a connection that is just being closed is lost."""
    assert gunicorn_app.KEEPALIVE > 90


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_with_keys_makes_no_core_dump():
    get_dumpable = 3  # linux/prctl.h
    code = (
        "import ctypes; from virt_admit.serving import worker; worker._disable_core_dumps(); "
        f"print(ctypes.CDLL(None).prctl({get_dumpable}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "0\n"
