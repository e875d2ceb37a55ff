"""Requests to an API server on the wire: paths, headers, bodies, and what is an error."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import urllib3

from tests.certs.world import KINDS, START
from virt_admit_certs.kube_api import ApiError, KubeApi, parse_date
from virt_admit_certs.stores.secret import LABELS, SecretStore
from virt_admit_certs.webhook_configurations import WebhookConfigurations, WebhookEntry, patch


def store(api: Any) -> SecretStore:
    return SecretStore(api, "virt-admit", "virt-admit-certs")


class Wire(ThreadingHTTPServer):
    """An API server that records requests and answers what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.answer: tuple[int, dict[str, Any] | bytes] = (200, {})
        self.connections = 0
        self.silence: threading.Event | None = None
        """While this event is not set, requests are not answered."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(handler) -> None:  # noqa: N805
                try:
                    super().handle_one_request()
                except ConnectionError:
                    handler.close_connection = True

            def answer(handler) -> None:  # noqa: N805
                length = int(handler.headers.get("Content-Length") or 0)
                body = json.loads(handler.rfile.read(length)) if length else None
                self.requests.append((handler.command, handler.path, dict(handler.headers), body))
                if self.silence is not None:
                    self.silence.wait(60)
                status, answer = self.answer
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                handler.send_response(status)
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)

            do_GET = do_PATCH = answer  # noqa: N815

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def process_request(self, *arguments: Any) -> None:
        """Count connections in the order in which they were opened."""
        self.connections += 1
        super().process_request(*arguments)


@pytest.fixture
def wire() -> Iterator[Wire]:
    server = Wire()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def real(wire, tmp_path) -> KubeApi:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{wire.server_address[1]}"}}
        ],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    return KubeApi.connect(str(file))


SECRET = {
    "metadata": {
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {"virt-admit.io/phase": "steady", "other": "x"},
    },
    "type": "Opaque",
    "data": {"ca.crt": base64.b64encode(b"ca").decode(), "unknown": "eA=="},
}


class TestWire:
    def test_read_a_secret(self, wire, real):
        wire.answer = (200, SECRET)

        loaded = store(real).load()

        [(method, path, headers, _)] = wire.requests
        assert (method, path) == ("GET", "/api/v1/namespaces/virt-admit/secrets/virt-admit-certs")
        assert headers["authorization"] == "Bearer t0ken"
        assert (loaded.data, loaded.notes, loaded.version) == (
            {"ca.crt": b"ca"},
            {"phase": "steady"},
            "u/7",
        )
        assert abs(loaded.date.timestamp() - time.time()) < 60

    def test_apply_a_secret(self, wire, real):
        wire.answer = (200, SECRET)
        one = store(real)
        one.load()

        assert one.save({"tls.crt": b"a", "tls.key": b"b"}, {"phase": "steady"}, "u/7")

        method, path, headers, body = wire.requests[-1]
        assert method == "PATCH"
        assert path == (
            "/api/v1/namespaces/virt-admit/secrets/virt-admit-certs?fieldManager=virt-admit-certs&"
            "force=true"
        )
        assert headers["Content-Type"] == "application/apply-patch+yaml"
        assert body == {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": "virt-admit-certs",
                "namespace": "virt-admit",
                "uid": "u",
                "resourceVersion": "7",
                "labels": LABELS,
                "annotations": {"virt-admit.io/phase": "steady"},
            },
            "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
        }

    def test_create_without_force(self, wire, real):
        wire.answer = (201, SECRET)

        store(real).save({"tls.crt": b"a"}, {}, None)

        first, second = wire.requests
        assert "fieldManager=virt-admit-certs-init" in first[1]
        assert "force=true" not in first[1]
        assert "resourceVersion" not in first[3]["metadata"]
        assert first[3]["data"] == {"tls.crt": "", "tls.key": ""}
        assert (second[3]["metadata"]["uid"], second[3]["metadata"]["resourceVersion"]) == (
            "u",
            "7",
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_configurations(self, wire, real, kind):
        wire.answer = (
            200,
            {
                "metadata": {"resourceVersion": "3"},
                "webhooks": [{"name": "a.b.c", "clientConfig": {"caBundle": "eA=="}}],
            },
        )
        configurations = WebhookConfigurations(real)

        found = next(item for item in configurations.read() if item.kind == kind)
        after = configurations.inject(found, b"y")

        method, path, headers, body = wire.requests[-1]
        resource = kind.lower() + "s"
        assert [
            request[1]
            for request in wire.requests
            if request[0] == "GET" and resource in request[1]
        ] == [f"/apis/admissionregistration.k8s.io/v1/{resource}/virt-admit"]
        assert method == "PATCH"
        assert path == (
            f"/apis/admissionregistration.k8s.io/v1/{resource}/virt-admit?fieldManager="
            "virt-admit-certs"
        )
        assert headers["Content-Type"] == "application/json-patch+json"
        assert body == patch(found, b"y")
        assert after.entries == (WebhookEntry("a.b.c", b"x"),)

    @pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 500])
    def test_refusals_are_answers(self, wire, real, status):
        wire.answer = (status, {"message": "no"})

        answer = real.request_json("GET", "/api/v1/namespaces/a/secrets/b")

        assert (answer.status, answer.body) == (status, {})
        assert answer.date is not None

    @pytest.mark.parametrize(
        ("header", "date"),
        [
            ("Thu, 01 Jan 2026 00:00:00 GMT", START),
            ("Thu, 01 Jan 2026 00:00:00 -0000", START),
            ("Thu, 01 Jan 2026 01:00:00 +0100", START),
            ("yesterday", None),
            ("", None),
        ],
    )
    def test_dates(self, header, date):
        assert parse_date({"Date": header}) == date
        assert parse_date({}) is None

    def test_no_answer_is_an_error(self, wire, real, monkeypatch):
        wire.silence = threading.Event()
        with monkeypatch.context() as patched:
            patched.setitem(KubeApi.request.__kwdefaults__, "timeout", urllib3.Timeout(0.1))
            with pytest.raises(
                ApiError, match=r"the API server does not answer: .*timed out"
            ) as refused:
                real.request_json("GET", "/api/v1/namespaces/a/secrets/b")
        assert refused.value.reason == "unreachable"
        wire.silence.set()

        assert real.request_json("GET", "/api/v1/namespaces/a/secrets/b").status == 200
        # the loop is the retry; a retry here would have come before the second request
        assert wire.connections == 2

    def test_an_answer_of_a_proxy_is_an_error(self, wire, real):
        wire.answer = (200, b"<html>a proxy")
        with pytest.raises(
            ApiError, match="the API server does not answer: JSONDecodeError"
        ) as refused:
            real.request_json("GET", "/api/v1/namespaces/a/secrets/b")
        assert refused.value.reason == "unreachable"
        assert len(wire.requests) == 1

    def test_nobody_listens(self, wire, real):
        wire.server_close()
        with pytest.raises(ApiError, match="the API server does not answer"):
            real.request_json("GET", "/api/v1/namespaces/a/secrets/b")

    def test_no_cluster_is_configured(self, tmp_path):
        with pytest.raises(ApiError, match="no cluster is configured"):
            KubeApi.connect(str(tmp_path / "none"))

    @pytest.mark.parametrize(
        "content",
        [b"{ bad: [yaml", b"hello", b"\xff\xfe\0", b"users: 5", b"[]", b"token: s3cret\n\t:"],
    )
    def test_what_is_no_kubeconfig_is_said_in_one_line(self, tmp_path, content):
        (tmp_path / "kubeconfig").write_bytes(content)

        with pytest.raises(ApiError, match="no cluster is configured") as refused:
            KubeApi.connect(str(tmp_path / "kubeconfig"))

        assert "\n" not in str(refused.value)
        assert "s3cret" not in str(refused.value)

    def test_nothing_that_is_said_is_logged(self, wire, real, caplog):
        caplog.set_level(logging.DEBUG)
        secret = base64.b64encode(b"PRIVATE KEY").decode()
        wire.answer = (200, {**SECRET, "data": {"ca.key": secret}})

        one = store(real)
        one.save({"ca.key": b"PRIVATE KEY"}, {}, one.load().version)

        assert caplog.records  # urllib3 tells of its connections
        assert "PRIVATE" not in caplog.text
        assert secret not in caplog.text
        assert "t0ken" not in caplog.text
