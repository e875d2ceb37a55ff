"""What may not be read: the kinds among the data that a report lacks,
and the command that shows the right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import by_resource
from virt_admit.reports import unavailable_data


def forbidden(unseen: Iterable[str], unreadable: Collection[str]) -> list[str]:
    """Return the resources among the data that was not read that may not be listed, sorted."""
    named = {what.partition(" ")[0].rpartition("/")[2] for what in unseen}
    return sorted(named.intersection(unreadable))


def lines(unseen: Iterable[str], unreadable: Collection[str]) -> Iterator[str]:
    """Yield what could not be read: the forbidden kinds with the right to ask for,
    then the rest.
    """
    unseen = tuple(unseen)
    denied = forbidden(unseen, unreadable)
    if denied:
        yield unavailable_data.forbidden(denied)
    yield from unavailable_data.not_available(
        what for what in unseen if what.partition(" ")[0] not in denied
    )


def command(resource: str) -> str:
    """Return the command that shows whether a kind may be listed."""
    kind = by_resource(resource)
    scope = ("--all-namespaces",) if kind is not None and kind.namespaced else ()
    return shell("kubectl", "auth", "can-i", "list", resource, *scope)
