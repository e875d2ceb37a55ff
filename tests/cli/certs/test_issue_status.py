"""`virt-admit certs issue`, `status` and `bundle`, and no private key in their output."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from tests.cli.certs.runs import NAME, run, serving_cert
from virt_admit.cli import main
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit_certs.certificates import certs_pem, sha256
from virt_admit_certs.keys import key_pem
from virt_admit_certs.names import names_of
from virt_admit_certs.state import parse
from virt_admit_certs.stores.directory import Directory


class TestIssue:
    def test_into_an_empty_folder(self, tmp_path):
        code, out, _ = run(
            "issue", tmp_path / "new", "--cert-name", "Laptop.test", "--certs-key", "p384"
        )
        state = parse(Directory(tmp_path / "new").load().data)

        assert code == 0
        assert out.startswith("done       bootstrap\nphase      steady\n")
        assert {NAME, "localhost", "127.0.0.1", "laptop.test"} < set(names_of(state.serving.cert))
        assert state.serving.key.key_size == 384
        assert [
            os.stat(tmp_path / "new" / name).st_mode & 0o777 for name in ("ca.key", "tls.key")
        ] == [0o600, 0o600]

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
        hyperconverged = {
            "apiVersion": "hco.kubevirt.io/v1",
            "kind": "HyperConverged",
            "metadata": {"name": "a"},
        }
        found = Snapshot([Object({**hyperconverged, "spec": {"security": {"certConfig": short}}})])
        monkeypatch.setattr("virt_admit.cli.commands.certs.load_cluster", lambda *_, **__: found)

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
        assert (
            "attention  MutatingWebhookConfiguration 1.virt-admit.io does not carry the bundle"
            in out
        )

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


@pytest.mark.parametrize(
    ("args", "code", "stream"), [((), 0, "out"), (("certs",), 2, "err"), (("policy",), 2, "err")]
)
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
            assert pair is None or not any(
                line in said for line in key_pem(pair.key).decode().splitlines()
            )
