"""What a report could not read, as lines for people: what is forbidden, with the right to ask for, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from virt_admit.model.kubernetes.kinds import by_resource
from virt_admit.reports.unavailable_data import not_available


def forbidden(unseen: Iterable[str], unreadable: Collection[str]) -> list[str]:
    """Return the resources among the data that was not read that may not be listed, sorted."""
    named = {what.partition(" ")[0].rpartition("/")[2] for what in unseen}
    return sorted(named.intersection(unreadable))


def lines(unseen: Iterable[str], unreadable: Collection[str]) -> Iterator[str]:
    """Yield what could not be read: a line for each forbidden kind, then the rest."""
    unseen = tuple(unseen)
    denied = forbidden(unseen, unreadable)
    for resource in denied:
        yield f"forbidden: list {resource}. Ask for the verbs get and list on it."
    rest = (what for what in unseen if what.partition(" ")[0] not in denied)
    yield from not_available(rest)


def command(resource: str) -> str:
    """Return the command that shows whether a kind may be listed."""
    kind = by_resource(resource)
    scope = " --all-namespaces" if kind is not None and kind.namespaced else ""
    return f"kubectl auth can-i list {resource}{scope}"
