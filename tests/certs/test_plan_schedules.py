"""No rotation expires or storms under any accepted settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.certs.plan_states import (
    ANNOUNCED,
    INJECTED,
    MINUTE,
    NOT_INJECTED,
    SIGNER_END,
    STEADY,
    do,
    name,
)
from tests.certs.world import DAILY, DAY, HOUR, NAMES, SECOND, START
from virt_admit_certs.certificates import new_serving
from virt_admit_certs.plan import plan, renew_at
from virt_admit_certs.schedule import RotationSettings, parse_settings
from virt_admit_certs.state import CertificateState


class TestClippedServing:
    """A serving cert cut short by its signer's end must not be renewed in every round."""

    @pytest.mark.parametrize(
        "left", [timedelta(minutes=1), timedelta(minutes=30), 3 * HOUR, 30 * HOUR]
    )
    def test_renewals_are_a_tenth_of_a_life_apart(self, left):
        now = SIGNER_END - left
        state = replace(
            STEADY, serving=new_serving(STEADY.signer, NAMES, now, DAILY.serving_duration)
        )
        state = replace(state, next=ANNOUNCED.next, announced=True)
        renewals = []
        while now < SIGNER_END - SECOND:
            if name(state, now, NOT_INJECTED) == "renew":
                life = state.serving.cert.not_valid_after_utc - now
                renewals.append((now, life))
                state = do(state, now, NOT_INJECTED)
            now += 10 * SECOND

        assert len(renewals) <= 60
        for (earlier, life), (later, _) in pairwise(renewals):
            assert later - earlier >= max(MINUTE, life / 10) - 10 * SECOND

    def test_the_deadline_scales_with_the_life(self):
        half = new_serving(STEADY.signer, NAMES, SIGNER_END - DAY, DAILY.serving_duration).cert

        assert renew_at(STEADY.serving.cert, DAILY) == START + DAY
        assert renew_at(half, DAILY) == SIGNER_END - 12 * HOUR


@st.composite
def schedules(draw: Callable[..., int]) -> RotationSettings:
    """RotationSettings that are accepted, most of them near a limit."""
    serving = draw(st.integers(11, 3000))
    serving_before = draw(
        st.one_of(st.integers(10, serving - 1), st.sampled_from([10, serving - 1]))
    )
    signer = draw(st.integers(max(serving, 63), 9000))
    signer_before = draw(st.one_of(st.integers(62, signer - 1), st.sampled_from([62, signer - 1])))
    return parse_settings(
        {
            "serving-duration": f"{serving}m",
            "serving-renew-before": f"{serving_before}m",
            "signer-duration": f"{signer}m",
            "signer-renew-before": f"{signer_before}m",
        },
        names=NAMES[:1],
    )


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None, derandomize=True)
@given(schedules(), st.data())
def test_under_all_settings_nothing_expires_and_nothing_storms(settings, data):
    """Rounds a third of the shortest renew-before apart, or closer, never show the expired.

    Not the whole of it: younger than a tenth of its life no serving cert is renewed, one that ends
    with its signer lives shorter, and a new signer is announced in one round and promoted in
    another.
    """
    longest = min(settings.serving_renew_before, settings.signer_renew_before / 2) / 3
    at, state, renewals = START, do(CertificateState(), START, settings=settings), []
    for _ in range(60):
        while step := plan(state, INJECTED, at, settings):
            if step.name == "renew":
                renewals.append((at, state.serving.cert))
            state = do(state, at, settings=settings)
        assert state.serving.cert.not_valid_after_utc > at
        at += data.draw(st.sampled_from([longest, longest / 2, MINUTE]))
        assert state.serving.cert.not_valid_after_utc > at
        assert state.signer.cert.not_valid_after_utc > at
        assert len(state.bundle) <= 8
    for at, cert in renewals:
        age = at - cert.not_valid_before_utc - HOUR
        assert age >= max(
            MINUTE, (cert.not_valid_after_utc - cert.not_valid_before_utc - HOUR) / 10
        )
