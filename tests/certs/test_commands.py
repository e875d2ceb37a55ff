"""The commands that change a store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.certs.world import DAILY, DAY, HOUR, NAMES, FakeApi, Replica, Time, pem
from virt_admit_certs import commands
from virt_admit_certs.commands import (
    StoreError,
    advance,
    bundle,
    request_rotation,
    revoke,
    rotation_done,
)
from virt_admit_certs.names import names_of
from virt_admit_certs.state import parse, render
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.stores.secret import SecretStore

MINUTE = timedelta(minutes=1)


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def api(now) -> FakeApi:
    api = FakeApi(now)
    api.register()
    Replica(api).settle()
    return api


class TestCommands:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Directory:
        return Directory(tmp_path / "certs")

    def test_issue(self, directory, now, tmp_path):
        assert [step.name for step in advance(directory, DAILY, now)] == ["bootstrap"]
        assert advance(directory, DAILY, now) == ()
        state = parse(directory.load().data)
        assert names_of(state.serving.cert) == NAMES
        assert (
            bundle(directory)
            == pem(state.signer.cert)
            == (tmp_path / "certs" / "ca.crt").read_bytes()
        )

    def test_issue_catches_up(self, directory, now):
        advance(directory, DAILY, now)
        now.now += 370 * HOUR

        assert [step.name for step in advance(directory, DAILY, now)] == ["announce", "reissue"]
        now.now += MINUTE
        assert [step.name for step in advance(directory, DAILY, now)] == ["promote"]

    def test_a_store_that_always_changes(self, directory, now, monkeypatch):
        advance(directory, DAILY, now)
        now.now += DAY
        monkeypatch.setattr(Directory, "save", lambda *_: False)
        monkeypatch.setattr(commands, "_RETRY_SECONDS", 0)

        for command in (
            lambda: advance(directory, DAILY, now),
            lambda: request_rotation(directory, "serving"),
            lambda: revoke(directory, DAILY, now),
        ):
            with pytest.raises(StoreError, match="keeps changing"):
                command()

    def test_an_empty_store_has_nothing_to_rotate_or_print(self, directory):
        with pytest.raises(StoreError, match="no signer yet"):
            request_rotation(directory, "signer")
        with pytest.raises(StoreError, match="no signer yet"):
            bundle(directory)

    def test_rotate_the_serving_cert(self, api, now):
        replica = Replica(api)
        store = SecretStore(api, "a", "b")
        before = api.state.serving.cert

        request = request_rotation(store, "serving")
        assert not rotation_done(store, request)
        replica.settle()

        assert rotation_done(store, request)
        assert api.state.serving.cert != before
        assert replica.steps("announce") == 0

    def test_rotate_the_signer(self, api, now):
        replica = Replica(api)
        replica.settle()
        store = SecretStore(api, "a", "b")
        before = api.state

        request = request_rotation(store, "signer")
        assert render(api.state) == render(before)
        replica.settle()
        assert not rotation_done(store, request)  # announced, not yet in force
        now.now += MINUTE
        replica.settle()

        assert rotation_done(store, request)
        assert api.state.signer.cert != before.signer.cert
        assert api.trusts(replica.chain)
        assert request != request_rotation(store, "signer")

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("serving", "serving"),
            ("signer", "signer"),
            ("signer", "serving"),
            ("serving", "signer"),
        ],
    )
    def test_two_who_ask_at_once_both_get_it(self, api, now, first, second):
        store, replica = SecretStore(api, "a", "b"), Replica(api)
        replica.settle()
        before = api.state
        requests = [request_rotation(store, first), request_rotation(store, second)]
        assert not any(rotation_done(store, request) for request in requests)

        replica.settle()
        now.now += MINUTE
        replica.settle()

        assert all(rotation_done(store, request) for request in requests)
        assert api.state.serving.cert != before.serving.cert
        signers = int("signer" in (first, second))
        assert (api.state.signer.cert != before.signer.cert) == bool(signers)
        assert (replica.steps("announce"), replica.steps("renew")) == (signers, 1 - signers)

    def test_a_request_is_done_although_the_next_one_is_not(self, api):
        store, replica = SecretStore(api, "a", "b"), Replica(api)
        replica.settle()
        request = request_rotation(store, "serving")
        replica.settle()

        later = request_rotation(store, "signer")

        assert rotation_done(store, request)
        assert not rotation_done(store, later)

    def test_rotate_a_directory_without_a_server(self, directory, now):
        advance(directory, DAILY, now)
        request = request_rotation(directory, "signer")
        advance(directory, DAILY, now)
        now.now += MINUTE
        advance(directory, DAILY, now)

        assert rotation_done(directory, request)

    def test_revoke(self, api, now):
        replica = Replica(api)
        replica.settle()
        old = api.state.signer.cert

        after = revoke(SecretStore(api, "a", "b"), DAILY, now)

        assert api.state.bundle == (after.signer.cert,)
        assert old not in api.state.bundle
        replica.settle()
        assert api.trusts(replica.chain)
        assert pem(old) not in api.published
        assert api.state.notes["rotated-by"] == "virt-admit certs"

    def test_a_lost_race_is_run_again(self, api, now):
        store = SecretStore(api, "a", "b")
        replica = Replica(api)
        now.now += DAY
        api.before = lambda verb: (
            (setattr(api, "before", lambda _verb: None), replica.settle())
            if verb == "patch secret"
            else None
        )

        request = request_rotation(store, "signer")

        assert api.state.notes["rotate"] == request
        assert replica.steps("renew") == 1
        assert commands.rotation_done(store, "signer/other") is False
