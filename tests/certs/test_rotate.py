"""The thread of the reconcile loop, and reloads for new connections."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.certs.world import DAILY, HOUR, NAMES, FakeApi, Time, trusts
from tests.waiting import eventually
from virt_admit_certs import rotate
from virt_admit_certs.plan import Observation, plan
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.schedule import RotationSettings, parse_settings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import parse, parse_certs, render
from virt_admit_certs.steps import perform
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.stores.secret import SecretStore
from virt_admit_certs.tls import TlsContextProvider
from virt_admit_certs.webhook_configurations import WebhookConfigurations


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def api(now) -> FakeApi:
    api = FakeApi(now)
    api.register()
    return api


class TestDirectoryMode:
    def test_two_processes_follow_each_other(self, tmp_path, now):
        shown: dict[str, list[bytes]] = {"a": [], "b": []}
        rotators = {
            name: Rotator(
                Directory(tmp_path),
                DAILY,
                set_certificate=lambda cert, _key, name=name: shown[name].append(cert),
                clock=ServerClock(now, now.monotonic),
            )
            for name in shown
        }
        for _ in range(40):
            for rotator in rotators.values():
                while rotator.reconcile_once():
                    pass
            for name in shown:
                rotators[name].reconcile_once()
                chain = tuple(parse_certs(shown[name][-1], [], name))
                assert trusts((tmp_path / "ca.crt").read_bytes(), chain, now.now)
            assert shown["a"][-1] == shown["b"][-1] == (tmp_path / "tls.crt").read_bytes()
            now.now += 12 * HOUR

        assert len(shown["a"]) > 15

    def test_a_foreign_loop_is_seen_by_the_next_connection(self, tmp_path, now, monkeypatch):
        front = TlsContextProvider()
        rotator = Rotator(
            Directory(tmp_path),
            DAILY,
            set_certificate=front.set_certificate,
            clock=ServerClock(now, now.monotonic),
        )
        rotator.reconcile()
        first = front.served
        later = time.monotonic() + 2
        monkeypatch.setattr(rotate, "time", SimpleNamespace(monotonic=lambda: later))
        directory = Directory(tmp_path)
        loaded = directory.load()
        state = parse(loaded.data, {"rotate": "serving/1"})
        step = plan(state, Observation(), now.now, DAILY)
        assert directory.save(
            render(perform(step, state, Observation(), now.now, DAILY)), {}, loaded.version
        )

        in_round, over = threading.Event(), threading.Event()

        def make_keys() -> None:
            with rotator._lock:
                in_round.set()
                over.wait()

        round_, connection = (
            threading.Thread(target=each, daemon=True)
            for each in (make_keys, rotator.reload_if_changed)
        )
        round_.start()
        in_round.wait()
        connection.start()
        connection.join(60)
        assert not connection.is_alive(), "connections do not wait for a round"
        assert front.served == first
        over.set()
        round_.join()

        rotator.reload_if_changed()

        assert front.served != first

    def test_half_a_file(self, tmp_path, now):
        front = TlsContextProvider()
        rotator = Rotator(
            Directory(tmp_path),
            DAILY,
            set_certificate=front.set_certificate,
            clock=ServerClock(now, now.monotonic),
        )
        rotator.reconcile()
        file = tmp_path / "tls.crt"
        file.write_bytes(file.read_bytes()[:200])
        before = front.served

        assert rotator.reconcile_once()
        assert front.served == before
        assert not rotator.reconcile_once()
        assert front.served != before


class TestThread:
    def test_start_wake_stop(self):
        api = FakeApi(Time(datetime.now(UTC)))
        api.register()
        front = TlsContextProvider()
        rotator = Rotator(
            SecretStore(api, "a", "b"),
            RotationSettings(check_interval=HOUR, names=NAMES),
            set_certificate=front.set_certificate,
            configurations=WebhookConfigurations(api),
        )
        rotator.start()
        eventually(lambda: front.served is not None and all(api.published))
        rounds = api.requests["get secret"]
        api.overwrite_bundles(None)
        rotator.request_reconcile()
        eventually(lambda: all(api.published))
        assert api.requests["get secret"] > rounds
        rotator.stop()
        assert not any(thread.name == "certs" for thread in threading.enumerate())

    def test_it_is_woken_once_a_second_whoever_asks(self, tmp_path, monkeypatch):
        clock = [1000.0]
        monkeypatch.setattr(rotate, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        rotator = Rotator(Directory(tmp_path), DAILY, set_certificate=lambda *_: None)
        woken = []
        for _ in range(5):
            rotator.request_reconcile()
            woken.append(rotator._requested.is_set())
            rotator._requested.clear()
            clock[0] += 0.5

        assert woken == [True, False, True, False, True]

    def test_the_start_waits_for_a_certificate_but_not_for_ever(self, api, tmp_path):
        front = TlsContextProvider()
        rotator = Rotator(
            Directory(tmp_path),
            replace(DAILY, check_interval=HOUR),
            set_certificate=front.set_certificate,
        )
        rotator.start(patience=60)
        assert front.served is not None
        rotator.stop()

        answered = threading.Event()
        api.before = lambda _verb: answered.wait(60)
        rotator = Rotator(SecretStore(api, "a", "b"), DAILY, set_certificate=front.set_certificate)
        rotator.start(patience=0.01)
        assert api.requests == {}
        answered.set()
        rotator.stop(timeout=60)

    def test_quick_settings_rotate_by_themselves(self, tmp_path):
        quick = parse_settings(
            {
                "serving-duration": "10s",
                "serving-renew-before": "9s",
                "signer-duration": "20s",
                "signer-renew-before": "19s",
                "propagation": "0s",
                "check-interval": "1s",
            },
            names=NAMES,
            unsafe=True,
        )
        quick = replace(quick, check_interval=timedelta(milliseconds=100))
        front = TlsContextProvider()
        events: list[tuple[str, str]] = []
        rotator = Rotator(
            Directory(tmp_path),
            quick,
            set_certificate=front.set_certificate,
            on_event=lambda *event: events.append(event),
        )
        rotator.reconcile()
        rotator.start()
        try:
            deadline = time.monotonic() + 60
            while events.count(("step", "promote")) < 2:
                assert time.monotonic() < deadline
                assert front.served.not_after > datetime.now(UTC)
                time.sleep(0.1)
        finally:
            rotator.stop()

        assert events.count(("step", "bootstrap")) == 1
        assert not [event for event in events if event[0] == "error"]
