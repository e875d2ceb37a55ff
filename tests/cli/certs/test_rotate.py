"""`virt-admit certs rotate`."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.certs.world import DAILY, Replica
from tests.cli.certs.runs import run, serving_cert
from virt_admit_certs.certificates import certs_pem
from virt_admit_certs.names import names_of
from virt_admit_certs.state import parse
from virt_admit_certs.stores.directory import Directory


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
        code, out, _ = run(
            "rotate", "--signer", "--wait", "--certs", folder, "--certs-propagation", "0s"
        )

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

        for flags in (
            ("--serving", "--signer"),
            ("--signer", "--serving"),
            ("--signer", "--revoke", "--yes"),
        ):
            code, out, err = run("rotate", *flags, "--certs", folder)
            assert (code, out) == (2, "")
            assert err.endswith("exclude each other")
        assert Directory(folder).load() == before

    def test_a_request_to_whoever_serves(self, api):
        for flag in ("--serving", "--signer"):
            assert run("rotate", flag)[1].endswith(
                " is requested; a replica of the webhook performs it\n"
            )

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
        code, _, err = run("rotate", "--revoke", stdin="")
        assert (code, "Add --yes" in err, "interrupted" in err) == (2, True, False)
        assert run("rotate", "--revoke", stdin="y\n")[0] == 0
        assert api.state.bundle == (api.state.signer.cert,) != before

    def test_revoking_waits_for_the_configurations(self, api, monkeypatch):
        replica = Replica(api)
        monkeypatch.setattr(time, "sleep", lambda _: replica.settle())

        code, out, _ = run("rotate", "--revoke", "--yes", "--wait")

        assert (code, out) == (0, "revoke is done\n")
        assert set(api.published) == {certs_pem(api.state.bundle)}

    def test_revoking_ends_although_whoever_serves_goes_on_at_once(self, api, monkeypatch):
        """Its settings are not the command's: it announces a signer to its own taste in the same
        round.
        """
        replica = Replica(api, replace(DAILY, key="p384"))
        monkeypatch.setattr(time, "sleep", lambda _: replica.settle())

        assert run("rotate", "--revoke", "--yes", "--wait")[0] == 0

        assert api.state.announced
        assert set(api.published) == {certs_pem(api.state.bundle)}

    def test_what_is_not_ours(self, folder, tmp_path):
        assert run("rotate", "--certs-external", folder)[2].startswith("an external issuer owns")
        assert run("rotate", "--certs", tmp_path / "empty")[2].startswith(
            "the store has no signer yet"
        )
        assert run("bundle", "--certs", tmp_path / "empty")[2].startswith(
            "the store has no signer yet"
        )
