"""The objects that one run of ``check`` judges together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object


class Planned(NamedTuple):
    """An object that is judged together with others, and its current version (None: it is new,
    or not known).
    """

    obj: Object
    old: Object | None = None


def planned(_cluster: Cluster) -> Iterable[Planned]:
    """Return the objects that are judged together, in their order.

    ``check`` provides them; a request has none.

    Each loop over them decodes them again, because all of them at once take much memory.
    """
    return ()
