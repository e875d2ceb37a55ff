"""The Secret and the webhook configurations: races, conflicts, refusals, and the requests on the wire."""

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

from tests.certs.world import KINDS, START, FakeApi, Time
from tests.waiting import eventually
from virt_admit_certs import store as storing
from virt_admit_certs.store import (
    ApiError,
    Configuration,
    Configurations,
    Entry,
    ExternalSecret,
    Loaded,
    SecretStore,
    patch,
)

OLD = {"ca.crt": b"old ca", "ca.key": b"old key", "tls.crt": b"old cert", "tls.key": b"old tls", "cross.crt": b"x"}
NEW = {"ca.crt": b"new ca", "ca.key": b"new key", "tls.crt": b"new cert", "tls.key": b"new tls", "next.crt": b"y"}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi(Time())


def store(api: Any) -> SecretStore:
    return SecretStore(api, "virt-admit", "virt-admit-certs")


class TestSecret:
    def test_nothing_yet(self, api):
        assert store(api).load() == Loaded(date=api.time.now)
        assert api.secret is None

    def test_what_was_saved_is_loaded(self, api):
        assert store(api).save(OLD, {"generation": "1", "rotated-by": "me", "unknown": "x"}, None)
        loaded = store(api).load()

        assert loaded.data == OLD
        assert loaded.notes == {"generation": "1", "rotated-by": "me"}
        assert loaded.version == "{uid}/{resourceVersion}".format(**api.secret["metadata"])
        assert loaded.date == api.time.now
        assert api.secret["type"] == "kubernetes.io/tls"

    def test_keys_and_notes_left_out_are_removed(self, api):
        store(api).save(OLD, {"promoted-at": "then", "phase": "overlap"}, None)
        store(api).save(NEW, {"phase": "steady"}, store(api).load().version)

        loaded = store(api).load()
        assert (loaded.data, loaded.notes) == (NEW, {"phase": "steady"})

    def test_a_request_that_somebody_else_annotated_is_kept_until_we_drop_it(self, api):
        store(api).save(OLD, {}, None)
        api.edit(notes={"rotate": "signer/1"})
        loaded = store(api).load()
        assert loaded.notes == {"rotate": "signer/1"}

        store(api).save(OLD, {**loaded.notes, "rotate-done": "signer/1"}, loaded.version)

        assert store(api).load().notes == {"rotate": "signer/1", "rotate-done": "signer/1"}

    def test_over_another_version_nothing_is_saved(self, api):
        one, two = store(api), store(api)
        one.save(OLD, {}, None)
        version = two.load().version
        assert one.save(NEW, {}, version)

        assert not two.save(OLD, {}, version)
        assert one.load().data == NEW

    def test_deleted_meanwhile(self, api):
        one = store(api)
        one.save(OLD, {}, None)
        version = one.load().version
        api.delete_secret()

        assert not one.save(NEW, {}, version)
        assert api.secret is None

    def test_of_two_that_begin_at_once_one_wins(self, api):
        """The other comes after the first request, after the second, …: both make the empty Secret, one fills it."""
        for moment in range(1, 5):
            api.delete_secret()
            one, two = store(api), store(api)
            count = 0
            results = []

            def before(verb: str, moment: int = moment, two: SecretStore = two, results: list[bool] = results) -> None:
                nonlocal count
                count += 1
                if count == moment:
                    results.append(two.save(NEW, {}, None))

            one.load()
            api.before = before
            results.append(one.save(OLD, {}, None))
            api.before = lambda _verb: None
            if moment > 2:  # then the first has finished before the second begins
                assert results == [True]
                assert not two.save(NEW, {}, None)
                results.append(False)

            assert sorted(results) == [False, True]
            assert one.load().data == (OLD if results[-1] or moment > 2 else NEW)

    def test_an_empty_secret_is_filled(self, api):
        api.apply_secret(
            "virt-admit",
            "virt-admit-certs",
            {"metadata": {}, "type": "Opaque", "data": {}},
            manager="kubectl",
            force=False,
        )
        loaded = store(api).load()
        assert loaded.data == {}

        one = store(api)
        assert one.save(OLD, {}, one.load().version)
        assert api.secret["type"] == "Opaque"

    def test_a_type_once_given_is_kept(self, api):
        one = store(api)
        one.save(OLD, {}, None)
        api.secret["type"] = "Opaque"

        assert one.save(NEW, {}, one.load().version)
        assert api.secret["type"] == "Opaque"
        api.delete_secret()
        assert one.save(NEW, {}, one.load().version)
        assert api.secret["type"] == "kubernetes.io/tls"

    def test_the_demanded_keys_are_always_there(self, api):
        store(api).save({"ca.crt": b"a"}, {}, None)

        assert {"tls.crt", "tls.key"} <= set(api.secret["data"])
        assert store(api).load().data == {"ca.crt": b"a"}

    @pytest.mark.parametrize("verb", ["get secret", "patch secret"])
    def test_without_the_right_it_says_so(self, api, verb):
        one = store(api)
        one.save(OLD, {}, None)
        version = one.load().version
        api.forbidden = {verb}

        with pytest.raises(ApiError) as refused:
            one.save(NEW, {}, version) if verb == "patch secret" else one.load()

        assert refused.value.reason == "forbidden"
        assert "virt-admit/virt-admit-certs" in str(refused.value)

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            (401, "unauthorized"),
            (403, "forbidden"),
            (429, "throttled"),
            (500, "server"),
            (503, "server"),
            (400, "refused"),
        ],
    )
    def test_reasons(self, api, monkeypatch, status, reason):
        monkeypatch.setattr(api, "get_secret", lambda *_: storing.Answer(status, {"message": "secret"}))

        with pytest.raises(ApiError) as refused:
            store(api).load()

        assert refused.value.reason == reason
        assert "message" not in str(refused.value)

    def test_a_namespace_that_does_not_exist_is_an_error(self, api, monkeypatch):
        monkeypatch.setattr(api, "apply_secret", lambda *_, **__: storing.Answer(404))

        with pytest.raises(ApiError, match="not_found"):
            store(api).save(OLD, {}, None)

    def test_external_is_read_and_never_written(self, api):
        store(api).save(OLD, {"rotate": "signer/1"}, None)
        external = ExternalSecret(api, "virt-admit", "virt-admit-certs")

        loaded = external.load()

        assert (loaded.data, loaded.notes, loaded.date) == (OLD, {}, api.time.now)
        assert not external.stale(loaded.version)
        with pytest.raises(NotImplementedError):
            external.save(NEW, {}, loaded.version)


