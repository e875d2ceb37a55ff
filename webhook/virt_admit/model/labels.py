"""Which of many objects a selector matches, without looking at each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.model.cluster import Unseen
from virt_admit.model.objects import Object
from virt_admit.model.selectors import DOES_NOT_EXIST, IN, NOT_IN, Requirement, Selector

NO_POSITIONS: Final[frozenset[int]] = frozenset()


class LabelIndex:
    """Objects by their labels. They are named by their position in ``objects``."""

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
        self._by_key: Mapping[str, frozenset[int]] = {key: frozenset(some) for key, some in by_key.items()}

    def having(self, key: str, value: str) -> frozenset[int]:
        """The positions of the objects with that label."""
        return self._by_label.get((key, value), NO_POSITIONS)

    def labelled(self, key: str) -> frozenset[int]:
        """The positions of the objects with that label, whatever its value."""
        return self._by_key.get(key, NO_POSITIONS)

    def select(self, selector: Selector) -> frozenset[int]:
        """The positions of the objects that a selector matches: the same as ``selector.matches`` for each of them.

        Only for the four operators of label selectors; a selector with errors matches nothing.
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
        """The objects that have the key, with one of the values where the operator takes any."""
        if requirement.operator not in (IN, NOT_IN):
            return self.labelled(requirement.key)
        several = [self.having(requirement.key, value) for value in requirement.values]
        return several[0] if len(several) == 1 else NO_POSITIONS.union(*several)


@dataclass(frozen=True, slots=True)
class Selection:
    """Some of the objects of an index."""

    index: LabelIndex
    positions: frozenset[int]
    unseen: str = ""
    """What could not be seen, so that there may be more; empty if these are all."""

    @property
    def objects(self) -> tuple[Object, ...]:
        """In the order in which the cluster lists them."""
        return tuple(self.index.objects[position] for position in sorted(self.positions))

    def __len__(self) -> int:
        return len(self.positions)

    def among(self, positions: frozenset[int]) -> Selection:
        """Those of them that are at these positions, too."""
        return Selection(self.index, self.positions & positions, self.unseen)

    def demand_all(self) -> None:
        """Go on only if every object can be seen.

        Raises:
            Unseen: there may be more.
        """
        if self.unseen:
            raise Unseen(self.unseen)
