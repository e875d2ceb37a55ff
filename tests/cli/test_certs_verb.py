"""`virt-admit certs` as administrators use it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from tests.certs.world import DAILY, FakeApi, Replica, Time
from virt_admit.cli import main
from virt_admit.model.cluster import Snapshot
from virt_admit.model.objects import Object
from virt_admit_certs.certificates import Pair, certs_pem, new_cross, new_serving, new_signer, sha256
from virt_admit_certs.keys import key_pem
from virt_admit_certs.kube_api import KubeApi
from virt_admit_certs.names import names_of
from virt_admit_certs.state import parse
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.tls import TlsContextProvider

NAME = "virt-admit-webhook.virt-admit.svc"


def run(*args: object, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, stdout, and what stderr would say."""
    result = CliRunner().invoke(main.virt_admit, ["certs", *map(str, args)], input=stdin, standalone_mode=False)
    if isinstance(result.exception, main.click.ClickException):
        return 2, result.stdout, result.exception.format_message()
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with certificates."""
    assert run("issue", tmp_path / "certs")[0] == 0
    return tmp_path / "certs"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A cluster with both webhook configurations, and a replica that has served from the Secret."""
    api = FakeApi(Time(datetime.now(UTC)))
    api.register()
    for body in api.configurations.values():
        for webhook in body["webhooks"]:
            webhook["clientConfig"] = {"service": {"name": "virt-admit-webhook", "namespace": "virt-admit"}}
    Replica(api).settle()
    monkeypatch.setattr(KubeApi, "connect", lambda *_: api)
    return api


def serving_cert(folder: Path) -> bytes:
    return (folder / "tls.crt").read_bytes()


class TestIssue:
    def test_into_an_empty_folder(self, tmp_path):
        code, out, _ = run("issue", tmp_path / "new", "--cert-name", "Laptop.test", "--certs-key", "p384")
        state = parse(Directory(tmp_path / "new").load().data)

        assert code == 0
        assert out.startswith("done       bootstrap\nphase      steady\n")
        assert {NAME, "localhost", "127.0.0.1", "laptop.test"} < set(names_of(state.serving.cert))
        assert state.serving.key.key_size == 384
        assert [os.stat(tmp_path / "new" / name).st_mode & 0o777 for name in ("ca.key", "tls.key")] == [0o600, 0o600]

    def test_again_there_is_nothing_to_do(self, folder):
        before = serving_cert(folder)
        code, out, _ = run("issue", folder, "-o", "json")

        assert (code, json.loads(out)["steps"]) == (0, [])
        assert serving_cert(folder) == before

    def test_what_is_damaged_is_issued_anew(self, folder):
        (folder / "tls.crt").write_text("x")

        code, out, _ = run("issue", folder, "-o", "json")

        assert (code, json.loads(out)["steps"]) == (0, ["reissue"])

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (("--certs-serving-duration", "9m"), "serving-duration is 9m; it must be at least 10m"),
            (("--cert-name", "a b"), "cert-name: 'a b' is neither"),
        ],
    )
    def test_refused(self, tmp_path, args, said):
        code, out, err = run("issue", tmp_path / "new", *args)

        assert (code, out) == (2, "")
        assert said in err
        assert not (tmp_path / "new").exists()


class TestStatus:
    def test_a_folder(self, folder):
        code, out, _ = run("status", "--certs", folder)

        assert code == 0
        assert re.search("next step  renew in 2[34] hours, at ", out)
        assert f"names {NAME}, " in out

    @pytest.mark.parametrize(
        ("damage", "fault"),
        [({"ca.key": "x"}, "ca.key: unreadable"), ({"tls.crt": ""}, "tls.crt: missing")],
    )
    def test_a_damaged_folder_needs_attention(self, folder, damage, fault):
        for name, text in damage.items():
            (folder / name).write_text(text)

        code, out, _ = run("status", "--certs", folder)

        assert code == 1
        assert f"attention  {fault}\n" in out

    def test_names_that_only_serve_knows_are_no_fault(self, tmp_path):
        run("issue", tmp_path, "--cert-name", "laptop.test")

        assert run("status", "--certs", tmp_path)[0] == 0
        code, out, _ = run("status", "--certs", tmp_path, "--cert-name", "other.test")
        assert code == 1
        assert "wanted is" in out

    def test_the_schedule_may_be_the_clusters(self, folder, monkeypatch):
        at = json.loads(run("status", "--certs", folder, "-o", "json")[1])["step"]["at"]
        short = {"server": {"duration": "24h", "renewBefore": "1h"}}
        hyperconverged = {"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": {"name": "a"}}
        found = Snapshot([Object({**hyperconverged, "spec": {"security": {"certConfig": short}}})])
        monkeypatch.setattr("virt_admit.cli.certs.load_cluster", lambda *_, **__: found)

        code, out, _ = run("status", "--certs", folder, "-o", "json", "--certs-profile", "cluster")

        assert code == 0
        assert json.loads(out)["step"]["at"] > at

    def test_the_secret_of_the_cluster_is_the_default(self, api):
        code, out, _ = run("status", "-o", "json")
        told = json.loads(out)

        assert code == 0
        assert told["serving"]["sha256"] == sha256(api.state.serving.cert)
        assert [entry["injected"] for entry in told["entries"]] == [True] * 4

    def test_a_bundle_that_was_overwritten(self, api):
        api.overwrite_bundles(None)

        code, out, _ = run("status")

        assert code == 1
        assert "attention  MutatingWebhookConfiguration 1.virt-admit.io does not carry the bundle" in out

    def test_without_the_right_to_read_configurations_it_tells_the_rest(self, api):
        api.forbidden = {"get configuration"}

        code, out, err = run("status")

        assert code == 2
        assert "serving    CN=virt-admit, " in out
        assert "forbidden" in err

    def test_without_the_right_to_read_the_secret(self, api):
        api.forbidden = {"get secret"}

        assert run("status") == (2, "", "cannot read Secret virt-admit/virt-admit-certs: forbidden")

    def test_what_somebody_else_issues(self, folder):
        code, out, _ = run("status", "--certs-external", folder)

        assert code == 0
        assert out.startswith("phase      external\nsigner     none\n")

    def test_places_exclude_each_other(self, folder):
        assert run("status", "--certs", folder, "--certs-secret", "a/b")[2] == (
            "--certs and --certs-secret exclude each other"
        )

    def test_no_cluster(self, tmp_path, monkeypatch):
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

        code, _, err = run("status", "--kubeconfig", tmp_path / "none")

        assert code == 2
        assert "--certs DIR" in err

    def test_a_folder_that_is_a_file(self, tmp_path):
        (tmp_path / "file").touch()

        assert run("status", "--certs", tmp_path / "file")[0] == 2


