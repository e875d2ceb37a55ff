"""An index of objects by their labels, so that selectors need not test each object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import DOES_NOT_EXIST, IN, NOT_IN, Requirement, Selector

NO_POSITIONS: Final[frozenset[int]] = frozenset()


class LabelIndex:
    """Objects by their labels. Results are positions in ``objects``."""

    __slots__ = ("_all", "_by_key", "_by_label", "objects")

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = tuple(objects)
        by_label: dict[tuple[str, str], set[int]] = {}
        by_key: dict[str, set[int]] = {}
        for position, obj in enumerate(self.objects):
            for key, value in obj.at("metadata", "labels").map.items():
                by_key.setdefault(key, set()).add(position)
                if isinstance(value, str):
                    by_label.setdefault((key, value), set()).add(position)
        self._all = frozenset(range(len(self.objects)))
        self._by_label: Mapping[tuple[str, str], frozenset[int]] = {
            label: frozenset(some) for label, some in by_label.items()
        }
        self._by_key: Mapping[str, frozenset[int]] = {
            key: frozenset(some) for key, some in by_key.items()
        }

    def having(self, key: str, value: str) -> frozenset[int]:
        """Return the positions of the objects with this label and value."""
        return self._by_label.get((key, value), NO_POSITIONS)

    def labelled(self, key: str) -> frozenset[int]:
        """Return the positions of the objects with this label, whatever its value."""
        return self._by_key.get(key, NO_POSITIONS)

    def select(self, selector: Selector) -> frozenset[int]:
        """Return the positions of the objects that a selector matches, the same ones as
        ``selector.matches``.

        Supports only the four operators of label selectors. A selector with errors matches nothing.
        """
        if selector.errors:
            return NO_POSITIONS
        chosen = self._all
        for requirement in selector.requirements:
            named = self._named(requirement)
            if requirement.operator in (NOT_IN, DOES_NOT_EXIST):
                chosen = chosen - named if named else chosen
            else:
                chosen = chosen & named if chosen is not self._all else named
        return chosen

    def _named(self, requirement: Requirement) -> frozenset[int]:
        """Return the objects that have the key,
        with one of the values if the operator has values.
        """
        if requirement.operator not in (IN, NOT_IN):
            return self.labelled(requirement.key)
        several = [self.having(requirement.key, value) for value in requirement.values]
        return several[0] if len(several) == 1 else NO_POSITIONS.union(*several)


@dataclass(frozen=True, slots=True)
class Selection:
    """A subset of the objects of an index."""

    index: LabelIndex
    positions: frozenset[int]
    unseen: str = ""
    """What could not be read, so that more objects may match;
    empty if the selection is complete.
    """

    @property
    def objects(self) -> tuple[Object, ...]:
        """The selected objects, in the order in which the cluster lists them."""
        return tuple(self.index.objects[position] for position in sorted(self.positions))

    def __len__(self) -> int:
        return len(self.positions)

    def among(self, positions: frozenset[int]) -> Selection:
        """Return the intersection with these positions."""
        return Selection(self.index, self.positions & positions, self.unseen)

    def demand_all(self) -> None:
        """Raise unless every object is known.

        Raises:
            Unseen: more objects may match.
        """
        if self.unseen:
            raise Unseen(self.unseen)
