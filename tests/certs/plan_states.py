"""States of the rotation at named moments, and the step that is due in each."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from tests.certs.world import DAILY, HOUR, NAMES, SECOND, START
from virt_admit_certs.certificates import new_serving
from virt_admit_certs.plan import Observation, plan, upcoming
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import CertificateState, parse, render
from virt_admit_certs.steps import perform

MINUTE = timedelta(minutes=1)


RENEW = START + 24 * HOUR


ANNOUNCE = START + 360 * HOUR


INJECTED = Observation(injected=True)


NOT_INJECTED = Observation(injected=False)


def do(
    state: CertificateState,
    at: datetime,
    seen: Observation = INJECTED,
    settings: RotationSettings = DAILY,
) -> CertificateState:
    """Do the step that is due, through what a store would keep of it."""
    step = plan(state, seen, at, settings)
    assert step is not None
    after = perform(step, state, seen, at, settings)
    return parse(render(after), after.notes)


def name(
    state: CertificateState,
    at: datetime,
    seen: Observation = INJECTED,
    settings: RotationSettings = DAILY,
) -> str | None:
    step = plan(state, seen, at, settings)
    return step.name if step else None


def run(
    state: CertificateState, at: datetime, until: datetime, seen: Observation = INJECTED
) -> CertificateState:
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


def noted(state: CertificateState, **notes: str) -> CertificateState:
    return replace(
        state,
        notes={**state.notes, **{key.replace("_", "-"): value for key, value in notes.items()}},
    )


def without(state: CertificateState, note: str) -> CertificateState:
    return replace(state, notes={key: value for key, value in state.notes.items() if key != note})
