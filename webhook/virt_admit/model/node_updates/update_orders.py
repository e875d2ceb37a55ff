"""Orders to update nodes that stand still,
by the objects of the updaters besides those of a platform.

An order is an object such as a Plan of the system-upgrade-controller. Its updater says in its
status how far it is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.messages import cut_middle

LONG: Final = timedelta(hours=1)
"""A step of an order that lasts longer does not end as usual:
a health check of a node update has ended by then.
"""
_WORDS: Final = 240


class StandingOrder(NamedTuple):
    """An order that does not go on."""

    order: Object
    reason: str
    remedy: str
    certain: bool
    """Whether it goes on only after an object is changed."""
    brief: str = ""
    """The reason in as few words as a finding has; empty: its begin says it."""
    node: str = ""
    """The node at which it stands; empty: at none, or at several."""


def title(order: Object) -> str:
    """Return the kind and the full name of an order."""
    return f"{order.kind} {order.full_name}"


def quoted(words: str | None) -> str:
    """Return what a controller says, after a colon; empty: it says nothing."""
    said = " ".join((words or "").split())
    return f": {cut_middle(said, _WORDS)}" if said else ""


def since(condition: Field) -> str | None:
    """Return since when a condition has its status;
    the controllers of Rancher write a field of their own.
    """
    return condition["lastUpdateTime"].text or condition["lastTransitionTime"].text


def is_long(text: str | None, cluster: Cluster) -> bool:
    """Return whether something has certainly lasted for long since then."""
    return clock.has_lasted(text, LONG, cluster)
