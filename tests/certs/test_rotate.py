"""The loop under every fault of the design: what is shown is trusted, or heals in the next round."""

from __future__ import annotations

import base64
import logging
import random
import ssl
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.certs.world import DAILY, DAY, HOUR, KINDS, NAMES, SECOND, START, FakeApi, Replica, Time, pem, trusts
from tests.waiting import eventually
from virt_admit_certs import reconciler, rotate
from virt_admit_certs.certificates import certs_pem, new_serving, new_signer, sha256, timestamp
from virt_admit_certs.keys import key_pem
from virt_admit_certs.names import names_of
from virt_admit_certs.plan import Observation, plan
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.schedule import RotationSettings, RotationSettingsError, parse_settings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import CertificateState, ordered, parse, parse_certs, render
from virt_admit_certs.steps import perform
from virt_admit_certs.stores.directory import Directory, ExternalDirectory
from virt_admit_certs.stores.secret import ExternalSecret, SecretStore
from virt_admit_certs.tls import TlsContextProvider
from virt_admit_certs.webhook_configurations import WebhookConfigurations

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


class TestClock:
    def clock(self, now: Time) -> ServerClock:
        self.error = timedelta()
        return ServerClock(lambda: now.now + self.error, now.monotonic)

    def test_without_an_api_server_local_time_counts(self, now):
        clock = self.clock(now)
        clock.observe_date(None)

        assert (clock.now(), clock.offset) == (START, 0)

    @pytest.mark.parametrize("seconds", [-86400, -20, -2, 2, 20, 86400])
    def test_the_api_servers_time_counts(self, now, seconds):
        clock = self.clock(now)
        self.error = -seconds * SECOND
        clock.observe_date(START)

        assert clock.offset == seconds
        assert clock.now() == START

    @pytest.mark.parametrize("seconds", [-1.9, -1, 0, 1, 1.9])
    def test_less_than_two_seconds_is_the_headers_resolution(self, now, seconds):
        clock = self.clock(now)
        clock.observe_date(START + seconds * SECOND)

        assert clock.offset == 0

    def test_one_answer_that_lay_around_is_forgiven(self, now):
        clock = self.clock(now)
        for late in (0, 0, 0, 300, 0):
            clock.observe_date(now.now - late * SECOND)
            assert clock.offset == 0
            now.now += 10 * SECOND

    @pytest.mark.parametrize("step", [-3 * DAY, -10 * SECOND, 10 * SECOND, 3 * DAY])
    def test_a_step_of_the_local_clock_counts_at_once(self, now, step):
        clock = self.clock(now)
        for _ in range(5):
            clock.observe_date(now.now)
            now.now += 10 * SECOND
        self.error = step
        clock.observe_date(now.now)

        assert clock.now() == now.now
        assert clock.offset == -step.total_seconds()


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
            now.now += 10 * SECOND if now.now < ANNOUNCE + 3 * MINUTE and now.now >= ANNOUNCE else 30 * MINUTE
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
            assert {sha256(replica.chain[0]) for replica in replicas} == {sha256(api.state.serving.cert)}, day

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


