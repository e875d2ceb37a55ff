"""The reconcile loop over the life of the certificates, its errors and its log."""

from __future__ import annotations

import base64
import logging
import random
import ssl
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.certs.world import DAILY, DAY, HOUR, NAMES, SECOND, START, FakeApi, Replica, Time, pem
from virt_admit_certs import reconciler, rotate
from virt_admit_certs.certificates import sha256, timestamp
from virt_admit_certs.keys import key_pem
from virt_admit_certs.names import names_of
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.schedule import RotationSettings, RotationSettingsError
from virt_admit_certs.state import render
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.stores.secret import SecretStore

MINUTE = timedelta(minutes=1)

ANNOUNCE = START + 360 * HOUR


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def api(now) -> FakeApi:
    api = FakeApi(now)
    api.register()
    return api


def pass_time(now: Time, until: datetime, *replicas: Replica, every: timedelta = 6 * HOUR) -> None:
    while now.now < until:
        now.now = min(now.now + every, until)
        for replica in replicas:
            replica.settle()


class TestLife:
    def test_from_nothing_to_trusted_in_one_go(self, api, now):
        replica = Replica(api)

        replica.settle()

        assert api.trusts(replica.chain)
        assert names_of(replica.chain[0]) == NAMES
        assert replica.events == {("step", "bootstrap"): 1}
        assert all(bundle == pem(*api.state.bundle) for bundle in api.published)
        assert api.state.notes["rotated-by"] == "a"

    def test_nothing_is_written_while_nothing_is_due(self, api, now):
        replica = Replica(api)
        replica.settle()
        before = api.requests.copy()

        for _ in range(10):
            now.now += 10 * SECOND
            assert not replica.rotator.reconcile_once()

        assert api.requests - before == {"get secret": 10, "get configuration": 20}

    def test_a_rotation_of_the_signer_under_three_replicas(self, api, now):
        replicas = [Replica(api, name=name) for name in "abc"]
        for replica in replicas:
            replica.settle()
        pass_time(now, ANNOUNCE - HOUR, *replicas)
        old = api.state.signer.cert

        while now.now < ANNOUNCE + 60 * HOUR:
            now.now += (
                10 * SECOND
                if now.now < ANNOUNCE + 3 * MINUTE and now.now >= ANNOUNCE
                else 30 * MINUTE
            )
            for replica in random.Random(1).sample(replicas, 3):
                replica.rotator.reconcile_once()
                assert all(api.trusts(other.chain) for other in replicas)

        assert api.state.signer.cert != old
        assert api.state.bundle == (api.state.signer.cert,)
        assert {replica.chain for replica in replicas} == {(api.state.serving.cert,)}
        assert sum(replica.steps("promote") for replica in replicas) == 1

    def test_what_is_shown_is_what_is_stored_after_one_round(self, api, now):
        replicas = [Replica(api, name=name) for name in "abcd"]
        for day in range(20):
            now.now += DAY
            for replica in replicas:
                replica.settle()
            assert {sha256(replica.chain[0]) for replica in replicas} == {
                sha256(api.state.serving.cert)
            }, day

    def test_a_suspended_machine_catches_up_in_one_round(self, api, now):
        replica = Replica(api)
        replica.settle()
        now.now += 3 * DAY

        replica.settle()

        assert api.trusts(replica.chain)
        assert replica.steps("reissue") == 1

    def test_all_down_until_the_signer_has_expired(self, api, now):
        Replica(api).settle()
        now.now += 31 * DAY
        replica = Replica(api)

        replica.settle()

        assert api.trusts(replica.chain)
        assert len(api.state.bundle) == 1

    @pytest.mark.parametrize("days", [30, 45, 400])
    def test_down_for_long_while_it_lives(self, api, now, days):
        replica = Replica(api)
        replica.settle()
        now.now += timedelta(days=days)

        replica.settle()

        assert api.trusts(replica.chain)

    def test_the_signer_near_its_end_while_the_serving_cert_is_fine(self, api, now):
        replica = Replica(api)
        replica.settle()
        now.now = ANNOUNCE - HOUR
        replica.settle()  # a serving cert of this very hour
        now.now = ANNOUNCE
        replica.settle()

        assert replica.steps("announce") == 1
        now.now += MINUTE
        replica.settle()
        assert replica.steps("promote") == 1
        assert api.trusts(replica.chain)

    @pytest.mark.parametrize("error", [-DAY, -20 * SECOND, 20 * SECOND, DAY])
    def test_replicas_with_wrong_clocks(self, api, now, error):
        wrong, right = Replica(api, error=error, name="wrong"), Replica(api, name="right")
        for _ in range(100):
            for replica in (wrong, right):
                replica.settle()
                assert api.trusts(replica.chain)
            now.now += 9 * HOUR

        assert wrong.steps("renew") + right.steps("renew") > 20
        assert wrong.events["step", "reissue"] + right.events["step", "reissue"] == 0
        assert wrong.rotator.status.offset == -error.total_seconds()

    @pytest.mark.parametrize("jump", [-40 * DAY, -3 * DAY, 3 * DAY, 40 * DAY])
    def test_a_local_clock_that_jumps_and_back(self, api, now, jump):
        replica = Replica(api)
        replica.settle()
        for error in (jump, timedelta()):
            before = replica.events.copy()
            replica.error = error
            now.now += 10 * SECOND
            replica.settle()
            assert replica.events == before
            assert api.trusts(replica.chain)

    @pytest.mark.parametrize("jump", [-400 * DAY, -3 * DAY, 3 * DAY, 400 * DAY])
    def test_the_api_servers_clock_that_jumps_and_back(self, api, now, jump):
        replica = Replica(api)
        replica.settle()
        for _ in range(3):
            now.now += jump
            replica.settle()
            assert api.trusts(replica.chain)
            now.now += -jump + MINUTE
            replica.settle()
            assert api.trusts(replica.chain)

    def test_names_that_change(self, api, now):
        Replica(api).settle()
        signer = api.state.signer.cert
        renamed = Replica(api, replace(DAILY, names=("new.virt-admit.svc",)))

        renamed.settle()

        assert names_of(renamed.chain[0]) == ("new.virt-admit.svc",)
        assert api.state.signer.cert == signer


