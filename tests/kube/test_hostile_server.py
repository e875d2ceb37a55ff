"""An API server that is hostile or broken: every request ends, in bounded memory,
with one line and exit code 2.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click
import pytest
from click.testing import CliRunner

from virt_admit.cli import main
from virt_admit.kube import client, informers
from virt_admit.kube.cache import KindStore
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit_certs import kube_api
from virt_admit_certs.kube_api import ApiError, TooLarge

VERSION = b'{"gitVersion": "v1.36.3"}'
NODES = "/api/v1/nodes"


class Server:
    """Answers each path with the function that a test sets: (handler, number of the request)."""

    def __init__(self):
        self.answer = lambda handler, _number: send(handler, VERSION)
        self.requests = []
        self._stopped = threading.Event()

    def __enter__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.requests.append(self.path)
                with contextlib.suppress(OSError):
                    if self.path == "/version" and not outer.hostile_version:
                        send(self, VERSION)
                    else:
                        outer.answer(self, len(outer.requests))

            do_POST = do_GET  # noqa: N815 - the name is that of the base class

        self.hostile_version = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, folder):
        path = folder / "kubeconfig"
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        config = {
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {"token": "secret"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
        return str(path)


def send(handler, body, status=200, **headers):
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def page(token, *items):
    return json.dumps(
        {"metadata": {"resourceVersion": "1", "continue": token}, "items": items}
    ).encode()


def endless(handler, piece, pause=0.0):
    """Send pieces of a body without a length until the client hangs up."""
    handler.close_connection = True
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(piece)
        time.sleep(pause)


@pytest.fixture
def server():
    with Server() as running:
        yield running


@pytest.fixture
def api(server, tmp_path):
    return ApiClient.connect(server.kubeconfig(tmp_path))


class TestListing:
    def test_a_token_seen_twice_ends_it(self, server, api):
        server.answer = lambda handler, number: send(handler, page(f"token-{number % 3}"))
        with pytest.raises(TooLarge, match="the same continue token twice"):
            list(api.list(NODES))
        assert len(server.requests) == 4

    def test_new_tokens_without_an_end(self, server, api, monkeypatch):
        monkeypatch.setattr(client, "MOST_PAGES", 20)
        server.answer = lambda handler, number: send(handler, page(f"token-{number}"))
        with pytest.raises(TooLarge, match="more than 20 pages"):
            informers.snapshot(api, [KindStore(NODE)])
        assert server.requests.count("/version") == 1
        asked = [path for path in server.requests if path.startswith(NODES)]
        assert len(asked) == 20, "a second attempt would not help"

    def test_too_many_bytes(self, server, api, monkeypatch):
        monkeypatch.setattr(client, "MOST_BYTES", 10_000)
        server.answer = lambda handler, number: send(handler, page(f"token-{number}{' ' * 2000}"))
        with pytest.raises(TooLarge, match="10000 bytes"):
            list(api.list(NODES))
        assert len(server.requests) == 5

    def test_pages_that_stay_large(self, server, api, monkeypatch):
        monkeypatch.setattr(client, "LARGEST_PAGE", 1000)
        server.answer = lambda handler, _number: send(handler, page("", {"a": "x" * 2000}))
        with pytest.raises(TooLarge, match="more than 1000 bytes"):
            list(api.list(NODES))
        assert len(server.requests) == 5, "500, 100, 20, 4 and 1 objects"

    def test_pages_grow_again(self, server, api, monkeypatch):
        monkeypatch.setattr(client, "LARGEST_PAGE", 2000)
        pages = [page("a", {"a": "x" * 3000}), page("a"), page("b"), page("")]
        server.answer = lambda handler, number: send(handler, pages[number - 1])
        list(api.list(NODES))
        assert [path.partition("limit=")[2].partition("&")[0] for path in server.requests] == [
            "500",
            "100",
            "500",
            "500",
        ]

    def test_too_long(self, server, api, monkeypatch):
        monkeypatch.setattr(client, "LISTING_TIMEOUT", 0.2)
        server.answer = lambda handler, number: (
            time.sleep(0.05),
            send(handler, page(f"token-{number}")),
        )
        with pytest.raises(TooLarge, match=r"within 0\.2 s"):
            list(api.list(NODES))

    def test_a_cluster_of_100000_large_pods_stays_below_the_limits(self):
        pages = client.PageRequests()
        numbers = range(100_000 // client.PAGE)
        assert all(
            pages.proceed(client.PAGE * 40_000, {"continue": str(number)}) for number in numbers
        )

    @pytest.mark.parametrize(
        "answer",
        [
            *(
                b"[]",
                b"5",
                b"null",
                b'"text"',
                b"{}",
                b'{"metadata": []}',
                b"{" * 100_000,
                b"[" * 100_000,
                b"\xff",
            ),
            b'{"metadata": {"resourceVersion": "1"}, "items": "abc"}',
            b'{"metadata": {"resourceVersion": "1"}, "items": {"a": 1}}',
            b'{"metadata": {"resourceVersion": "1"}, "items": [1, null]}',
            b'{"metadata": {"resourceVersion": "1", "continue": {"a": 1}}, "items": []}',
            b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": ["a"]}}]}',
        ],
    )
    def test_wrong_types_are_an_error_of_the_server(self, server, api, answer):
        server.answer = lambda handler, _number: send(handler, answer)
        with pytest.raises(ApiError) as raised:
            informers.read(api, KindStore(NODE))
        assert len(str(raised.value)) < 700
        assert "\n" not in str(raised.value)


class TestBody:
    def test_an_endless_body(self, server, api):
        server.answer = lambda handler, _number: endless(handler, b" " * 65536)
        with pytest.raises(TooLarge, match="more than 1000000 bytes"):
            kube_api.read_body(api.get(NODES, {}), most=1_000_000)

    def test_a_compression_bomb(self, server, api):
        bomb = gzip.compress(b" " * (64 << 20))
        assert len(bomb) < 100_000
        server.answer = lambda handler, _number: send(handler, bomb, Content_Encoding="gzip")
        with pytest.raises(TooLarge, match="more than 1000000 bytes"):
            kube_api.read_body(api.get(NODES, {}), most=1_000_000)

    @pytest.mark.parametrize("length", [True, False])
    def test_a_body_byte_by_byte(self, server, api, length):
        def drip(handler, _number):
            handler.close_connection = True
            handler.send_response(200)
            if length:
                handler.send_header("Content-Length", "100000")
            handler.end_headers()
            for _ in itertools.count():
                handler.wfile.write(b" ")
                time.sleep(0.02)

        server.answer = drip
        began = time.monotonic()
        with pytest.raises(TooLarge, match=r"within 0\.3 s"):
            kube_api.read_body(api.get(NODES, {}), seconds=0.3)
        assert time.monotonic() - began < 3

    def test_the_next_request_is_not_answered_with_the_rest(self, server, api):
        server.answer = lambda handler, _number: send(handler, b"x" * 500_000)
        with pytest.raises(TooLarge):
            kube_api.read_body(api.get(NODES, {}), most=100_000)
        assert api.version() == "v1.36.3"

    def test_a_long_error_text_is_one_short_line(self, server, api):
        status = json.dumps({"message": "no\n\x1b[31m" + "x" * 100_000}).encode()
        server.answer = lambda handler, _number: send(handler, status, 500)
        with pytest.raises(ApiError) as raised:
            api.body(NODES, {})
        assert len(str(raised.value)) <= 500
        assert str(raised.value).isprintable() or "…" in str(raised.value)

    @pytest.mark.parametrize("answer", [b"[]", b"7", b"[" * 100_000, b"\xff"])
    def test_request_json_returns_objects_only(self, server, api, answer):
        server.answer = lambda handler, _number: send(handler, answer)
        with pytest.raises(ApiError):
            api.request_json("GET", "/apis")


def test_no_answer_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(ApiClient, "get", functools.partialmethod(ApiClient.get, read_timeout=0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = Server()
        server._server = type("Address", (), {"server_address": silent.getsockname()})
        began = time.monotonic()
        with pytest.raises(ApiError, match="does not answer"):
            ApiClient.connect(server.kubeconfig(tmp_path)).version()
        assert time.monotonic() - began < 3


WRONG = (
    *(b"[]", b"5", b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"items": 5}', b'{"items": [5]}'),
    (
        b'{"items": [{"metadata": 5, "webhooks": [1]}], "metadata": 7, "spec": "x", "status": [], '
        b'"data": 5}'
    ),
    (
        b'{"items": null, "metadata": {"labels": 5}, "spec": {"template": {"spec": {"containers": '
        b'{"a": 1}}}}}'
    ),
    b'{"metadata": {}, "items": [], "spec": {"template": {"spec": {"containers": [{"env": [{"name":'
    b' "VIRT_ADMIT_POLICY_CONFIGMAP", "value": 7}]}]}}}}',
)


@pytest.mark.parametrize("answer", WRONG)
@pytest.mark.parametrize(
    "verb", [("doctor",), ("policy", "show", "-n", "shop"), ("drain", "--all", "--live")]
)
def test_a_verb_never_calls_a_wrong_answer_its_own_bug(server, tmp_path, answer, verb, monkeypatch):
    monkeypatch.setattr(informers, "pause", lambda _failures, _longest=0: 0.0)
    server.hostile_version = True
    server.answer = lambda handler, _number: send(handler, answer)
    run = CliRunner().invoke(
        main.virt_admit, [*verb, "--kubeconfig", server.kubeconfig(tmp_path)], standalone_mode=False
    )
    if run.exception is not None:
        assert isinstance(run.exception, click.ClickException), repr(run.exception)
        assert "\n" not in run.exception.message
        assert len(run.exception.message) < 1000
    else:
        assert run.return_value in (1, 2) if verb == ("doctor",) else run.return_value == 2
