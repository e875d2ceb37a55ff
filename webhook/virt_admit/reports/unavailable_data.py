"""What a forecast could not read or determine, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from virt_admit.model.kubernetes.kinds import NODE, POD, VMI, by_resource
from virt_admit.model.messages import names

_SHOWS_VMS: Final = frozenset(kind.resource for kind in (NODE, POD, VMI))
"""A plan may lack VMs if objects of these kinds may be missing."""


def not_available(unseen: Iterable[str]) -> Iterator[str]:
    """Yield a line about objects that could not be read, and one about everything else that is not known."""
    unseen = tuple(unseen)
    objects = [what for what in unseen if by_resource(what.partition(" ")[0])]
    others = [what for what in unseen if what not in objects]
    if objects:
        more = " There may be more VMs." if _SHOWS_VMS.intersection(objects) else ""
        yield f"Not available: {names(objects)}.{more}"
    if others:
        yield f"Cannot be determined: {names(others)}."
