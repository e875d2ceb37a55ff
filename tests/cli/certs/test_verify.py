"""`virt-admit certs verify` against listeners with every fault."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.apiserver.control_plane import free_port
from tests.cli.certs.runs import NAME, run
from virt_admit_certs.certificates import Pair, certs_pem, new_cross, new_serving, new_signer
from virt_admit_certs.keys import key_pem
from virt_admit_certs.tls import TlsContextProvider


class Listener(ThreadingHTTPServer):
    """An admission webhook of a few lines, over TLS with whatever certificate it is given."""

    daemon_threads = True

    def __init__(self, front: TlsContextProvider | None) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.front = front
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: Any, address: Any) -> None:
        with contextlib.suppress(OSError):
            if self.front:
                request = self.front.current_context().wrap_socket(request, server_side=True)
            super().finish_request(request, address)
            request.close()


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answers = {
            "/validate": {"response": {"uid": json.loads(body)["request"]["uid"]}},
            "/other": {},
        }
        found = json.dumps(answers.get(self.path, "")).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TestVerify:
    NOW = datetime.now(UTC)

    @pytest.fixture
    def listen(self) -> Iterator[Any]:
        listeners = []

        def start(front: TlsContextProvider | None) -> str:
            listener = Listener(front)
            listeners.append(listener)
            return f"https://127.0.0.1:{listener.server_port}"

        yield start
        for listener in listeners:
            listener.shutdown()
            listener.server_close()

    @pytest.fixture
    def signer(self) -> Pair:
        return new_signer(self.NOW, timedelta(days=1))

    def front(
        self, signer: Pair, *names: str, life: float = 1, chain: Any = (), **options: Any
    ) -> TlsContextProvider:
        """A front that shows a cert for some names and hours."""
        front = TlsContextProvider(**options)
        pair = new_serving(signer, names or ("127.0.0.1", NAME), self.NOW, timedelta(hours=life))
        front.set_certificate(certs_pem([pair.cert, *chain]), key_pem(pair.key))
        return front

    def ca_file(self, tmp_path: Path, *signers: Pair) -> Path:
        (tmp_path / "ca.crt").write_bytes(certs_pem(signer.cert for signer in signers))
        return tmp_path / "ca.crt"

    def test_it_succeeds(self, listen, signer, tmp_path):
        url = listen(self.front(signer))
        ca = self.ca_file(tmp_path, signer)

        code, out, _ = run("verify", url, "--ca-file", ca)
        assert code == 0
        assert out.startswith("shown      CN=virt-admit, ")
        assert f"           names 127.0.0.1, {NAME}\n" in out
        assert out.endswith(f"succeeds   {ca} as 127.0.0.1\n")
        code, out, _ = run(
            "verify", f"{url}/validate", "--ca-file", ca, "--server-name", NAME, "-o", "json"
        )
        told = json.loads(out)
        assert (code, told["verdicts"][0]["succeeds"], told["verdicts"][0]["server_name"]) == (
            0,
            True,
            NAME,
        )
        assert told["chain"][0]["issuer"] == signer.cert.subject.rfc4514_string()

    def test_the_old_bundle_trusts_by_the_cross_certificate(self, listen, signer, tmp_path):
        new = new_signer(self.NOW, timedelta(days=1))
        url = listen(self.front(new, chain=[new_cross(new.cert, signer, self.NOW)]))

        for trusted in (signer, new):
            code, out, _ = run("verify", url, "--ca-file", self.ca_file(tmp_path, trusted))
            assert code == 0
            assert out.count("signed by") == 2

    @pytest.mark.parametrize(
        ("fault", "reason", "remedy"),
        [
            ("stranger", "unable to get local issuer", "virt-admit certs bundle prints"),
            ("name", "not valid for '127.0.0.1'", "--cert-name"),
            ("expired", "certificate has expired", "virt-admit certs status"),
            ("none", "alert handshake failure", "no certificate yet"),
            ("client", "certificate required", "--client-ca"),
            ("plain", "", "--bind"),
            ("garbage", "not valid PEM", "virt-admit certs bundle prints"),
            ("/nowhere", "HTTP status 404", "ending in /validate or /mutate"),
            ("/other", "not an admission webhook", "ending in /validate or /mutate"),
        ],
    )
    def test_it_fails_with_a_remedy(self, listen, signer, tmp_path, fault, reason, remedy):
        front: TlsContextProvider | None = self.front(signer)
        trusted = new_signer(self.NOW, timedelta(days=1)) if fault == "stranger" else signer
        ca = self.ca_file(tmp_path, trusted)
        match fault:
            case "name":
                front = self.front(signer, "other.svc")
            case "expired":
                front = self.front(signer, life=-0.5)
            case "none":
                front = TlsContextProvider()
            case "client":
                front = self.front(signer, client_ca=trustme.CA().cert_pem.bytes())
            case "plain":
                front = None
            case "garbage":
                ca.write_bytes("é".encode())
        url = listen(front) + (fault if fault.startswith("/") else "")

        code, out, _ = run("verify", url, "--ca-file", ca)

        *_, failed, why, what = out.splitlines()
        assert code == 1
        assert failed.startswith("fails      ")
        assert reason in why
        assert remedy in what

    def test_who_hangs_up_in_the_handshake(self, signer, tmp_path):
        """As asyncio does, which sends no alert."""

        def hang_up() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                connection.recv(1)  # and what is left makes it a reset
                connection.close()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=hang_up, daemon=True)
            thread.start()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            code, out, _ = run("verify", url, "--ca-file", self.ca_file(tmp_path, signer))
            thread.join(10)

        assert code == 1
        assert out.startswith("shown      no certificate\n")
        assert (
            "the connection closes during the handshake\n           the webhook has no "
            "certificate yet"
        ) in out

    def test_each_configuration_is_a_caller(self, listen, api):
        state = api.state
        front = TlsContextProvider()
        front.set_certificate(certs_pem([state.serving.cert]), key_pem(state.serving.key))
        url = listen(front)

        code, out, _ = run("verify", url)
        assert code == 0
        assert (
            f"succeeds   ValidatingWebhookConfiguration as {NAME} (0.virt-admit.io, "
            "1.virt-admit.io)\n"
        ) in out
        webhook = api.configurations["MutatingWebhookConfiguration"]["webhooks"][1]
        del webhook["clientConfig"]["caBundle"]
        code, out, _ = run("verify", url)
        assert code == 1
        assert out.count("succeeds") == 2
        assert f"fails      MutatingWebhookConfiguration as {NAME} (1.virt-admit.io)\n" in out
        assert "the caBundle is empty" in out
        webhook["clientConfig"] = {"url": "https://elsewhere.test/validate", "caBundle": ""}
        assert (
            "fails      MutatingWebhookConfiguration as elsewhere.test (1.virt-admit.io)"
            in run("verify", url)[1]
        )

    def test_it_cannot_be_told(self, api, folder):
        port = free_port()
        code, out, err = run("verify", f"https://127.0.0.1:{port}", "--ca-file", folder / "ca.crt")
        assert (code, out) == (2, "")
        assert "Connection refused" in err
        assert run("verify", "http://127.0.0.1")[0] == 2
        api.configurations.clear()
        assert "add --ca-file" in run("verify", f"https://127.0.0.1:{port}")[2]