class TestErrors:
    def test_whatever_is_thrown_the_loop_goes_on(self, api, now, monkeypatch, caplog):
        replica = Replica(api)
        replica.settle()
        for error in (RuntimeError("a bug"), OSError(5, "disk"), MemoryError(), KeyError("x")):
            with monkeypatch.context() as patched:
                patched.setattr(
                    reconciler, "parse", lambda *_, error=error: (_ for _ in ()).throw(error)
                )
                assert not replica.rotator.reconcile_once()
        now.now += DAY
        replica.settle()

        assert replica.events["error", "internal"] == 3
        assert replica.events["error", "storage"] == 1
        assert replica.steps("renew") == 1
        assert api.trusts(replica.chain)

    def test_each_kind_is_logged_once_a_minute(self, api, monkeypatch, caplog):
        replica = Replica(api)
        api.down = True
        clock = [1000.0]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])
        for _ in range(120):
            replica.rotator.reconcile_once()
            clock[0] += 1

        assert [
            record.reason for record in caplog.records if record.levelno == logging.WARNING
        ] == ["unreachable"] * 2
        assert replica.events["error", "unreachable"] == 120

    def test_a_certificate_that_cannot_be_shown_does_not_stop_the_plan(self, api, now, monkeypatch):
        replica = Replica(api)
        replica.settle()
        shown = replica.chain

        def refuse(*_: bytes) -> None:
            raise ssl.SSLError("no")

        monkeypatch.setattr(replica.rotator._presenter, "_set_certificate", refuse)
        now.now += DAY
        replica.settle()
        assert replica.chain == shown
        assert replica.events["error", "certificate"] >= 1
        assert replica.steps("renew") == 1
        monkeypatch.undo()
        replica.settle()
        assert replica.chain == (api.state.serving.cert,)

    def test_a_save_that_is_always_lost_does_not_spin(self, api, monkeypatch):
        replica = Replica(api)
        monkeypatch.setattr(SecretStore, "save", lambda *_: False)
        monkeypatch.setattr(rotate.random, "uniform", lambda *_: 0.0)

        replica.rotator.reconcile()

        assert replica.events["conflict", ""] == 10

    def test_a_clock_far_off_is_warned_of(self, api, caplog):
        Replica(api, error=61 * SECOND).settle()
        assert [record.offset for record in caplog.records if hasattr(record, "offset")] == [-61]

    def test_settings_that_change_are_followed_and_bad_ones_are_not(self, api, now, caplog):
        caplog.set_level("INFO", "virt_admit_certs")
        wanted: list[RotationSettings] = [DAILY]

        def follow() -> RotationSettings:
            if not wanted:
                raise RotationSettingsError("serving-duration is 1s; it must be at least 10m")
            return wanted[0]

        replica = Replica(api, get_settings=follow)
        replica.settle()
        now.now += 5 * HOUR
        wanted[0] = replace(DAILY, serving_renew_before=47 * HOUR)
        replica.settle()
        assert replica.steps("renew") == 1
        wanted.clear()
        now.now += 5 * HOUR
        replica.settle()

        assert replica.steps("renew") == 2
        assert {reason for what, reason in replica.events if what == "error"} == {"settings"}
        [changed] = [
            record for record in caplog.records if record.message == "certificate schedule"
        ]
        assert (changed.serving_duration, changed.serving_renew_before) == ("48h", "47h")


