"""What follows the objects of a store, besides the store itself."""

from __future__ import annotations

from typing import Any, Protocol


class Observer(Protocol):
    """Follows the objects of a store, in the thread that writes them."""

    def listed(
        self,
        by_namespace: dict[str, dict[str, Any]],
        obj: dict[str, Any],
        kept: dict[str, Any] | None,
    ) -> None:
        """An object was added to objects that ``replace`` will store later; ``kept``:
        what is stored of it.
        """

    def replaced(self, by_namespace: dict[str, dict[str, Any]]) -> None:
        """These objects are all objects now."""

    def upserted(self, obj: dict[str, Any], kept: dict[str, Any] | None) -> None:
        """An object was added or changed."""

    def deleted(self, obj: dict[str, Any]) -> None:
        """An object was removed."""
