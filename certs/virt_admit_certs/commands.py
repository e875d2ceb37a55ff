"""What ``virt-admit certs`` does beside looking. Each function raises what its store raises, and StoreError."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal

from virt_admit_certs.issue import State, certs_pem, parse, render
from virt_admit_certs.plan import Seen, Settings, Step, asked, plan
from virt_admit_certs.steps import perform
from virt_admit_certs.steps import revoke as revoked
from virt_admit_certs.store import Loaded, Store

_IDENTITY: Final = "virt-admit certs"
_TRIES: Final = 10  # a store that changes under each of them has a problem of its own
_PAUSE: Final = 0.05  # seconds until the next one: somebody else is writing


class StoreError(Exception):
    """A store cannot be used for what was asked."""


def request_rotation(store: Store, what: Literal["serving", "signer"]) -> str:
    """Ask whoever serves from this store for a new serving cert, or for a new signer; the name of the request.

    Graceful: the next round of any replica begins it, and nothing is shown before it is trusted. A store holds one
    request: one that is not done yet is joined if it brings what is asked for, as a new signer brings a serving cert.
    """

    def ask(loaded: Loaded) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        state = parse(loaded.data, loaded.notes)
        if state.signer is None:
            raise StoreError("there is no signer yet: nothing serves from this store")
        if asked(state) in (what, "signer"):
            return loaded.data, loaded.notes
        return loaded.data, {**loaded.notes, "rotate": f"{what}/{secrets.token_hex(4)}"}

    return _change(store, ask)[1]["rotate"]


def rotation_done(store: Store, request: str) -> bool:
    """Whether a request, or the one that took its place, is done to its end: a new signer counts when it is in force."""
    loaded = store.load()
    done = loaded.notes.get("rotate-done", "")
    if done == request and request.startswith("serving/"):
        return True
    return bool(done) and done in (request, loaded.notes.get("rotate")) and not parse(loaded.data).announced


def advance(store: Store, settings: Settings, now: Callable[[], datetime]) -> tuple[Step, ...]:
    """Do every step that is due, as ``serve`` would, and tell which: for a directory, which nothing needs to trust.

    On an empty directory this issues a signer and a serving cert.
    """
    done: list[Step] = []
    for _ in range(_TRIES):
        loaded = store.load()
        state, at = parse(loaded.data, loaded.notes), now()
        step = plan(state, Seen(), at, settings)
        if step is None:
            return tuple(done)
        if _save(store, perform(step, state, Seen(), at, settings), loaded.version):
            done.append(step)
        else:
            time.sleep(_PAUSE)
    raise StoreError("the store changes all the time")


def revoke(store: Store, settings: Settings, now: Callable[[], datetime]) -> State:
    """Replace a signer whose key is known to others, at once; the new state.

    Until every API server has the new bundle, calls may fail.
    """

    def replace(loaded: Loaded) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        after = revoked(parse(loaded.data, loaded.notes), now(), settings)
        return render(after), {**after.notes, "rotated-by": _IDENTITY}

    data, notes = _change(store, replace)
    return parse(data, notes)


def bundle(store: Store) -> bytes:
    """The certificates to trust, as PEM. Raises StoreError if there are none."""
    found = certs_pem(parse(store.load().data).bundle)
    if not found:
        raise StoreError("there is no signer yet: nothing serves from this store")
    return found


def _save(store: Store, state: State, version: str | None) -> bool:
    return store.save(render(state), {**state.notes, "rotated-by": _IDENTITY}, version)


def _change(
    store: Store, change: Callable[[Loaded], tuple[Mapping[str, bytes], Mapping[str, str]]]
) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    for _ in range(_TRIES):
        loaded = store.load()
        data, notes = change(loaded)
        if store.save(data, notes, loaded.version):
            return data, notes
        time.sleep(_PAUSE)
    raise StoreError("the store changes all the time")
