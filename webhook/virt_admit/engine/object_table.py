"""Values of many objects, of which few change at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Name = tuple[str, str]
"""Namespace and name of an object."""


class ObjectTable(Generic[T]):
    """A value for each of some objects, in the order of their names.

    Only those that are due are computed again.
    """

    def __init__(self) -> None:
        self._names: tuple[Name, ...] = ()
        self._values: dict[Name, T] = {}
        self.due: set[Name] = set()
        """Names of which the values may have changed."""

    def values(self, names: tuple[Name, ...], compute: Callable[[Name], T]) -> tuple[T, ...]:
        """Return the values for these names.

        The same tuple of names as before says that no object came or went.
        """
        if names is self._names:
            for name in self.due & self._values.keys():
                self._values[name] = compute(name)
        else:
            kept = self._values.keys() - self.due
            self._values = {
                name: self._values[name] if name in kept else compute(name) for name in names
            }
            self._names = names
        self.due.clear()
        return tuple(self._values.values())
