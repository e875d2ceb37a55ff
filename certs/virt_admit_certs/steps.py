"""How each step of the plan is done: from the state that is stored to the state to be stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from virt_admit_certs.issue import Certificate, Pair, State, bundle_of, new_cross, new_serving, new_signer
from virt_admit_certs.plan import Seen, Settings, Step, StepName, asked, phase, servable_names

T = TypeVar("T")
_Action = Callable[[State, Seen, datetime, Settings], State]


def perform(step: Step, state: State, seen: Seen, now: datetime, settings: Settings) -> State:
    """The state after a step. Keys are made here, so doing it twice gives two different states."""
    after = _ACTIONS[step.name](state, seen, now, settings)
    notes = dict(after.notes)
    done = _answers(step.name)
    if asked(state) in done:
        notes["rotate-done"] = state.notes["rotate"]
    return _signed_off(replace(after, notes=notes), state)


def revoke(state: State, now: datetime, settings: Settings) -> State:
    """The state after the signer's key became known: a new signer, and trust in nothing else, at once."""
    signer = _new_signer(now, settings)
    after = State(
        signer=signer,
        bundle=(signer.cert,),
        serving=_serving(signer, now, settings),
        notes=_without(state.notes, "announced-at", "promoted-at"),
    )
    if asked(state):
        after = replace(after, notes={**after.notes, "rotate-done": state.notes["rotate"]})
    return _signed_off(after, state)


def timestamp(at: datetime) -> str:
    """A time as it stands in the notes."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _restore(state: State, seen: Seen, now: datetime, settings: Settings) -> State:
    """What was damaged may have leaked: the remembered signer comes back, and its successor with it."""
    old = _there(seen.remembered)
    signer = _there(old.signer)
    following = _new_signer(now, settings)
    return State(
        signer=signer,
        bundle=bundle_of(now, (following.cert, signer.cert), (*old.bundle, *state.bundle)),
        serving=_serving(signer, now, settings),
        chain=_chain(old, now),
        next=following,
        announced=True,
        cross=old.cross,
        notes={**_without(state.notes, "promoted-at"), "announced-at": timestamp(now)},
    )


def _bootstrap(state: State, seen: Seen, now: datetime, settings: Settings) -> State:
    """Replicas that live on under an older signer must stay trusted until they have read the new state.

    So their signers stay in the bundle, found in what is left of ``ca.crt`` and in what the configurations carry.
    """
    signer = _new_signer(now, settings)
    bundle = bundle_of(now, (signer.cert,), (*state.bundle, *seen.published))
    notes = _without(state.notes, "announced-at", "promoted-at")
    if len(bundle) > 1:
        notes["promoted-at"] = timestamp(now)
    return State(signer=signer, bundle=bundle, serving=_serving(signer, now, settings), notes=notes)


def _promote(state: State, _seen: Seen, now: datetime, settings: Settings) -> State:
    old, signer = _there(state.signer), _there(state.next)
    cross = new_cross(signer.cert, old, now)
    return State(
        signer=signer,
        bundle=bundle_of(now, (signer.cert, old.cert), state.bundle),
        serving=_serving(signer, now, settings),
        chain=(cross,),
        cross=cross,
        notes={**_without(state.notes, "announced-at"), "promoted-at": timestamp(now)},
    )


def _note(state: State, _seen: Seen, now: datetime, _settings: Settings) -> State:
    return replace(state, notes={**state.notes, "promoted-at": timestamp(now)})


def _retire(state: State, _seen: Seen, _now: datetime, _settings: Settings) -> State:
    return replace(
        state,
        bundle=(_there(state.signer).cert,),
        chain=(),
        cross=None,
        notes=_without(state.notes, "promoted-at"),  # so that a CA appended later gets its own wait
    )


def _announce(state: State, _seen: Seen, now: datetime, settings: Settings) -> State:
    following = _new_signer(now, settings)
    return replace(
        state,
        bundle=bundle_of(now, (following.cert, _there(state.signer).cert), state.bundle),
        next=following,
        announced=True,
        notes={**state.notes, "announced-at": timestamp(now)},
    )


def _reissue(state: State, _seen: Seen, now: datetime, settings: Settings) -> State:
    return replace(state, serving=_serving(_there(state.signer), now, settings), chain=_chain(state, now))


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


def _there(part: T | None) -> T:
    """A part of the state without which the plan does not ask for the step."""
    if part is None:
        raise LookupError("a step was asked for that this state does not allow")
    return part


def _answers(step: StepName) -> tuple[str, ...]:
    """Which requests for a rotation a step answers."""
    match step:
        case "bootstrap" | "restore":
            return ("serving", "signer")
        case "announce":
            return ("signer",)
        case "promote" | "reissue" | "renew":
            return ("serving",)
    return ()


def _new_signer(now: datetime, settings: Settings) -> Pair:
    names = settings.names if settings.name_constraints else ()
    return new_signer(now, settings.signer_duration, settings.key, names)


def _serving(signer: Pair, now: datetime, settings: Settings) -> Pair:
    return new_serving(signer, servable_names(signer.cert, settings), now, settings.serving_duration, settings.key)


def _chain(state: State, now: datetime) -> tuple[Certificate, ...]:
    return (state.cross,) if state.cross and state.cross.not_valid_after_utc > now else ()


def _without(notes: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in notes.items() if name not in names}


def _signed_off(after: State, before: State) -> State:
    """Number the state and name its phase, for people who look at the Secret."""
    number = before.notes.get("generation", "")
    generation = int(number) + 1 if number.isdecimal() else 1
    return replace(after, notes={**after.notes, "generation": str(generation), "phase": phase(after)})
