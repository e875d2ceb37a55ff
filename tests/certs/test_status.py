"""The description of a store."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.certs.world import DAILY, DAY, HOUR, NAMES, START, FakeApi, Replica, Time, pem
from virt_admit_certs.certificates import new_signer, sha256
from virt_admit_certs.keys import key_pem
from virt_admit_certs.plan import Observation, upcoming
from virt_admit_certs.schedule import parse_settings
from virt_admit_certs.state import CertificateState, parse, render
from virt_admit_certs.status import StoreStatus, status
from virt_admit_certs.steps import perform
from virt_admit_certs.webhook_configurations import WebhookConfigurations

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


def told(api: FakeApi, **options: object) -> StoreStatus:
    return status(
        api.state, api.time.now, DAILY, configurations=WebhookConfigurations(api).read(), **options
    )


class TestStatus:
    def test_everything_is_fine(self, api):
        found = told(api)
        state = api.state

        assert found.faults == ()
        assert found.phase == "steady"
        assert found.signer.sha256 == sha256(state.signer.cert)
        assert found.serving.names == NAMES
        assert (found.serving.not_before, found.serving.not_after) == (
            "2025-12-31T23:00:00Z",
            "2026-01-03T00:00:00Z",
        )
        assert found.next is None
        assert [cert.sha256 for cert in found.bundle] == [found.signer.sha256]
        assert (found.step.name, found.step.at, found.step.seconds) == (
            "renew",
            "2026-01-02T00:00:00Z",
            86400,
        )
        assert [
            (entry.configuration[:5], entry.name, entry.injected) for entry in found.entries
        ] == [
            ("Valid", "0.virt-admit.io", True),
            ("Valid", "1.virt-admit.io", True),
            ("Mutat", "0.virt-admit.io", True),
            ("Mutat", "1.virt-admit.io", True),
        ]

    def test_as_json_and_as_text(self, api, now):
        api.edit(notes={"rotate": "signer/1"})
        replica = Replica(api)
        replica.settle()
        now.now += DAY
        found = told(api, clock_offset=-90.0)

        data = json.loads(json.dumps(found.as_json()))
        assert data["version"] == 1
        assert data["serving"]["names"] == list(NAMES)
        assert data["step"]["seconds"] == 0
        assert data["entries"][0]["injected"] is True
        text = found.as_text()
        for part in (
            "phase      announced\n",
            (
                "signer     CN=virt-admit signer 1767225600, 2025-12-31T23:00:00Z to "
                "2026-01-31T00:00:00Z\n"
            ),
            f"           sha256 {found.serving.sha256}\n",
            f"           names {', '.join(NAMES)}\n",
            "next       CN=virt-admit signer",
            "bundle     2 signers\n",
            "next step  promote now: the announced signer has spread\n",
            "webhook    MutatingWebhookConfiguration 1.virt-admit.io carries the bundle\n",
            "clock      the API server is -90 s from this machine\n",
        ):
            assert part in text
        assert "attention" not in text

    def test_no_private_key_in_it(self, api):
        api.edit(notes={"rotate": "signer/1"})
        Replica(api).settle()
        state = api.state
        everything = told(api).as_text() + json.dumps(told(api).as_json()) + repr(told(api))

        assert "PRIVATE" not in everything
        for pair in (state.signer, state.serving, state.next):
            assert not any(line in everything for line in key_pem(pair.key).decode().splitlines())

    def test_nothing_stored(self, now):
        found = status(CertificateState(), START, DAILY)

        assert (found.phase, found.signer, found.serving) == ("empty", None, None)
        assert found.step.name == "bootstrap"
        assert "signer     none\nserving    none\n" in found.as_text()

    def test_faults_of_the_store(self, now):
        assert status(parse({}), START, DAILY).faults == (
            "ca.crt: missing",
            "ca.key: missing",
            "tls.crt: missing",
            "tls.key: missing",
        )

    def test_a_lost_bundle(self, api):
        api.configurations["MutatingWebhookConfiguration"]["webhooks"][1]["clientConfig"][
            "caBundle"
        ] = "eA=="

        found = told(api)

        assert found.faults == (
            "MutatingWebhookConfiguration 1.virt-admit.io does not carry the bundle",
        )
        assert [entry.injected for entry in found.entries] == [True, True, True, False]
        assert "attention  MutatingWebhookConfiguration 1.virt-admit.io does not" in found.as_text()
        assert found.as_text().count("MutatingWebhookConfiguration 1.virt-admit.io") == 1

    @pytest.mark.parametrize(
        ("after", "faults"),
        [
            (24 * HOUR, []),
            (36 * HOUR, []),
            (36 * HOUR + MINUTE, ["the serving cert expires in 11 hours and has not been renewed"]),
            (
                47 * HOUR + 59 * MINUTE,
                ["the serving cert expires in 60 seconds and has not been renewed"],
            ),
            (48 * HOUR, ["the serving cert has expired at 2026-01-03T00:00:00Z"]),
            (
                570 * HOUR,
                [
                    "the serving cert has expired at 2026-01-03T00:00:00Z",
                    "the signer expires in 6 days and has not been renewed",
                ],
            ),
        ],
    )
    def test_what_ends(self, api, now, after, faults):
        now.now += after
        assert list(told(api).faults) == faults

    def test_a_schedule_that_renews_late_is_no_fault(self, now):
        late = parse_settings({"profile": "kubevirt"}, names=NAMES)
        step, _ = upcoming(CertificateState(), Observation(), START, late)
        state = perform(step, CertificateState(), Observation(), START, late)

        # five of 24 hours left, due at 4h48m
        assert status(state, START + 19 * HOUR, late).faults == ()
        assert status(state, START + 20 * HOUR, late).faults != ()

    def test_other_names(self, api):
        wanted = replace(DAILY, names=("other.svc",))

        [fault] = status(api.state, START, wanted).faults

        assert fault == f"the serving cert is for {', '.join(NAMES)}; wanted is other.svc"

    def test_external(self, api, now):
        data = {
            key: value
            for key, value in render(api.state).items()
            if key in ("tls.crt", "tls.key", "ca.crt")
        }

        found = status(parse(data), START, DAILY, external=True)
        assert (found.phase, found.signer, found.step, found.faults) == ("external", None, None, ())
        late = status(parse(data), START + 37 * HOUR, DAILY, external=True)
        assert late.faults == ("the serving cert expires in 11 hours and has not been renewed",)
        assert status(parse({}), START, DAILY, external=True).faults == (
            "tls.crt: missing",
            "tls.key: missing",
        )

    def test_an_external_authority_may_have_others_beside_it(self, api, now):
        before = new_signer(now(), DAY)
        state = api.state
        for published, injected in (
            (pem(before.cert), False),
            (pem(before.cert, *state.bundle), True),
        ):
            api.overwrite_bundles(published)
            assert {entry.injected for entry in told(api, external=True).entries} == {injected}
