"""VMs that were admitted a moment ago and may not be seen running yet: each of a burst would be judged without the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.scheduler.resources import Resources

SECONDS: Final = 60
"""A VM that is not seen running after so long was refused by another webhook, or does not start."""


class RecentStart(NamedTuple):
    """A VM that was admitted, and what it asks for."""

    identity: tuple[str, str, str]
    """Kind, namespace and name."""
    requests: Resources


def recent_starts(_cluster: Cluster) -> Sequence[RecentStart]:
    """Return the VMs that were admitted a moment ago. The webhook provides them; elsewhere there are none."""
    return ()


def together(first: Resources, starts: Iterable[RecentStart]) -> dict[str, int]:
    """Return what these VMs ask for on top of other requests."""
    total = dict(first)
    for start in starts:
        for resource, amount in start.requests.items():
            total[resource] = total.get(resource, 0) + amount
    return total
