"""Which certificate the listener serves, and when the process is ready."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.certs.world import DAY, HOUR, KINDS, NAMES, START, FakeApi, Replica, Time
from virt_admit_certs import rotate
from virt_admit_certs.certificates import new_serving, new_signer
from virt_admit_certs.state import CertificateState, render

MINUTE = timedelta(minutes=1)


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def api(now) -> FakeApi:
    api = FakeApi(now)
    api.register()
    return api


class TestGuard:
    def test_another_signer_is_shown_only_when_trusted(self, api, now):
        """A person replaced the Secret by one that knows nothing of us,
        and the bundle cannot be published.
        """
        replica = Replica(api)
        replica.settle()
        shown = replica.chain
        foreign = new_signer(START, 30 * DAY)
        state = CertificateState(
            signer=foreign,
            bundle=(foreign.cert,),
            serving=new_serving(foreign, NAMES, START, 2 * DAY),
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
        monkeypatch.setattr(rotate, "time", SimpleNamespace(monotonic=lambda: later))
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
