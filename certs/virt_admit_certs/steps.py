"""Perform the steps of the plan: from the stored state to the state to store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from virt_admit_certs.certificates import (
    Certificate,
    Pair,
    new_cross,
    new_serving,
    new_signer,
    timestamp,
)
from virt_admit_certs.plan import (
    Observation,
    RotationStep,
    StepName,
    phase,
    requested_rotation,
    servable_names,
)
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import CertificateState, bundle_of

T = TypeVar("T")
_Action = Callable[[CertificateState, Observation, datetime, RotationSettings], CertificateState]


def perform(
    step: RotationStep,
    state: CertificateState,
    seen: Observation,
    now: datetime,
    settings: RotationSettings,
) -> CertificateState:
    """Return the state after a step. It makes keys, so two calls return different states."""
    after = _ACTIONS[step.name](state, seen, now, settings)
    notes = dict(after.notes)
    done = _completed_requests(step.name)
    if requested_rotation(state) in done:
        notes["rotate-done"] = state.notes["rotate"]
    return _with_phase(replace(after, notes=notes), state)


def revoke(state: CertificateState, now: datetime, settings: RotationSettings) -> CertificateState:
    """Return the state after the signer's key leaked: a new signer, and no trust in any other,
    at once.
    """
    signer = _new_signer(now, settings)
    after = CertificateState(
        signer=signer,
        bundle=(signer.cert,),
        serving=_serving(signer, now, settings),
        notes=_without(state.notes, "announced-at", "promoted-at"),
    )
    if requested_rotation(state):
        after = replace(after, notes={**after.notes, "rotate-done": state.notes["rotate"]})
    return _with_phase(after, state)


def _restore(
    state: CertificateState, seen: Observation, now: datetime, settings: RotationSettings
) -> CertificateState:
    """Restore the remembered signer, and announce its successor,
    because the damaged signer may have leaked.
    """
    old = _require(seen.remembered)
    signer = _require(old.signer)
    following = _new_signer(now, settings)
    return CertificateState(
        signer=signer,
        bundle=bundle_of(now, (following.cert, signer.cert), (*old.bundle, *state.bundle)),
        serving=_serving(signer, now, settings),
        chain=_chain(old, now),
        next=following,
        announced=True,
        cross=old.cross,
        notes={**_without(state.notes, "promoted-at"), "announced-at": timestamp(now)},
    )


def _bootstrap(
    state: CertificateState, seen: Observation, now: datetime, settings: RotationSettings
) -> CertificateState:
    """Make a new signer, and keep the valid old ones in the bundle.

    Replicas that still use an older signer must stay trusted until they have read the new state.
    Their signers are in the rest of ``ca.crt`` and in the configurations.
    """
    signer = _new_signer(now, settings)
    bundle = bundle_of(now, (signer.cert,), (*state.bundle, *seen.published))
    notes = _without(state.notes, "announced-at", "promoted-at")
    if len(bundle) > 1:
        notes["promoted-at"] = timestamp(now)
    return CertificateState(
        signer=signer, bundle=bundle, serving=_serving(signer, now, settings), notes=notes
    )


def _promote(
    state: CertificateState, _seen: Observation, now: datetime, settings: RotationSettings
) -> CertificateState:
    old, signer = _require(state.signer), _require(state.next)
    cross = new_cross(signer.cert, old, now)
    return CertificateState(
        signer=signer,
        bundle=bundle_of(now, (signer.cert, old.cert), state.bundle),
        serving=_serving(signer, now, settings),
        chain=(cross,),
        cross=cross,
        notes={**_without(state.notes, "announced-at"), "promoted-at": timestamp(now)},
    )


def _note(
    state: CertificateState, _seen: Observation, now: datetime, _settings: RotationSettings
) -> CertificateState:
    return replace(state, notes={**state.notes, "promoted-at": timestamp(now)})


def _retire(
    state: CertificateState, _seen: Observation, _now: datetime, _settings: RotationSettings
) -> CertificateState:
    return replace(
        state,
        bundle=(_require(state.signer).cert,),
        chain=(),
        cross=None,
        notes=_without(state.notes, "promoted-at"),  # so that a CA appended later gets its own wait
    )


def _announce(
    state: CertificateState, _seen: Observation, now: datetime, settings: RotationSettings
) -> CertificateState:
    following = _new_signer(now, settings)
    return replace(
        state,
        bundle=bundle_of(now, (following.cert, _require(state.signer).cert), state.bundle),
        next=following,
        announced=True,
        notes={**state.notes, "announced-at": timestamp(now)},
    )


def _reissue(
    state: CertificateState, _seen: Observation, now: datetime, settings: RotationSettings
) -> CertificateState:
    return replace(
        state, serving=_serving(_require(state.signer), now, settings), chain=_chain(state, now)
    )


_ACTIONS: Final[Mapping[StepName, _Action]] = {
    "restore": _restore,
    "bootstrap": _bootstrap,
    "promote": _promote,
    "note": _note,
    "retire": _retire,
    "announce": _announce,
    "reissue": _reissue,
    "renew": _reissue,
}


def _require(part: T | None) -> T:
    """Return a part of the state that the plan guarantees for this step."""
    if part is None:
        raise LookupError("this state does not allow the step")
    return part


def _completed_requests(step: StepName) -> tuple[str, ...]:
    """Return the rotation requests that a step completes."""
    match step:
        case "bootstrap" | "restore":
            return ("serving", "signer")
        case "announce":
            return ("signer",)
        case "promote" | "reissue" | "renew":
            return ("serving",)
    return ()


def _new_signer(now: datetime, settings: RotationSettings) -> Pair:
    names = settings.names if settings.name_constraints else ()
    return new_signer(now, settings.signer_duration, settings.key, names)


def _serving(signer: Pair, now: datetime, settings: RotationSettings) -> Pair:
    return new_serving(
        signer, servable_names(signer.cert, settings), now, settings.serving_duration, settings.key
    )


def _chain(state: CertificateState, now: datetime) -> tuple[Certificate, ...]:
    return (state.cross,) if state.cross and state.cross.not_valid_after_utc > now else ()


def _without(notes: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in notes.items() if name not in names}


def _with_phase(after: CertificateState, before: CertificateState) -> CertificateState:
    """Add the generation number and the phase, for people who read the Secret."""
    number = before.notes.get("generation", "")
    generation = int(number) + 1 if number.isdecimal() else 1
    return replace(
        after, notes={**after.notes, "generation": str(generation), "phase": phase(after)}
    )