class TestRotate:
    def test_the_serving_cert_of_a_folder(self, folder):
        names = names_of(parse(Directory(folder).load().data).serving.cert)
        before = serving_cert(folder)

        code, out, _ = run("rotate", "--certs", folder, "-o", "json")

        assert (code, json.loads(out)["done"]) == (0, True)
        assert serving_cert(folder) != before
        assert names_of(parse(Directory(folder).load().data).serving.cert) == names

    def test_the_signer_of_a_folder(self, folder):
        before = parse(Directory(folder).load().data)

        code, out, _ = run("rotate", "--signer", "--certs", folder)
        assert (code, " is announced; " in out) == (0, True)
        assert parse(Directory(folder).load().data).announced
        code, out, _ = run("rotate", "--signer", "--wait", "--certs", folder, "--certs-propagation", "0s")

        after = parse(Directory(folder).load().data)
        assert (code, out.endswith("is done\n")) == (0, True)
        assert after.signer != before.signer
        assert before.signer.cert in after.bundle

    def test_an_announced_signer_of_a_folder_is_taken_into_use_by_issuing_again(self, folder):
        before = parse(Directory(folder).load().data).signer
        run("rotate", "--signer", "--certs", folder)

        assert run("issue", folder, "--certs-propagation", "0s", "-o", "json")[0] == 0

        after = parse(Directory(folder).load().data)
        assert not after.announced
        assert after.signer != before

    def test_one_thing_at_a_time(self, folder):
        before = Directory(folder).load()

        for flags in (("--serving", "--signer"), ("--signer", "--serving"), ("--signer", "--revoke", "--yes")):
            code, out, err = run("rotate", *flags, "--certs", folder)
            assert (code, out) == (2, "")
            assert err.endswith("exclude each other")
        assert Directory(folder).load() == before

    def test_a_request_to_whoever_serves(self, api):
        for flag in ("--serving", "--signer"):
            assert run("rotate", flag)[1].endswith(" is requested; a replica of the webhook performs it\n")

    @pytest.mark.parametrize("what", ["serving", "signer"])
    def test_a_secret_is_rotated_by_a_replica(self, api, monkeypatch, what):
        replica = Replica(api)
        before = api.state.signer.cert

        def meanwhile(_seconds: float) -> None:
            api.time.now += timedelta(seconds=61)
            replica.settle()

        monkeypatch.setattr(time, "sleep", meanwhile)
        code, out, _ = run("rotate", f"--{what}", "--wait")

        assert (code, out.endswith("is done\n")) == (0, True)
        assert replica.steps("promote" if what == "signer" else "renew") == 1
        assert (api.state.signer.cert != before) == (what == "signer")

    def test_nobody_serves(self, api, monkeypatch):
        passed = iter(range(0, 10_000, 100))
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(time, "monotonic", lambda: next(passed))

        code, out, err = run("rotate", "--wait", "-o", "json")

        assert (code, json.loads(out)["done"]) == (2, False)
        assert "check that a webhook serves" in err

    def test_revoking_asks(self, api):
        before = api.state.bundle

        code, _, err = run("rotate", "--revoke", stdin="n\n")
        assert (code, err) == (2, "nothing was changed")
        assert api.state.bundle == before
        assert run("rotate", "--revoke", stdin="y\n")[0] == 0
        assert api.state.bundle == (api.state.signer.cert,) != before

    def test_revoking_waits_for_the_configurations(self, api, monkeypatch):
        replica = Replica(api)
        monkeypatch.setattr(time, "sleep", lambda _: replica.settle())

        code, out, _ = run("rotate", "--revoke", "--yes", "--wait")

        assert (code, out) == (0, "revoke is done\n")
        assert set(api.published) == {certs_pem(api.state.bundle)}

    def test_revoking_ends_although_whoever_serves_goes_on_at_once(self, api, monkeypatch):
        """Its settings are not the command's: it announces a signer to its own taste in the same round."""
        replica = Replica(api, replace(DAILY, key="p384"))
        monkeypatch.setattr(time, "sleep", lambda _: replica.settle())

        assert run("rotate", "--revoke", "--yes", "--wait")[0] == 0

        assert api.state.announced
        assert set(api.published) == {certs_pem(api.state.bundle)}

    def test_what_is_not_ours(self, folder, tmp_path):
        assert run("rotate", "--certs-external", folder)[2].startswith("an external issuer owns")
        assert run("rotate", "--certs", tmp_path / "empty")[2].startswith("the store has no signer yet")
        assert run("bundle", "--certs", tmp_path / "empty")[2].startswith("the store has no signer yet")