class TestConfigurations:
    def test_none_exists(self, api):
        assert Configurations(api).read() == ()

    def test_read(self, api):
        api.register()
        api.overwrite_bundles(b"bundle")

        found = Configurations(api).read()

        assert [configuration.kind for configuration in found] == list(KINDS)
        assert found[0].entries == (Entry("0.virt-admit.io", b"bundle"), Entry("1.virt-admit.io", b"bundle"))
        assert found[0].carries(b"bundle")
        assert not found[0].carries(b"another")

    def test_inject_writes_only_what_differs(self, api):
        api.register("MutatingWebhookConfiguration")
        webhooks = api.configurations["MutatingWebhookConfiguration"]["webhooks"]
        webhooks[1]["clientConfig"]["caBundle"] = base64.b64encode(b"bundle").decode()
        configurations = Configurations(api)
        [found] = configurations.read()

        operations = patch(found, b"bundle")
        after = configurations.inject(found, b"bundle")

        assert [operation["path"] for operation in operations] == [
            "/metadata/resourceVersion",
            "/webhooks/0/name",
            "/webhooks/0/clientConfig/caBundle",
        ]
        assert after.carries(b"bundle")
        body = api.configurations["MutatingWebhookConfiguration"]
        assert [webhook["x"] for webhook in body["webhooks"]] == [0, 1]
        assert body["webhooks"][0]["clientConfig"]["service"] == {}

    @pytest.mark.parametrize("meanwhile", ["changed", "shortened", "deleted"])
    def test_a_configuration_that_moved_is_left_alone(self, api, meanwhile):
        api.register("ValidatingWebhookConfiguration")
        configurations = Configurations(api)
        [found] = configurations.read()
        body = api.configurations["ValidatingWebhookConfiguration"]
        if meanwhile == "changed":
            body["metadata"]["resourceVersion"] = "9999"
        elif meanwhile == "shortened":
            del body["webhooks"][1]
        else:
            api.configurations.clear()

        assert configurations.inject(found, b"bundle") is found
        assert b"bundle" not in api.published

    def test_an_entry_without_client_configuration_does_not_stop_reading(self, api):
        api.register("ValidatingWebhookConfiguration")
        api.configurations["ValidatingWebhookConfiguration"]["webhooks"] = [{"name": "a.b.c"}]

        assert Configurations(api).read()[0].entries == (Entry("a.b.c", b""),)
        del api.configurations["ValidatingWebhookConfiguration"]["webhooks"]
        assert Configurations(api).read()[0].carries(b"anything")

    @pytest.mark.parametrize("verb", ["get configuration", "patch configuration"])
    def test_without_the_right_it_says_so(self, api, verb):
        api.register()
        configurations = Configurations(api)
        found = configurations.read()[0]
        api.forbidden = {verb}

        with pytest.raises(ApiError, match="ValidatingWebhookConfiguration virt-admit: forbidden"):
            configurations.inject(found, b"x") if verb.startswith("patch") else configurations.read()

    def test_patches_start_with_the_version(self):
        configuration = Configuration("ValidatingWebhookConfiguration", "7", ())

        assert patch(configuration, b"x") == [{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]


class Wire(ThreadingHTTPServer):
    """An API server that records requests and answers what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.answer: tuple[int, dict[str, Any] | bytes] = (200, {})
        self.delay = 0.0

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
                time.sleep(self.delay)
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
def real(wire, tmp_path) -> storing.KubernetesApi:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{wire.server_address[1]}"}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    return storing.KubernetesApi.connect(str(file))


SECRET = {
    "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {"virt-admit.io/phase": "steady", "other": "x"}},
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
        assert (loaded.data, loaded.notes, loaded.version) == ({"ca.crt": b"ca"}, {"phase": "steady"}, "u/7")
        assert abs(loaded.date.timestamp() - time.time()) < 60

    def test_apply_a_secret(self, wire, real):
        wire.answer = (200, SECRET)
        one = store(real)
        one.load()

        assert one.save({"tls.crt": b"a", "tls.key": b"b"}, {"phase": "steady"}, "u/7")

        method, path, headers, body = wire.requests[-1]
        assert method == "PATCH"
        assert path == (
            "/api/v1/namespaces/virt-admit/secrets/virt-admit-certs?fieldManager=virt-admit-certs&force=true"
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
                "labels": storing.LABELS,
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
        assert (second[3]["metadata"]["uid"], second[3]["metadata"]["resourceVersion"]) == ("u", "7")

    @pytest.mark.parametrize("kind", KINDS)
    def test_configurations(self, wire, real, kind):
        wire.answer = (
            200,
            {
                "metadata": {"resourceVersion": "3"},
                "webhooks": [{"name": "a.b.c", "clientConfig": {"caBundle": "eA=="}}],
            },
        )
        configurations = Configurations(real)

        found = next(item for item in configurations.read() if item.kind == kind)
        after = configurations.inject(found, b"y")

        method, path, headers, body = wire.requests[-1]
        resource = kind.lower() + "s"
        assert [request[1] for request in wire.requests if request[0] == "GET" and resource in request[1]] == [
            f"/apis/admissionregistration.k8s.io/v1/{resource}/virt-admit"
        ]
        assert method == "PATCH"
        assert path == f"/apis/admissionregistration.k8s.io/v1/{resource}/virt-admit?fieldManager=virt-admit-certs"
        assert headers["Content-Type"] == "application/json-patch+json"
        assert body == patch(found, b"y")
        assert after.entries == (Entry("a.b.c", b"x"),)

    @pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 500])
    def test_refusals_are_answers(self, wire, real, status):
        wire.answer = (status, {"message": "no"})

        answer = real.get_secret("a", "b")

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
        assert storing._date({"Date": header}) == date
        assert storing._date({}) is None

    def test_no_answer_is_an_error(self, wire, real, monkeypatch):
        monkeypatch.setattr(storing, "_TIMEOUT", (0.1, 0.1))
        wire.delay = 0.5
        with pytest.raises(ApiError, match="unreachable") as refused:
            real.get_secret("a", "b")
        assert refused.value.reason == "unreachable"
        eventually(lambda: wire.requests)
        assert len(wire.requests) == 1  # the loop is the retry

        wire.delay = 0
        wire.answer = (200, b"<html>a proxy")
        with pytest.raises(ApiError, match="unreachable"):
            real.get_secret("a", "b")

    def test_nobody_listens(self, wire, real):
        wire.server_close()
        with pytest.raises(ApiError, match="unreachable"):
            real.get_secret("a", "b")

    def test_no_cluster_is_configured(self, tmp_path):
        with pytest.raises(ApiError, match="no cluster is configured"):
            storing.KubernetesApi.connect(str(tmp_path / "none"))

    @pytest.mark.parametrize(
        "content", [b"{ bad: [yaml", b"hello", b"\xff\xfe\0", b"users: 5", b"[]", b"token: s3cret\n\t:"]
    )
    def test_what_is_no_kubeconfig_is_said_in_one_line(self, tmp_path, content):
        (tmp_path / "kubeconfig").write_bytes(content)

        with pytest.raises(ApiError, match="no cluster is configured") as refused:
            storing.KubernetesApi.connect(str(tmp_path / "kubeconfig"))

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
