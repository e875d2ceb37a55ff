"""The plan and its steps: every row of the table, every fault, and no storm under any setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.certs.world import DAILY, DAY, HOUR, NAMES, SECOND, START, pem, trusts
from virt_admit_certs.certificates import issued_by, new_serving, new_signer, timestamp
from virt_admit_certs.keys import kind_of
from virt_admit_certs.names import name_constraints_of, names_of, permits
from virt_admit_certs.plan import STEPS, Observation, RotationStep, phase, plan, renew_at, requested_rotation, upcoming
from virt_admit_certs.schedule import (
    RotationSettings,
    parse_settings,
)
from virt_admit_certs.state import CertificateState, ordered, parse, render
from virt_admit_certs.steps import perform, revoke

MINUTE = timedelta(minutes=1)

RENEW = START + 24 * HOUR

ANNOUNCE = START + 360 * HOUR

INJECTED = Observation(injected=True)

NOT_INJECTED = Observation(injected=False)


def do(
    state: CertificateState, at: datetime, seen: Observation = INJECTED, settings: RotationSettings = DAILY
) -> CertificateState:
    """Do the step that is due, through what a store would keep of it."""
    step = plan(state, seen, at, settings)
    assert step is not None
    after = perform(step, state, seen, at, settings)
    return parse(render(after), after.notes)


def name(
    state: CertificateState, at: datetime, seen: Observation = INJECTED, settings: RotationSettings = DAILY
) -> str | None:
    step = plan(state, seen, at, settings)
    return step.name if step else None


def run(state: CertificateState, at: datetime, until: datetime, seen: Observation = INJECTED) -> CertificateState:
    """Do everything that comes due, when it comes due."""
    while (following := upcoming(state, seen, at, DAILY)) and following[1] <= until:
        at = following[1]
        state = do(state, at, seen)
    return state


STEADY = do(CertificateState(), START)

FRESH = replace(STEADY, serving=new_serving(STEADY.signer, NAMES, ANNOUNCE - 12 * HOUR, 48 * HOUR))

ANNOUNCED = do(FRESH, ANNOUNCE)

OVERLAP = do(ANNOUNCED, ANNOUNCE + MINUTE)

RETIRE = ANNOUNCE + MINUTE + 48 * HOUR + 5 * MINUTE

FADED = run(OVERLAP, ANNOUNCE + MINUTE, RETIRE - SECOND)

SIGNER_END = START + 720 * HOUR


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
    ("nothing stored, remembered", CertificateState(), START, Observation(remembered=STEADY), "restore"),
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
    ("remembered for less", CertificateState(), SIGNER_END - MINUTE, Observation(remembered=STEADY), "bootstrap"),
    ("remembered from the future", CertificateState(), START - DAY, Observation(remembered=STEADY), "bootstrap"),
    ("signer's last second", STEADY, SIGNER_END - SECOND, INJECTED, "announce"),
    ("signer expired", STEADY, SIGNER_END, INJECTED, "bootstrap"),
    ("signer five minutes early", STEADY, START - HOUR - 5 * MINUTE, INJECTED, None),
    ("signer from the future", STEADY, START - HOUR - 5 * MINUTE - SECOND, INJECTED, "bootstrap"),
    ("just begun", STEADY, START, INJECTED, None),
    ("just begun, nobody injected", STEADY, START, NOT_INJECTED, None),
    ("a second before renewal", STEADY, RENEW - SECOND, INJECTED, None),
    ("renewal", STEADY, RENEW, INJECTED, "renew"),
    ("renewal, nobody injected", STEADY, RENEW, NOT_INJECTED, "renew"),
    ("serving cert expired", STEADY, START + 48 * HOUR, INJECTED, "reissue"),
    ("a second before the announcement", FRESH, ANNOUNCE - SECOND, INJECTED, None),
    ("announcement", FRESH, ANNOUNCE, INJECTED, "announce"),
    ("announcement, nobody injected", FRESH, ANNOUNCE, NOT_INJECTED, "announce"),
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
    ("retirement, nobody injected", FADED, RETIRE, NOT_INJECTED, "retire"),
]


@pytest.mark.parametrize(("state", "now", "seen", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(state, now, seen, expected):
    assert name(state, now, seen) == expected


def noted(state: CertificateState, **notes: str) -> CertificateState:
    return replace(state, notes={**state.notes, **{key.replace("_", "-"): value for key, value in notes.items()}})


def without(state: CertificateState, note: str) -> CertificateState:
    return replace(state, notes={key: value for key, value in state.notes.items() if key != note})


class TestNotes:
    @pytest.mark.parametrize(
        "value", [None, "", "yesterday", "2026-01-16", "2026-01-16T00:00:00", "3026-01-01T00:00:00Z"]
    )
    def test_an_unknown_promotion_starts_the_wait_over(self, value):
        now = ANNOUNCE + HOUR
        state = without(OVERLAP, "promoted-at") if value is None else noted(OVERLAP, promoted_at=value)

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
        state = without(ANNOUNCED, "announced-at") if value is None else noted(ANNOUNCED, announced_at=value)

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


class TestFaults:
    NOW = ANNOUNCE + MINUTE

    def damaged(self, state: CertificateState, key: str, value: bytes = b"garbage") -> CertificateState:
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
                    assert not [fault for fault in broken.faults if not fault.startswith("cross.crt")]
                    assert (
                        trusts(pem(*state.bundle), (broken.serving.cert, *broken.chain), now) or "ca." in first + second
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


class TestBoundSigners:
    ON = replace(DAILY, name_constraints=True)
    MORE = replace(ON, names=(*NAMES, "more.example"))

    def test_from_the_first_one_on(self):
        state = do(CertificateState(), START, settings=self.ON)

        assert name_constraints_of(state.signer.cert)
        assert plan(state, INJECTED, START, self.ON) is None
        assert plan(state, INJECTED, START, DAILY) is None  # switched off: the next signer is free

    def test_switched_on_the_next_signer_is_bound(self):
        state = do(STEADY, START, settings=self.ON)
        assert name_constraints_of(state.next.cert)
        assert plan(state, INJECTED, START, self.ON) is None

        state = do(state, START + MINUTE, settings=self.ON)

        assert name_constraints_of(state.signer.cert)
        assert name_constraints_of(state.cross)
        assert trusts(pem(STEADY.signer.cert), (state.serving.cert, *state.chain), START + MINUTE)
        assert plan(state, INJECTED, START + MINUTE, self.ON) is None

    @pytest.mark.parametrize("switched_off", [False, True])
    def test_a_further_name_waits_for_a_signer_that_may_sign_for_it(self, switched_off):
        state = do(CertificateState(), START, settings=self.ON)
        wanted = replace(self.MORE, name_constraints=not switched_off)

        announced = do(state, START, settings=wanted)
        assert names_of(announced.serving.cert) == NAMES
        assert plan(announced, NOT_INJECTED, START + MINUTE, wanted) is None
        promoted = do(announced, START + MINUTE, settings=wanted)

        assert names_of(promoted.serving.cert) == wanted.names
        assert bool(name_constraints_of(promoted.signer.cert)) != switched_off
        assert plan(promoted, INJECTED, START + MINUTE, wanted) is None

    def test_while_it_waits_what_is_issued_is_for_the_others(self):
        state = do(CertificateState(), START, settings=self.MORE)
        other = replace(self.MORE, names=(*NAMES, "other.example"))
        announced = do(state, START, settings=other)

        assert name(announced, START, NOT_INJECTED, settings=other) == "reissue"
        reissued = do(announced, START, NOT_INJECTED, settings=other)

        assert names_of(reissued.serving.cert) == NAMES
        assert name(reissued, START, NOT_INJECTED, settings=other) is None

    def test_fewer_names_need_no_other_signer(self):
        state = do(CertificateState(), START, settings=self.MORE)

        assert name(state, START, settings=self.ON) == "reissue"
        state = do(state, START, settings=self.ON)

        assert names_of(state.serving.cert) == NAMES
        assert plan(state, INJECTED, START, self.ON) is None

    def test_without_any_name_in_common_it_signs_all_the_same(self):
        """Nobody trusts that, but the certificate says what is wrong, and the next signer is announced."""
        state = do(CertificateState(), START, settings=self.ON)
        moved = replace(self.ON, names=("elsewhere.svc",))

        state = do(do(state, START, settings=moved), START, NOT_INJECTED, settings=moved)

        assert names_of(state.serving.cert) == ("elsewhere.svc",)
        assert permits(state.next.cert, "elsewhere.svc")


class TestSteps:
    def test_bootstrap_keeps_what_others_still_show(self):
        left = parse({"ca.crt": pem(*OVERLAP.bundle)})
        published = (new_signer(START, 60 * DAY).cert, new_signer(START, HOUR).cert)
        now = ANNOUNCE + HOUR

        after = do(left, now, Observation(published=published))

        assert set(after.bundle) == {after.signer.cert, *OVERLAP.bundle, published[0]}
        assert after.notes["promoted-at"] == timestamp(now)
        assert name(after, now + 48 * HOUR + 5 * MINUTE - SECOND) != "retire"
        assert run(after, now, now + 48 * HOUR + 5 * MINUTE).bundle == (after.signer.cert,)

    def test_bootstrap_over_nothing_needs_no_wait(self):
        assert STEADY.bundle == (STEADY.signer.cert,)
        assert "promoted-at" not in STEADY.notes
        assert STEADY.chain == ()

    def test_restore(self):
        now = ANNOUNCE + 2 * MINUTE
        after = do(CertificateState(), now, Observation(remembered=OVERLAP))

        assert after.signer.cert == OVERLAP.signer.cert
        assert set(after.bundle) == {*OVERLAP.bundle, after.next.cert}
        assert after.chain == OVERLAP.chain
        assert after.serving.cert != OVERLAP.serving.cert
        assert trusts(pem(*OVERLAP.bundle), (after.serving.cert,), now)
        assert name(after, now + MINUTE) == "promote"

    def test_promote(self):
        chain = (OVERLAP.serving.cert, *OVERLAP.chain)
        now = ANNOUNCE + MINUTE

        assert OVERLAP.signer.cert == ANNOUNCED.next.cert
        assert OVERLAP.bundle == ANNOUNCED.bundle
        assert (OVERLAP.next, OVERLAP.announced) == (None, False)
        assert OVERLAP.cross == OVERLAP.chain[0]
        for trusted in (FRESH.bundle, ANNOUNCED.bundle, (OVERLAP.signer.cert,)):
            assert trusts(pem(*trusted), chain, now)
        assert OVERLAP.notes["promoted-at"] == timestamp(now)
        assert "announced-at" not in OVERLAP.notes

    def test_announce_leaves_what_is_served_alone(self):
        before, after = render(FRESH), render(ANNOUNCED)

        assert {key: after[key] for key in ("tls.crt", "tls.key", "ca.key")} == {
            key: before[key] for key in ("tls.crt", "tls.key", "ca.key")
        }
        assert set(ANNOUNCED.bundle) == {FRESH.signer.cert, ANNOUNCED.next.cert}

    def test_retire_keeps_the_serving_cert_and_drops_the_cross_certificate(self):
        before = FADED
        after = do(before, RETIRE)

        assert after.bundle == (OVERLAP.signer.cert,)
        assert after.serving.cert == before.serving.cert
        assert (before.chain, after.chain, after.cross) == ((before.cross,), (), None)
        assert "promoted-at" not in after.notes

    def test_renewed_serving_certs_carry_the_cross_certificate(self):
        after = do(OVERLAP, ANNOUNCE + DAY + MINUTE)

        assert after.chain == (OVERLAP.cross,)
        assert after.serving.cert != OVERLAP.serving.cert

    def test_older_signers_do_not_hold_up_an_announcement(self):
        state = noted(OVERLAP, rotate="signer/1")

        after = do(state, ANNOUNCE + 2 * MINUTE)

        assert len(after.bundle) == 3
        assert name(after, ANNOUNCE + 3 * MINUTE) == "promote"
        third = do(after, ANNOUNCE + 3 * MINUTE)
        assert set(third.bundle) == set(after.bundle)
        assert issued_by(third.cross, OVERLAP.signer.cert)

    def test_eight_signers_are_enough(self):
        at, state = START, STEADY
        for number in range(20):
            state = noted(state, rotate=f"signer/{number}")
            at += 2 * MINUTE
            if name(state, at) is None:
                break
            state = do(do(state, at), at + MINUTE)

        assert len(state.bundle) == 8
        assert requested_rotation(state) == "signer"
        later = at + 49 * HOUR
        assert name(state, later) == "retire"
        assert name(do(state, later), later) == "announce"

    def test_expired_others_leave_at_once(self):
        now = START + HOUR
        state = replace(STEADY, bundle=ordered([STEADY.signer.cert, new_signer(START, HOUR).cert]))

        assert name(state, now - SECOND) == "note"
        state = do(state, now - SECOND)
        assert name(state, now - SECOND) is None
        assert name(state, now) == "retire"

    def test_revoke_trusts_nothing_else(self):
        now = ANNOUNCE + HOUR
        after = revoke(noted(OVERLAP, rotate="signer/1"), now, DAILY)
        read = parse(render(after), after.notes)

        assert read.bundle == (after.signer.cert,)
        assert after.signer.cert not in OVERLAP.bundle
        assert (read.chain, read.cross, read.next) == ((), None, None)
        assert trusts(pem(*read.bundle), (read.serving.cert,), now)
        assert name(read, now) is None
        assert requested_rotation(read) is None

    def test_a_step_that_the_state_does_not_allow_is_an_error(self):
        with pytest.raises(LookupError):
            perform(RotationStep("promote", ""), STEADY, INJECTED, START, DAILY)


class TestClippedServing:
    """A serving cert cut short by its signer's end must not be renewed in every round."""

    @pytest.mark.parametrize("left", [timedelta(minutes=1), timedelta(minutes=30), 3 * HOUR, 30 * HOUR])
    def test_renewals_are_a_tenth_of_a_life_apart(self, left):
        now = SIGNER_END - left
        state = replace(STEADY, serving=new_serving(STEADY.signer, NAMES, now, DAILY.serving_duration))
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


@st.composite
def schedules(draw: Callable[..., int]) -> RotationSettings:
    """RotationSettings that are accepted, most of them near a limit."""
    serving = draw(st.integers(11, 3000))
    serving_before = draw(st.one_of(st.integers(10, serving - 1), st.sampled_from([10, serving - 1])))
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


@hypothesis_settings(max_examples=40, deadline=None, derandomize=True)
@given(schedules(), st.data())
def test_under_all_settings_nothing_expires_and_nothing_storms(settings, data):
    """Rounds a third of the shortest renew-before apart, or closer, never show the expired.

    Not the whole of it: younger than a tenth of its life no serving cert is renewed, one that ends with its signer lives
    shorter, and a new signer is announced in one round and promoted in another.
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
        assert age >= max(MINUTE, (cert.not_valid_after_utc - cert.not_valid_before_utc - HOUR) / 10)
