"""VMs that were admitted a moment ago and whose pods do not exist yet: each of a burst would be
judged without the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubevirt.launcher.vm_ledger import Taken
from virt_admit.model.scheduler.resources import Resources, add

SECONDS: Final = 60
"""A VM that has no pod after so long was refused by another webhook, or does not start."""


class RecentStart(NamedTuple):
    """A VM, a pool or a replica set that was admitted, and what it asks for."""

    identity: tuple[str, str, str]
    """Kind, namespace and name."""
    requests: Resources
    before: Taken | int
    """What the VM took of the room before; of a pool or a replica set the VMs that did."""
    number: int = 1
    """VMs that start."""


def recent_starts(_cluster: Cluster) -> Sequence[RecentStart]:
    """Return the VMs that were admitted a moment ago.

    The webhook provides them; elsewhere there are none.
    """
    return ()


def together(first: Resources, requests: Iterable[Resources]) -> dict[str, int]:
    """Return the sum of several requests."""
    total = dict(first)
    for each in requests:
        add(total, each)
    return total
