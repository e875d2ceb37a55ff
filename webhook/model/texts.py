"""Pieces of sentences that many messages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_NAMES: Final = 5
"""Objects that one message names; what matters is how many there are."""


def names(items: Iterable[str], width: int = 120) -> str:
    """``a, b and 7 more``: at most five names, and no more than fit into ``width`` characters, but at least one.

    A warning of more than 256 characters may be cut by the API server, and names can be long.
    """
    every = list(items)
    shown = every[:MOST_NAMES]
    while len(shown) > 1 and len(_list(shown, len(every))) > width:
        shown.pop()
    return _list(shown, len(every))


def _list(shown: list[str], total: int) -> str:
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def count(number: int, noun: str) -> str:
    """``1 machine``, ``3 machines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