def test_no_key_in_any_log(api, now, caplog, tmp_path):
    """The whole debug output of bootstrap, renewals, a rotation, damage and errors: no PEM,
    no key.
    """
    caplog.set_level(logging.DEBUG)
    replica = Replica(api)
    secrets: set[str] = set()

    def remember() -> None:
        for key, value in render(api.state).items():
            if key.endswith(".key"):
                text = value.decode()
                secrets.update(line for line in text.splitlines() if not line.startswith("-----"))
                secrets.add(base64.b64encode(value).decode())

    replica.settle()
    for _ in range(70):
        remember()
        now.now += 6 * HOUR
        replica.settle()
    api.edit(
        {"ca.key": api.state.next.key and key_pem(api.state.next.key) if api.state.next else b"x"}
    )
    replica.settle()
    remember()
    api.down = True
    replica.settle()
    rotator = Rotator(
        Directory(tmp_path),
        DAILY,
        set_certificate=lambda *_: (_ for _ in ()).throw(ValueError("no")),
    )
    rotator.reconcile()

    told = (
        "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
        + caplog.text
    )
    assert len(caplog.records) > 20
    assert len(secrets) > 10
    assert replica.steps("promote") == 1
    assert "PRIVATE" not in told
    assert "BEGIN" not in told
    assert not [secret for secret in secrets if secret in told]


def test_what_a_step_logs(api, now, caplog):
    caplog.set_level(logging.INFO)
    Replica(api).settle()

    [step] = [record for record in caplog.records if hasattr(record, "step")]
    assert step.getMessage() == "certificate step"
    assert step.step == "bootstrap"
    assert step.generation == "1"
    assert step.serving == sha256(api.state.serving.cert)[:16]
    assert (step.next_step, step.next_at) == ("renew", timestamp(START + DAY))


def test_loaded_keys_are_not_shown_by_repr(api):
    Replica(api).settle()
    loaded = SecretStore(api, "virt-admit", "virt-admit-certs").load()

    assert loaded.data["ca.key"].startswith(b"-----BEGIN PRIVATE KEY")
    assert "PRIVATE" not in repr(loaded) + repr(api.state)
