"""Fields that code looks up: retained fields, RBAC and informers are derived from them.

A module of the model that looks objects up declares a ``READS`` constant next to that code. A rule
combines these constants and its own fields in ``Rule.reads``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final

from virt_admit.model.kubernetes.kinds import Kind

Reads = Mapping[Kind, tuple[str, ...]]
"""By kind the paths of the fields that are read, such as ``status.phase``,
each with everything below it.

Paths pass through lists without an index: ``status.conditions.type``. After
``metadata.annotations.`` and ``metadata.labels.`` the rest is one key. Without any path the whole
object is read, which suits kinds of which a cluster has few. Every object keeps its kind, name,
namespace and deletion timestamp.
"""

NAME: Final = ("metadata.name",)
"""For look-ups that only ask whether an object exists."""

CONDITIONS: Final = ("status.conditions.type", "status.conditions.status")
WHOLE_CONDITIONS: Final = (
    *CONDITIONS,
    *(f"status.conditions.{name}" for name in ("reason", "message", "lastTransitionTime")),
)
"""With why and since when they have their status."""


_KEYED: Final = ("metadata.annotations.", "metadata.labels.")


def keys(path: str) -> tuple[str, ...]:
    """Return the keys of a path, one for each level of the object."""
    for prefix in _KEYED:
        if path.startswith(prefix):
            return (*prefix.rstrip(".").split("."), path.removeprefix(prefix))
    return tuple(path.split("."))


def union(*parts: Reads) -> Reads:
    """Return all fields of all parts. A kind that one part reads as a whole is read as a whole."""
    merged: dict[Kind, tuple[str, ...]] = {}
    for kind, paths in (item for part in parts for item in part.items()):
        before = merged.get(kind, paths)
        merged[kind] = tuple(dict.fromkeys((*before, *paths))) if before and paths else ()
    return merged


class LateReads(Mapping[Kind, tuple[str, ...]]):
    """Fields of modules that are imported with the first look at them.

    ``check`` of a few files never looks, and to import the forecasts takes as long as such a check.
    """

    def __init__(self, find: Callable[[], Reads]) -> None:
        self._find = find

    @cached_property
    def _reads(self) -> Reads:
        return self._find()

    def __getitem__(self, kind: Kind) -> tuple[str, ...]:
        return self._reads[kind]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._reads)
