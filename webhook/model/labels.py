"""Which of many objects a selector matches, without looking at each of them."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.model.objects import Object
from webhook.model.selectors import DOES_NOT_EXIST, IN, NOT_IN, Requirement, Selector


class LabelIndex:
    """Objects by their labels. They are named by their position in ``objects``."""

    __slots__ = ("_by_key", "_by_label", "objects")

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = tuple(objects)
        self._by_label: dict[tuple[str, str], set[int]] = {}
        self._by_key: dict[str, set[int]] = {}
        for position, obj in enumerate(self.objects):
            for key, value in obj.at("metadata", "labels").map.items():
                self._by_key.setdefault(key, set()).add(position)
                if isinstance(value, str):
                    self._by_label.setdefault((key, value), set()).add(position)

    def select(self, selector: Selector) -> frozenset[int]:
        """The positions of the objects that a selector matches: the same as ``selector.matches`` for each of them.

        Only for the four operators of label selectors; a selector with errors matches nothing.
        """
        if selector.errors:
            return frozenset()
        chosen: set[int] | None = None
        excluded: set[int] = set()
        for requirement in selector.requirements:
            having = self._having(requirement)
            if requirement.operator in (NOT_IN, DOES_NOT_EXIST):
                excluded |= having
            else:
                chosen = having if chosen is None else chosen & having
        return frozenset(range(len(self.objects)) if chosen is None else chosen) - excluded

    def _having(self, requirement: Requirement) -> set[int]:
        """The objects that have the key, with one of the values where the operator takes any."""
        if requirement.operator in (IN, NOT_IN):
            return set().union(*(self._by_label.get((requirement.key, value), ()) for value in requirement.values))
        return self._by_key.get(requirement.key, set())
