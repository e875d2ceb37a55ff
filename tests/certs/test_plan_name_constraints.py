"""Signers that are limited to names, and names that change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.certs.plan_states import INJECTED, MINUTE, NOT_INJECTED, STEADY, do, name
from tests.certs.world import DAILY, NAMES, START, pem, trusts
from virt_admit_certs.names import name_constraints_of, names_of, permits
from virt_admit_certs.plan import plan
from virt_admit_certs.state import CertificateState


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
        """No client trusts that, but the certificate says what is wrong,
        and the next signer is announced.
        """
        state = do(CertificateState(), START, settings=self.ON)
        moved = replace(self.ON, names=("elsewhere.svc",))

        state = do(do(state, START, settings=moved), START, NOT_INJECTED, settings=moved)

        assert names_of(state.serving.cert) == ("elsewhere.svc",)
        assert permits(state.next.cert, "elsewhere.svc")
