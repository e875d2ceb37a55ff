"""The interface of a certificate store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of a store."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """PEM by the names of :data:`virt_admit_certs.state.KEYS`;
    files that do not exist are omitted.
    """
    notes: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    """The version that a save must name; None if nothing is stored yet."""
    date: datetime | None = None
    """The clock of the API server."""


class Store(Protocol):
    """Where a state is stored.

    A save names the version that it replaces, so the loser of a race reads again.
    """

    external: ClassVar[bool]
    """An external issuer fills it: never save."""

    def load(self) -> Loaded:
        """Read the whole content, from one version. Raise OSError or ApiError."""

    def save(
        self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None
    ) -> bool:
        """Replace the whole content if ``version`` is still stored; return whether it was.

        Raise as ``load`` does.
        """

    def stale(self, version: str | None) -> bool:
        """Return whether another version is stored now, as far as microseconds can tell."""
