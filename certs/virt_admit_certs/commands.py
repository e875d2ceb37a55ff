"""What ``virt-admit certs`` changes.

Each function raises the errors of its store, and StoreError.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal

from virt_admit_certs.certificates import certs_pem
from virt_admit_certs.plan import Observation, RotationStep, plan, requested_rotation
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.state import CertificateState, parse, render
from virt_admit_certs.steps import perform
from virt_admit_certs.steps import revoke as revoked
from virt_admit_certs.stores.protocol import Loaded, Store

_IDENTITY: Final = "virt-admit certs"
# attempts to save; a store that changes during each of them has another problem
_ATTEMPTS: Final = 10
_RETRY_SECONDS: Final = 0.05  # seconds between two attempts: another process is writing


class StoreError(Exception):
    """The store does not allow the command."""


def request_rotation(store: Store, what: Literal["serving", "signer"]) -> str:
    """Request a new serving cert or a new signer from the replicas; return the name of the request.

    The next round of any replica begins it, and no certificate is used before it is trusted. A
    store holds one request. A pending one is returned if it includes this one: a new signer
    includes a new serving cert.
    """

    def add_request(loaded: Loaded) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        state = parse(loaded.data, loaded.notes)
        if state.signer is None:
            raise StoreError("the store has no signer yet, so no webhook serves from it")
        if requested_rotation(state) in (what, "signer"):
            return loaded.data, loaded.notes
        return loaded.data, {**loaded.notes, "rotate": f"{what}/{secrets.token_hex(4)}"}

    return _update(store, add_request)[1]["rotate"]


def rotation_done(store: Store, request: str) -> bool:
    """Return whether a request, or the one that replaced it, is complete:
    a new signer must have been promoted.
    """
    loaded = store.load()
    done = loaded.notes.get("rotate-done", "")
    if done == request and request.startswith("serving/"):
        return True
    return (
        bool(done)
        and done in (request, loaded.notes.get("rotate"))
        and not parse(loaded.data).announced
    )


def advance(
    store: Store, settings: RotationSettings, now: Callable[[], datetime]
) -> tuple[RotationStep, ...]:
    """Do every step that is due, as ``serve`` would, and return the steps.

    For a directory, whose bundle is published nowhere. In an empty directory this issues a signer
    and a serving cert.
    """
    done: list[RotationStep] = []
    for _ in range(_ATTEMPTS):
        loaded = store.load()
        state, at = parse(loaded.data, loaded.notes), now()
        step = plan(state, Observation(), at, settings)
        if step is None:
            return tuple(done)
        if _save(store, perform(step, state, Observation(), at, settings), loaded.version):
            done.append(step)
        else:
            time.sleep(_RETRY_SECONDS)
    raise StoreError("the store keeps changing")


def revoke(
    store: Store, settings: RotationSettings, now: Callable[[], datetime]
) -> CertificateState:
    """Replace a signer whose key leaked, at once; return the new state.

    Calls may fail until every API server has the new bundle.
    """

    def replace(loaded: Loaded) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        after = revoked(parse(loaded.data, loaded.notes), now(), settings)
        return render(after), {**after.notes, "rotated-by": _IDENTITY}

    data, notes = _update(store, replace)
    return parse(data, notes)


def bundle(store: Store) -> bytes:
    """Return the certificates to trust, as PEM. Raise StoreError if there are none."""
    found = certs_pem(parse(store.load().data).bundle)
    if not found:
        raise StoreError("the store has no signer yet, so no webhook serves from it")
    return found


def _save(store: Store, state: CertificateState, version: str | None) -> bool:
    return store.save(render(state), {**state.notes, "rotated-by": _IDENTITY}, version)


def _update(
    store: Store, change: Callable[[Loaded], tuple[Mapping[str, bytes], Mapping[str, str]]]
) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    for _ in range(_ATTEMPTS):
        loaded = store.load()
        data, notes = change(loaded)
        if store.save(data, notes, loaded.version):
            return data, notes
        time.sleep(_RETRY_SECONDS)
    raise StoreError("the store keeps changing")
