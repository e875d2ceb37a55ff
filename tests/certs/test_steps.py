"""What each step of the rotation changes, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.certs.plan_states import (
    ANNOUNCE,
    ANNOUNCED,
    FADED,
    FRESH,
    INJECTED,
    MINUTE,
    OVERLAP,
    RETIRE,
    STEADY,
    do,
    name,
    noted,
    run,
)
from tests.certs.world import DAILY, DAY, HOUR, SECOND, START, pem, trusts
from virt_admit_certs.certificates import issued_by, new_signer, timestamp
from virt_admit_certs.plan import Observation, RotationStep, requested_rotation
from virt_admit_certs.state import CertificateState, ordered, parse, render
from virt_admit_certs.steps import perform, revoke


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
