"""The plan: every row of the table, notes, and forecasts that come true."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from tests.certs.plan_states import (
    ANNOUNCE,
    ANNOUNCED,
    FADED,
    FRESH,
    INJECTED,
    MINUTE,
    NOT_INJECTED,
    OVERLAP,
    RENEW,
    RETIRE,
    SIGNER_END,
    STEADY,
    do,
    name,
    noted,
    without,
)
from tests.certs.world import DAILY, DAY, HOUR, SECOND, START
from tests.for_each import for_each
from virt_admit_certs.certificates import timestamp
from virt_admit_certs.plan import STEPS, Observation, RotationStep, phase, plan, renew_at, upcoming
from virt_admit_certs.state import CertificateState, render


def test_the_states_of_this_file_are_what_they_are_called():
    assert [phase(s) for s in (CertificateState(), STEADY, FRESH, ANNOUNCED, OVERLAP)] == [
        "empty",
        "steady",
        "steady",
        "announced",
        "overlap",
    ]
    assert not any(s.faults for s in (STEADY, FRESH, ANNOUNCED, OVERLAP))


ROWS: list[tuple[str, CertificateState, datetime, Observation, str | None]] = [
    # what, state, now, seen, the step that is due
    ("nothing stored", CertificateState(), START, INJECTED, "bootstrap"),
    (
        "nothing stored, remembered",
        CertificateState(),
        START,
        Observation(remembered=STEADY),
        "restore",
    ),
    (
        "nothing stored, no signer remembered",
        CertificateState(),
        START,
        Observation(remembered=CertificateState()),
        "bootstrap",
    ),
    (
        "remembered for a minute",
        CertificateState(),
        SIGNER_END - MINUTE - SECOND,
        Observation(remembered=STEADY),
        "restore",
    ),
    (
        "remembered for less",
        CertificateState(),
        SIGNER_END - MINUTE,
        Observation(remembered=STEADY),
        "bootstrap",
    ),
    (
        "remembered from the future",
        CertificateState(),
        START - DAY,
        Observation(remembered=STEADY),
        "bootstrap",
    ),
    ("signer's last second", STEADY, SIGNER_END - SECOND, INJECTED, "announce"),
    ("signer expired", STEADY, SIGNER_END, INJECTED, "bootstrap"),
    ("signer five minutes early", STEADY, START - HOUR - 5 * MINUTE, INJECTED, None),
    ("signer from the future", STEADY, START - HOUR - 5 * MINUTE - SECOND, INJECTED, "bootstrap"),
    ("just begun", STEADY, START, INJECTED, None),
    ("just begun, never injected", STEADY, START, NOT_INJECTED, None),
    ("a second before renewal", STEADY, RENEW - SECOND, INJECTED, None),
    ("renewal", STEADY, RENEW, INJECTED, "renew"),
    ("renewal, never injected", STEADY, RENEW, NOT_INJECTED, "renew"),
    ("serving cert expired", STEADY, START + 48 * HOUR, INJECTED, "reissue"),
    ("a second before the announcement", FRESH, ANNOUNCE - SECOND, INJECTED, None),
    ("announcement", FRESH, ANNOUNCE, INJECTED, "announce"),
    ("announcement, never injected", FRESH, ANNOUNCE, NOT_INJECTED, "announce"),
    ("announcement before renewal", STEADY, ANNOUNCE, INJECTED, "announce"),
    ("announced", ANNOUNCED, ANNOUNCE, INJECTED, None),
    ("a second before promotion", ANNOUNCED, ANNOUNCE + MINUTE - SECOND, INJECTED, None),
    ("promotion", ANNOUNCED, ANNOUNCE + MINUTE, INJECTED, "promote"),
    ("promotion waits for the bundle", ANNOUNCED, ANNOUNCE + MINUTE, NOT_INJECTED, None),
    ("renewal while promotion waits", ANNOUNCED, ANNOUNCE + DAY, NOT_INJECTED, "renew"),
    ("promotion before renewal", ANNOUNCED, ANNOUNCE + DAY, INJECTED, "promote"),
    ("overlap", OVERLAP, ANNOUNCE + MINUTE, INJECTED, None),
    ("renewal during the overlap", OVERLAP, ANNOUNCE + DAY + MINUTE, INJECTED, "renew"),
    ("a second before retirement", FADED, RETIRE - SECOND, INJECTED, None),
    ("retirement", FADED, RETIRE, INJECTED, "retire"),
    ("retirement, never injected", FADED, RETIRE, NOT_INJECTED, "retire"),
]


@for_each("state, now, seen, expected", [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(state, now, seen, expected):
    assert name(state, now, seen) == expected


class TestNotes:
    @pytest.mark.parametrize(
        "value",
        [None, "", "yesterday", "2026-01-16", "2026-01-16T00:00:00", "3026-01-01T00:00:00Z"],
    )
    def test_an_unknown_promotion_starts_the_wait_over(self, value):
        now = ANNOUNCE + HOUR
        state = (
            without(OVERLAP, "promoted-at") if value is None else noted(OVERLAP, promoted_at=value)
        )

        assert name(state, now) == "note"
        after = do(state, now)
        assert after.notes["promoted-at"] == timestamp(now)
        assert render(after) == render(state)
        assert name(after, now) is None

    def test_a_promotion_slightly_in_the_future_is_another_replicas_clock(self):
        now = ANNOUNCE + HOUR
        assert name(noted(OVERLAP, promoted_at=timestamp(now + 5 * MINUTE)), now) is None
        assert name(noted(OVERLAP, promoted_at=timestamp(now + 5 * MINUTE + SECOND)), now) == "note"

    @pytest.mark.parametrize("value", [None, "", "soon", "3026-01-01T00:00:00Z"])
    def test_an_unknown_announcement_is_read_from_the_certificate(self, value):
        state = (
            without(ANNOUNCED, "announced-at")
            if value is None
            else noted(ANNOUNCED, announced_at=value)
        )

        assert name(state, ANNOUNCE + MINUTE - SECOND) is None
        assert name(state, ANNOUNCE + MINUTE) == "promote"

    @pytest.mark.parametrize(
        ("rotate", "done", "expected"),
        [
            ("signer/1", "", "announce"),
            ("signer/1", "signer/0", "announce"),
            ("signer/1", "signer/1", None),
            ("signer", "", "announce"),
            ("serving/1", "", "renew"),
            ("serving/1", "serving/1", None),
            ("everything/1", "", None),
            ("", "", None),
        ],
    )
    def test_requests(self, rotate, done, expected):
        state = noted(STEADY, rotate=rotate, rotate_done=done)
        assert name(state, START + SECOND) == expected
        if expected:
            after = do(state, START + SECOND)
            assert after.notes["rotate-done"] == rotate
            assert name(after, START + SECOND) is None

    def test_losing_every_note_breaks_nothing(self):
        for state, at in ((STEADY, START), (ANNOUNCED, ANNOUNCE), (OVERLAP, ANNOUNCE + MINUTE)):
            bare = replace(state, notes={})
            assert plan(bare, INJECTED, at, DAILY) in (
                None,
                RotationStep("note", "when the signer was promoted is not known"),
            )

    def test_notes_for_people(self):
        assert (OVERLAP.notes["phase"], ANNOUNCED.notes["phase"]) == ("overlap", "announced")
        assert int(OVERLAP.notes["generation"]) == int(ANNOUNCED.notes["generation"]) + 1
        assert do(noted(STEADY, generation="many"), RENEW).notes["generation"] == "1"


class TestUpcoming:
    def test_a_year_of_forecasts_comes_true(self):
        at, state, counts = START, CertificateState(), dict.fromkeys(STEPS, 0)
        while at < START + 365 * DAY:
            following = upcoming(state, INJECTED, at, DAILY)
            assert following is not None
            step, due = following
            if due > at:
                assert plan(state, INJECTED, due - SECOND, DAILY) is None
            at = due
            counts[step.name] += 1
            state = do(state, at)

        assert counts["announce"] == counts["promote"] == 24
        assert counts["retire"] in (23, 24)
        assert 330 <= counts["renew"] <= 366
        assert counts["bootstrap"] == 1
        assert counts["restore"] == counts["reissue"] == counts["note"] == 0

    def test_what_waits_for_the_bundle_has_another_next_step(self):
        step, due = upcoming(ANNOUNCED, NOT_INJECTED, ANNOUNCE + MINUTE, DAILY)

        assert step.name == "renew"
        assert due == renew_at(ANNOUNCED.serving.cert, DAILY)
