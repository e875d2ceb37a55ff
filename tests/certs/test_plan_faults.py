"""The plan repairs every fault of the stored certificates, and every pair of faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from tests.certs.plan_states import (
    ANNOUNCE,
    ANNOUNCED,
    INJECTED,
    MINUTE,
    NOT_INJECTED,
    OVERLAP,
    RETIRE,
    STEADY,
    do,
    name,
    noted,
)
from tests.certs.world import DAILY, DAY, HOUR, NAMES, SECOND, START, pem, trusts
from virt_admit_certs.certificates import new_serving, new_signer, timestamp
from virt_admit_certs.keys import kind_of
from virt_admit_certs.plan import Observation, RotationStep, phase, plan, upcoming
from virt_admit_certs.state import CertificateState, ordered, parse, render


class TestFaults:
    NOW = ANNOUNCE + MINUTE

    def damaged(
        self, state: CertificateState, key: str, value: bytes = b"garbage"
    ) -> CertificateState:
        return parse({**render(state), key: value}, state.notes)

    @pytest.mark.parametrize(
        ("key", "steady", "announced", "overlap"),
        [
            ("ca.crt", "bootstrap", "bootstrap", "bootstrap"),
            ("ca.key", "bootstrap", "bootstrap", "bootstrap"),
            ("tls.crt", "reissue", "reissue", "reissue"),
            ("tls.key", "reissue", "reissue", "reissue"),
            ("next.crt", None, "announce", None),
            ("next.key", None, "announce", None),
            ("cross.crt", None, None, None),
        ],
    )
    def test_one(self, key, steady, announced, overlap):
        def damaged_step(state: CertificateState, now: datetime) -> str | None:
            return name(self.damaged(state, key) if key in render(state) else state, now)

        assert damaged_step(STEADY, START) == steady
        assert damaged_step(ANNOUNCED, ANNOUNCE) == announced
        assert damaged_step(OVERLAP, ANNOUNCE + MINUTE) == overlap

    def test_every_pair_of_faults_heals(self):
        for state, now in ((ANNOUNCED, ANNOUNCE), (OVERLAP, ANNOUNCE + MINUTE)):
            data = render(state)
            for first in data:
                for second in data:
                    broken = parse({**data, first: b"garbage", second: b""}, state.notes)
                    seen = Observation(remembered=state)
                    steps = 0
                    while plan(broken, seen, now, DAILY):
                        broken = do(broken, now, seen)
                        steps += 1
                        assert steps <= 4, (first, second)
                    assert not [
                        fault for fault in broken.faults if not fault.startswith("cross.crt")
                    ]
                    assert (
                        trusts(pem(*state.bundle), (broken.serving.cert, *broken.chain), now)
                        or "ca." in first + second
                    )

    def test_signer_and_serving_damaged_at_once(self):
        broken = parse({**render(STEADY), "ca.key": b"", "tls.key": b""}, STEADY.notes)
        after = do(broken, START)

        assert phase(after) == "overlap"  # a new signer, and the old one is still trusted
        assert STEADY.signer.cert in after.bundle
        assert name(after, START) is None

    @pytest.mark.parametrize("now", [ANNOUNCE, RETIRE])
    def test_a_damaged_successor_is_announced_anew_even_long_after_a_promotion(self, now):
        broken = noted(self.damaged(ANNOUNCED, "next.key"), promoted_at=timestamp(START))

        after = do(broken, now)

        assert after.next.cert != ANNOUNCED.next.cert
        assert after.next.cert in after.bundle
        assert after.notes["announced-at"] == timestamp(now)

    def test_an_expired_successor_is_announced_anew(self):
        late = ANNOUNCE + 720 * HOUR
        signer = new_signer(late, 30 * DAY)
        state = replace(ANNOUNCED, signer=signer, bundle=ordered([*ANNOUNCED.bundle, signer.cert]))
        state = replace(state, serving=new_serving(signer, NAMES, late, 2 * DAY))

        assert name(state, late - SECOND, NOT_INJECTED) is None
        after = do(state, late, NOT_INJECTED)

        assert after.next.cert not in ANNOUNCED.bundle
        assert ANNOUNCED.next.cert not in after.bundle  # expired

    def test_a_successor_that_is_not_in_the_bundle_is_never_promoted(self):
        broken = self.damaged(ANNOUNCED, "ca.crt", pem(ANNOUNCED.signer.cert))

        assert name(broken, ANNOUNCE + MINUTE) == "announce"

    def test_a_serving_cert_of_another_signer(self):
        foreign = replace(STEADY, serving=new_serving(new_signer(START, DAY), NAMES, START, HOUR))

        assert plan(foreign, INJECTED, START, DAILY) == RotationStep(
            "reissue", "the serving cert is not signed by the signer"
        )

    def test_a_serving_cert_from_the_future(self):
        late = replace(STEADY, serving=new_serving(STEADY.signer, NAMES, START + 2 * HOUR, HOUR))

        assert name(late, START) == "reissue"

    @pytest.mark.parametrize("names", [NAMES[:1], (*NAMES, "more.example"), ("other.example",)])
    def test_other_names_are_wanted(self, names):
        wanted = replace(DAILY, names=names)
        after = do(STEADY, START, settings=wanted)

        assert name(STEADY, START, settings=wanted) == "reissue"
        assert name(after, START, settings=wanted) is None
        assert after.signer.cert == STEADY.signer.cert

    def test_the_order_of_names_does_not_matter(self):
        assert name(STEADY, START, settings=replace(DAILY, names=NAMES[::-1])) is None

    def test_another_kind_of_key_is_wanted(self):
        wanted = replace(DAILY, key="p384")
        state, at, steps = STEADY, START, []
        for _ in range(3):
            step, at = upcoming(state, INJECTED, at, wanted)
            steps.append(step.name)
            state = do(state, at, settings=wanted)

        assert steps[:2] == ["announce", "promote"]
        assert kind_of(state.signer.key) == kind_of(state.serving.key) == "p384"