@pytest.mark.parametrize(("args", "code", "stream"), [((), 0, "out"), (("certs",), 2, "err"), (("policy",), 2, "err")])
def test_without_a_verb_there_is_help(monkeypatch, capsys, args, code, stream):
    """`virt-admit` alone asks for it; a group alone is wrong usage."""
    monkeypatch.setattr(sys, "argv", ["virt-admit", *args])

    with pytest.raises(SystemExit) as ended:
        main.main()

    said = capsys.readouterr()._asdict()
    assert ended.value.code == code
    assert said.pop(stream).startswith("Usage: ")
    assert said.popitem()[1] == ""


def test_the_bundle(folder, api):
    assert run("bundle", "--certs", folder)[:2] == (0, (folder / "ca.crt").read_text())
    assert run("bundle")[:2] == (0, certs_pem(api.state.bundle).decode())


def test_no_private_key_is_printed(folder, api):
    run("rotate", "--signer", "--certs", folder)  # so that there is a next key too
    said = ""
    for verb in ("status", "rotate", "bundle"):
        for output in ("text", "json") if verb != "bundle" else ("",):
            for place in (("--certs", folder), ()):
                said += "".join(map(str, run(verb, *place, *(("-o", output) if output else ()))))
    said += "".join(map(str, run("issue", folder)))
    (folder / "ca.key").write_text((folder / "ca.key").read_text()[:-40])
    said += "".join(map(str, run("status", "--certs", folder)))

    assert len(said) > 5000
    assert "PRIVATE" not in said
    for state in (api.state, parse(Directory(folder).load().data)):
        for pair in (state.signer, state.serving, state.next):
            assert pair is None or not any(line in said for line in key_pem(pair.key).decode().splitlines())


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
        answers = {"/validate": {"response": {"uid": json.loads(body)["request"]["uid"]}}, "/other": {}}
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

    def front(self, signer: Pair, *names: str, life: float = 1, chain: Any = (), **options: Any) -> TlsContextProvider:
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
        code, out, _ = run("verify", f"{url}/validate", "--ca-file", ca, "--server-name", NAME, "-o", "json")
        told = json.loads(out)
        assert (code, told["verdicts"][0]["succeeds"], told["verdicts"][0]["server_name"]) == (0, True, NAME)
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
        assert "the connection closes during the handshake\n           the webhook has no certificate yet" in out

    def test_each_configuration_is_a_caller(self, listen, api):
        state = api.state
        front = TlsContextProvider()
        front.set_certificate(certs_pem([state.serving.cert]), key_pem(state.serving.key))
        url = listen(front)

        code, out, _ = run("verify", url)
        assert code == 0
        assert f"succeeds   ValidatingWebhookConfiguration as {NAME} (0.virt-admit.io, 1.virt-admit.io)\n" in out
        webhook = api.configurations["MutatingWebhookConfiguration"]["webhooks"][1]
        del webhook["clientConfig"]["caBundle"]
        code, out, _ = run("verify", url)
        assert code == 1
        assert out.count("succeeds") == 2
        assert f"fails      MutatingWebhookConfiguration as {NAME} (1.virt-admit.io)\n" in out
        assert "the caBundle is empty" in out
        webhook["clientConfig"] = {"url": "https://elsewhere.test/validate", "caBundle": ""}
        assert "fails      MutatingWebhookConfiguration as elsewhere.test (1.virt-admit.io)" in run("verify", url)[1]

    def test_it_cannot_be_told(self, api, folder):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        code, out, err = run("verify", f"https://127.0.0.1:{port}", "--ca-file", folder / "ca.crt")
        assert (code, out) == (2, "")
        assert "Connection refused" in err
        assert run("verify", "http://127.0.0.1")[0] == 2
        api.configurations.clear()
        assert "add --ca-file" in run("verify", f"https://127.0.0.1:{port}")[2]
