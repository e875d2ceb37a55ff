"""Why a CSI driver as a whole fails, as far as an object of it says so."""

from __future__ import annotations

from typing import NamedTuple


class DriverCause(NamedTuple):
    """Why a driver attaches no volume, with the object that says so."""

    words: str
    """A clause: ``TridentBackend trident/tbe-1 (backend nas) is failed``. Never shortened."""
    remedy: str