class TestFaults:
    @pytest.fixture
    def replica(self, api) -> Replica:
        replica = Replica(api)
        replica.settle()
        return replica

    def test_secret_deleted(self, api, now, replica):
        other = Replica(api, name="b")
        other.settle()
        signer = api.state.signer.cert
        for _ in range(3):
            api.delete_secret()
            now.now += 10 * SECOND
            other.settle()
            assert api.trusts(replica.chain)
            assert api.trusts(other.chain)
            replica.settle()
            assert api.trusts(replica.chain)
            assert api.state.signer.cert == signer
            assert api.state.next is not None  # it may have leaked

        now.now += MINUTE
        replica.settle()
        assert api.state.signer.cert != signer
        assert all(api.trusts(each.chain) for each in (replica, other))
        assert other.steps("restore") == 3

    @pytest.mark.parametrize("key", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
    @pytest.mark.parametrize("value", [None, b"", b"garbage", "foreign"])
    def test_secret_damaged(self, api, now, replica, key, value):
        if value == "foreign":
            foreign = new_signer(START, DAY)
            value = render(CertificateState(signer=foreign, bundle=(foreign.cert,),
                                 serving=new_serving(foreign, NAMES, START, DAY)))[key]  # fmt: skip
        signer, before = api.state.signer.cert, replica.chain
        api.edit({key: value})
        assert api.trusts(before)

        replica.settle()

        assert api.trusts(replica.chain)
        assert api.trusts(before)
        assert api.state.signer.cert == signer
        assert not api.state.faults
        assert (replica.steps("restore"), replica.steps("reissue")) == ((1, 0) if key.startswith("ca.") else (0, 1))

    def test_secret_deleted_and_everybody_restarted(self, api, now, replica):
        """Nobody remembers the signer, but the configurations still carry it, and old replicas still show it."""
        api.delete_secret()
        fresh = Replica(api, name="fresh")

        fresh.settle()

        assert fresh.steps("bootstrap") == 1
        assert api.trusts(fresh.chain)
        assert api.trusts(replica.chain)
        pass_time(now, START + 49 * HOUR, fresh)
        assert len(api.state.bundle) == 1

    def test_a_memory_from_before_a_long_sleep_is_not_used(self, api, now, replica):
        api.down = True
        now.now += 6 * MINUTE
        replica.settle()
        api.down = False
        api.delete_secret()

        replica.settle()

        assert (replica.steps("restore"), replica.steps("bootstrap")) == (0, 2)  # the first was its beginning
        assert api.trusts(replica.chain)

    def test_a_memory_serves_however_long_saving_fails(self, api, now, replica):
        api.delete_secret()
        api.forbidden = {"patch secret"}
        for _ in range(100):
            now.now += MINUTE
            replica.settle()
            assert api.trusts(replica.chain)
        api.forbidden = set()

        replica.settle()

        assert replica.steps("restore") == 1

    def test_api_server_away_for_hours(self, api, now, replica):
        for _ in range(23):
            api.down = True
            now.now += HOUR
            replica.settle()
            assert api.trusts(replica.chain)
        assert replica.events["error", "unreachable"] == 23
        now.now += 2 * HOUR
        api.down = False
        replica.settle()

        assert api.trusts(replica.chain)
        assert replica.steps("renew") == 1

    @pytest.mark.parametrize("bundle", [None, b"", b"Cg==", "foreign"])
    def test_bundle_overwritten(self, api, now, replica, bundle):
        api.overwrite_bundles(pem(new_signer(START, DAY).cert) if bundle == "foreign" else bundle)
        assert not api.trusts(replica.chain)

        replica.rotator.reconcile_once()

        assert api.trusts(replica.chain)

    def test_a_configuration_that_appears_later(self, now):
        api = FakeApi(now)
        replica = Replica(api)
        replica.settle()
        assert replica.rotator.status.injected == {}
        api.register("MutatingWebhookConfiguration")

        replica.rotator.reconcile_once()

        assert api.trusts(replica.chain)
        assert replica.rotator.status.injected == {"MutatingWebhookConfiguration": True}

    @pytest.mark.parametrize("verb", ["get configuration", "patch configuration"])
    def test_rights_on_configurations_taken_away(self, api, now, replica, verb):
        api.forbidden = {verb}
        pass_time(now, ANNOUNCE + DAY, replica)
        assert replica.steps("announce") == 1
        assert replica.steps("promote") == 0
        assert replica.steps("renew") > 10
        assert api.trusts(replica.chain)
        assert replica.events["error", "forbidden"] > 0
        assert not any(replica.rotator.status.injected.values())

        api.forbidden = set()
        pass_time(now, now.now + HOUR, replica)

        assert replica.steps("promote") == 1
        assert api.trusts(replica.chain)
        assert all(replica.rotator.status.injected.values())

    def test_all_rights_taken_away(self, api, now, replica):
        api.forbidden = {"get secret"}
        for _ in range(47):
            now.now += HOUR
            replica.settle()
            assert api.trusts(replica.chain)

        api.forbidden = set()
        replica.settle()
        assert api.trusts(replica.chain)

    def test_conflicts_are_counted_and_the_loser_has_nothing_to_do(self, api, now, replica):
        other = Replica(api, name="b")
        other.settle()
        now.now += DAY
        api.before = lambda verb: (
            (setattr(api, "before", lambda _verb: None), other.settle()) if verb == "patch secret" else None
        )

        assert replica.rotator.reconcile_once()

        assert replica.events["conflict", ""] == 1
        assert not replica.rotator.reconcile_once()
        assert (replica.steps("renew"), other.steps("renew")) == (0, 1)
        assert replica.chain == other.chain

    def test_eight_loops_start_at_once(self, api, now):
        """Interleaved at every request, in a random order."""
        api.delete_secret()
        api.register()
        replicas = [Replica(api, name=str(number)) for number in range(8)]
        chance = random.Random(7)
        waiting = list(replicas)

        def somebody_else(_verb: str) -> None:
            if waiting and chance.random() < 0.5:
                waiting.pop(chance.randrange(len(waiting))).settle()

        api.before = somebody_else
        while waiting:
            waiting.pop().settle()
        for replica in replicas:
            replica.settle()

        assert sum(replica.steps("bootstrap") for replica in replicas) == 1
        assert sum(replica.events["conflict", ""] for replica in replicas) > 0
        assert {replica.chain for replica in replicas} == {(api.state.serving.cert,)}
        assert all(api.trusts(replica.chain) for replica in replicas)

    def test_a_replica_asleep_during_two_rotations(self, api, now, replica):
        other = Replica(api, name="b")
        other.settle()
        pass_time(now, START + 20 * HOUR, replica, other)
        for number in range(2):
            api.edit(notes={"rotate": f"signer/{number}"})
            for _ in range(4):
                now.now += MINUTE
                other.settle()
            assert api.trusts(replica.chain)
        assert len(api.state.bundle) == 3

        replica.settle()

        assert api.trusts(replica.chain)
        assert replica.chain == other.chain

    def test_a_foreign_authority_appended_to_the_bundle_leaves_after_its_wait(self, api, now, replica):
        foreign = new_signer(START, 365 * DAY).cert
        api.edit({"ca.crt": pem(*api.state.bundle, foreign)})
        replica.settle()
        assert foreign in api.state.bundle
        assert replica.steps("note") == 1

        pass_time(now, START + 47 * HOUR, replica)
        assert foreign in api.state.bundle
        pass_time(now, START + 49 * HOUR, replica)
        assert foreign not in api.state.bundle
        assert api.trusts(replica.chain)

    def test_a_request_is_done_once(self, api, now, replica):
        api.edit(notes={"rotate": "serving/1"})
        for _ in range(5):
            now.now += MINUTE
            replica.settle()
        assert replica.steps("renew") == 1
        api.edit(notes={"rotate": "signer/2"})
        for _ in range(5):
            now.now += MINUTE
            replica.settle()
        assert (replica.steps("announce"), replica.steps("promote")) == (1, 1)


class TestGuard:
    def test_another_signer_is_shown_only_when_trusted(self, api, now):
        """Somebody replaced the Secret by one that knows nothing of us, and the bundle cannot be published."""
        replica = Replica(api)
        replica.settle()
        shown = replica.chain
        foreign = new_signer(START, 30 * DAY)
        state = CertificateState(
            signer=foreign, bundle=(foreign.cert,), serving=new_serving(foreign, NAMES, START, 2 * DAY)
        )
        api.forbidden = {"patch configuration"}
        api.edit(render(state))

        replica.settle()
        assert replica.chain == shown
        assert api.trusts(replica.chain)

        api.forbidden = set()
        replica.settle()
        assert replica.chain == (state.serving.cert,)
        assert api.trusts(replica.chain)

    def test_but_anything_is_better_than_what_has_expired(self, api, now):
        replica = Replica(api)
        replica.settle()
        api.forbidden = {"patch configuration"}
        now.now += 3 * DAY
        foreign = new_signer(now.now, 30 * DAY)
        api.edit(render(CertificateState(signer=foreign, bundle=(foreign.cert,),
                              serving=new_serving(foreign, NAMES, now.now, 2 * DAY))))  # fmt: skip

        replica.settle()

        assert replica.chain[0].issuer == foreign.cert.subject

    def test_with_the_cross_certificate_it_is_shown_before_the_bundle_is_there(self, api, now):
        leader, follower = Replica(api, name="leader"), Replica(api, name="follower")
        leader.settle()
        follower.settle()
        api.edit(notes={"rotate": "signer/1"})
        old = [bytes(bundle) for bundle in api.published]
        for _ in range(4):
            now.now += MINUTE
            leader.settle()
        assert len(leader.chain) == 2
        api.overwrite_bundles(old[0])
        api.forbidden = {"patch configuration"}

        follower.settle()

        assert follower.chain == leader.chain
        assert api.trusts(follower.chain)


class TestReadiness:
    def ready(self, replica: Replica) -> dict[str, bool]:
        return {item.name: item.ready for item in replica.rotator.readiness()}

    def test_before_and_after(self, api, now):
        replica = Replica(api)
        assert self.ready(replica) == {"certificate": False, "bundle": False}
        replica.settle()
        assert self.ready(replica) == {"certificate": True, "bundle": True}
        texts = [item.text for item in replica.rotator.readiness()]
        assert texts == ["valid until 2026-01-03T00:00:00Z", "published"]

    def test_expired(self, api, now):
        replica = Replica(api)
        replica.settle()
        api.down = True
        now.now += 48 * HOUR

        assert self.ready(replica) == {"certificate": False, "bundle": True}

    def test_a_bundle_lost_later_does_not_matter(self, api, now):
        replica = Replica(api)
        replica.settle()
        api.forbidden = {"patch configuration"}
        api.overwrite_bundles(b"")
        replica.settle()

        assert self.ready(replica) == {"certificate": True, "bundle": True}

    def test_without_configurations_nobody_waits(self, now):
        replica = Replica(FakeApi(now))
        replica.settle()
        assert self.ready(replica) == {"certificate": True, "bundle": True}

    def test_thirty_seconds_are_enough(self, api, now, monkeypatch):
        api.forbidden = {"get configuration"}
        replica = Replica(api)
        replica.settle()
        assert self.ready(replica) == {"certificate": True, "bundle": False}
        later = time.monotonic() + 30
        monkeypatch.setattr(rotate.time, "monotonic", lambda: later)
        assert self.ready(replica) == {"certificate": True, "bundle": True}

    def test_facts(self, api, now):
        replica = Replica(api)
        assert replica.rotator.status.certificates == {}
        replica.settle()
        facts = replica.rotator.status

        assert facts.checked == START
        assert facts.injected == dict.fromkeys(KINDS, True)
        assert facts.certificates == {
            "serving": api.state.serving.cert,
            "signer": api.state.signer.cert,
            "bundle_oldest": api.state.signer.cert,
        }


class TestErrors:
    def test_whatever_is_thrown_the_loop_goes_on(self, api, now, monkeypatch, caplog):
        replica = Replica(api)
        replica.settle()
        for error in (RuntimeError("a bug"), OSError(5, "disk"), MemoryError(), KeyError("x")):
            with monkeypatch.context() as patched:
                patched.setattr(reconciler, "parse", lambda *_, error=error: (_ for _ in ()).throw(error))
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

        assert [record.reason for record in caplog.records if record.levelno == logging.WARNING] == ["unreachable"] * 2
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
        [changed] = [record for record in caplog.records if record.message == "certificate schedule"]
        assert (changed.serving_duration, changed.serving_renew_before) == ("48h", "47h")


class TestExternal:
    """Somebody else issues: look, check, show; never write."""

    def secret(self, api: FakeApi, serving: Any, signer: Any) -> None:
        data = {
            "tls.crt": certs_pem([serving.cert]),
            "tls.key": key_pem(serving.key),
            "ca.crt": certs_pem([signer.cert]),
        }
        api.secret = {
            "metadata": {"uid": "u", "resourceVersion": api._next()},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    @pytest.fixture
    def shown(self) -> list[bytes]:
        return []

    def rotator(self, store: Any, shown: list[bytes], now: Time, **options: Any) -> Rotator:
        return Rotator(
            store,
            RotationSettings(names=NAMES[:1]),
            set_certificate=lambda cert, _key: shown.append(cert),
            clock=ServerClock(now, now.monotonic),
            **options,
        )

    def test_a_secret_is_followed_and_never_written(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        assert not rotator.reconcile_once()
        assert not rotator.readiness()[0].ready
        for _ in range(5):
            serving = new_serving(signer, NAMES, now.now, 3 * DAY)
            self.secret(api, serving, signer)
            assert not rotator.reconcile_once()
            assert shown[-1] == certs_pem([serving.cert])
            assert rotator.readiness()[0].ready
            now.now += DAY

        assert len(shown) == 5
        assert api.requests["patch secret"] == api.requests["patch configuration"] == 0
        assert rotator.status.certificates["serving"] == serving.cert

    @pytest.mark.parametrize("damage", ["missing", "mismatch", "half", "expired", "names", "future"])
    def test_what_is_bad_does_not_replace_what_is_good(self, api, now, shown, damage):
        signer = new_signer(START - 10 * DAY, 90 * DAY)
        good, other = (new_serving(signer, NAMES, START, 3 * DAY) for _ in range(2))
        events: list[tuple[str, str]] = []
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now, on_event=lambda *event: events.append(event))
        self.secret(api, good, signer)
        rotator.reconcile_once()
        assert events == []

        if damage == "missing":
            api.edit({"tls.key": None})
        elif damage == "mismatch":
            api.edit({"tls.key": key_pem(other.key)})
        elif damage == "half":
            api.edit({"tls.crt": certs_pem([other.cert])[:200]})
        else:
            names = ("other.svc",) if damage == "names" else NAMES
            made = {"expired": START - 5 * DAY, "future": START + 5 * DAY}.get(damage, START)
            self.secret(api, new_serving(signer, names, made, 3 * DAY), signer)
        rotator.reconcile_once()

        assert shown == [certs_pem([good.cert])]
        assert events == [("error", "certificate")]
        assert rotator.readiness()[0].ready

    def test_a_wildcard_does_for_the_service(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        for _ in range(2):
            self.secret(api, new_serving(signer, ["*.virt-admit.svc"], START, DAY), signer)
            rotator.reconcile_once()

        assert len(shown) == 2

    def test_while_nothing_good_is_there_what_is_bad_is_shown_and_not_ready(self, api, now, shown):
        signer = new_signer(START - 10 * DAY, 90 * DAY)
        expired = new_serving(signer, NAMES, START - 5 * DAY, 3 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        self.secret(api, expired, signer)
        rotator.reconcile_once()
        assert shown == [certs_pem([expired.cert])]
        assert not rotator.readiness()[0].ready

        good = new_serving(signer, NAMES, START, 3 * DAY)
        self.secret(api, good, signer)
        rotator.reconcile_once()
        assert shown[-1] == certs_pem([good.cert])
        assert rotator.readiness()[0].ready

    def test_its_authority_is_published_beside_the_one_before_it(self, api, now, shown):
        old, new = new_signer(START, 90 * DAY), new_signer(START + DAY, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now, configurations=WebhookConfigurations(api))
        before = new_serving(old, NAMES, START, 30 * DAY)
        self.secret(api, before, old)
        rotator.reconcile_once()
        assert api.published == [pem(old.cert)] * 4
        self.secret(api, new_serving(new, NAMES, START, 30 * DAY), new)
        now.now += DAY
        rotator.reconcile_once()
        assert api.published == [pem(new.cert, old.cert)] * 4
        assert api.trusts((before.cert,))
        requests = api.requests["patch configuration"]
        rotator.reconcile_once()
        assert api.requests["patch configuration"] == requests

        now.now = START + 90 * DAY
        self.secret(api, new_serving(new, NAMES, now.now, DAY), new)
        rotator.reconcile_once()
        assert api.published == [pem(new.cert)] * 4

    def test_without_an_authority_nothing_is_published(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now, configurations=WebhookConfigurations(api))
        self.secret(api, new_serving(signer, NAMES, START, DAY), signer)
        api.edit({"ca.crt": None})

        rotator.reconcile_once()

        assert api.published == [b""] * 4
        assert len(shown) == 1

    def test_files_are_looked_at_for_connections_once_a_second(self, tmp_path, now, shown, monkeypatch):
        signer = new_signer(START, 90 * DAY)
        clock = [1000.0]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])

        def put() -> bytes:
            serving = new_serving(signer, NAMES, START, DAY)
            for name, content in (("tls.crt", certs_pem([serving.cert])), ("tls.key", key_pem(serving.key))):
                (tmp_path / name).write_bytes(content)
                (tmp_path / name).chmod(0o600)
            return certs_pem([serving.cert])

        put()
        rotator = self.rotator(ExternalDirectory(tmp_path), shown, now)
        rotator.reconcile_once()
        second = put()
        clock[0] += 0.9
        rotator.reload_if_changed()
        assert len(shown) == 1
        clock[0] += 0.1
        rotator.reload_if_changed()
        assert shown[-1] == second
        clock[0] += 1
        rotator.reload_if_changed()
        assert len(shown) == 2

    def test_no_connection_waits_for_the_api_server(self, api, tmp_path, now, shown, monkeypatch):
        """What is new is published first, by the loop, which is woken; then it is shown."""
        clock = [1000.0]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])
        signers = [new_signer(START, 90 * DAY) for _ in range(2)]

        def put(signer: Any) -> None:
            serving = new_serving(signer, NAMES, START, DAY)
            for name, content in (("tls.crt", serving.cert), ("ca.crt", signer.cert)):
                (tmp_path / name).write_bytes(certs_pem([content]))
            (tmp_path / "tls.key").write_bytes(key_pem(serving.key))
            (tmp_path / "tls.key").chmod(0o600)

        put(signers[0])
        rotator = self.rotator(ExternalDirectory(tmp_path), shown, now, configurations=WebhookConfigurations(api))
        rotator.reconcile_once()
        before = api.requests.copy()
        put(signers[1])
        clock[0] += 1
        rotator.reload_if_changed()
        assert (api.requests, len(shown), rotator._requested.is_set()) == (before, 1, True)

        rotator.reconcile_once()

        assert len(shown) == 2
        assert set(api.published) == {certs_pem(ordered([signer.cert for signer in signers]))}

    def test_a_look_that_fails_is_counted(self, tmp_path, now, shown, monkeypatch):
        events: list[tuple[str, str]] = []
        rotator = self.rotator(ExternalDirectory(tmp_path), shown, now, on_event=lambda *event: events.append(event))

        def fail(*_: object) -> bool:
            raise OSError(5, "input/output error")

        monkeypatch.setattr(ExternalDirectory, "stale", fail)
        rotator.reload_if_changed()

        assert events == [("error", "storage")]


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
            Directory(tmp_path), DAILY, set_certificate=front.set_certificate, clock=ServerClock(now, now.monotonic)
        )
        rotator.reconcile()
        first = front.served
        clock = [time.monotonic() + 2]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])
        directory = Directory(tmp_path)
        loaded = directory.load()
        state = parse(loaded.data, {"rotate": "serving/1"})
        step = plan(state, Observation(), now.now, DAILY)
        assert directory.save(render(perform(step, state, Observation(), now.now, DAILY)), {}, loaded.version)

        in_round, over = threading.Event(), threading.Event()

        def make_keys() -> None:
            with rotator._lock:
                in_round.set()
                over.wait()

        round_, connection = (
            threading.Thread(target=each, daemon=True) for each in (make_keys, rotator.reload_if_changed)
        )
        round_.start()
        in_round.wait()
        connection.start()
        connection.join(10)
        assert not connection.is_alive(), "connections do not wait for a round"
        assert front.served == first
        over.set()
        round_.join()

        rotator.reload_if_changed()

        assert front.served != first

    def test_half_a_file(self, tmp_path, now):
        front = TlsContextProvider()
        rotator = Rotator(
            Directory(tmp_path), DAILY, set_certificate=front.set_certificate, clock=ServerClock(now, now.monotonic)
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
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])
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
            Directory(tmp_path), replace(DAILY, check_interval=HOUR), set_certificate=front.set_certificate
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


def test_no_key_in_any_log(api, now, caplog, tmp_path):
    """The whole debug output of bootstrap, renewals, a rotation, damage and errors: no PEM, no key."""
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
    api.edit({"ca.key": api.state.next.key and key_pem(api.state.next.key) if api.state.next else b"x"})
    replica.settle()
    remember()
    api.down = True
    replica.settle()
    rotator = Rotator(Directory(tmp_path), DAILY, set_certificate=lambda *_: (_ for _ in ()).throw(ValueError("no")))
    rotator.reconcile()

    told = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records) + caplog.text
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
