"""The reconcile loop under every fault of the design: what is served is trusted,
or the next round repairs it.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from tests.certs.world import DAY, HOUR, NAMES, SECOND, START, FakeApi, Replica, Time, pem
from virt_admit_certs.certificates import new_serving, new_signer
from virt_admit_certs.state import CertificateState, render

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
        assert (replica.steps("restore"), replica.steps("reissue")) == (
            (1, 0) if key.startswith("ca.") else (0, 1)
        )

    def test_secret_deleted_and_everybody_restarted(self, api, now, replica):
        """No replica remembers the signer, but the configurations still carry it,
        and old replicas still show it.
        """
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

        # the first was its beginning
        assert (replica.steps("restore"), replica.steps("bootstrap")) == (0, 2)
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
            (setattr(api, "before", lambda _verb: None), other.settle())
            if verb == "patch secret"
            else None
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

    def test_a_foreign_authority_appended_to_the_bundle_leaves_after_its_wait(
        self, api, now, replica
    ):
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
