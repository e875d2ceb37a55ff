"""What keeps a volume of Longhorn from being attached to any node."""

from __future__ import annotations

from typing import NamedTuple


class HeldVolume(NamedTuple):
    """Why no node can attach a volume."""

    words: str
    """A statement about the volume as ``it``: ``it waits for backing image i, of which …``."""
    remedy: str
    lasts: bool = True
    """Whether each further attempt certainly meets the same cause."""
