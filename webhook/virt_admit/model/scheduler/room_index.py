"""Which nodes are short of what a pod needs, found without looking at every node.

In a healthy cluster few nodes are short of anything, and a drain plan asks for thousands of pods.
Nodes are sorted by what they have left, so that the short ones are found by bisection.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.scheduler.resources import PODS, Resources
from virt_admit.model.scheduler.snapshot import SchedulerSnapshot
from virt_admit.model.scheduler.volumes import Claim, Volumes

_NONE: frozenset[str] = frozenset()


class _Sorted:
    """Nodes by an amount, the least first."""

    def __init__(self, amounts: Mapping[str, int]) -> None:
        ordered = sorted((amount, name) for name, amount in amounts.items())
        self._amounts = [amount for amount, _ in ordered]
        self._names = [name for _, name in ordered]

    def below(self, amount: int) -> Sequence[str]:
        return self._names[: bisect_left(self._amounts, amount)]


class RoomIndex:
    """Free resources, attached volumes and topology domains of one state, as of one moment.

    All of it on demand.
    """

    def __init__(self, state: SchedulerSnapshot, volumes: Volumes) -> None:
        self.generation = state.generation
        self._state, self._volumes = state, volumes
        self._by_resource: dict[str, _Sorted] = {}
        self._by_driver: dict[str, _Sorted] = {}
        self._by_key: dict[str, dict[str, set[str]]] = {}
        self._attached: dict[str, dict[str, set[str]]] = {}
        self.unread: dict[str, str] = {}
        """By node, a claim of its pods that could not be read: its driver may have a limit."""

    @functools.cached_property
    def _silent(self) -> frozenset[str]:
        """The nodes that do not say how much they have."""
        return frozenset(
            name for name, node in self._state.nodes.items() if node.allocatable is None
        )

    @functools.cached_property
    def _limits(self) -> Mapping[str, Mapping[str, int] | None]:
        """How many volumes each driver attaches to a node; None: it cannot be read.

        Nodes without limits are omitted.
        """
        found = {name: self._limits_of(name) for name in self._state.nodes}
        return {name: limits for name, limits in found.items() if limits != {}}

    @property
    def limited(self) -> bool:
        """Whether some node limits the number of volumes, or may do so."""
        return bool(self._limits)

    def short_of(self, requests: Resources) -> set[str]:
        """Return the nodes with less room than requested, and those whose room is not known."""
        return self.lacking(requests) | self._silent

    def lacking(self, requests: Resources) -> set[str]:
        """Return the nodes that are known to have less room than requested."""
        found: set[str] = set()
        for resource, value in {PODS: 1, **requests}.items():
            if value > 0:
                index = self._by_resource.get(resource)
                if index is None:
                    index = self._by_resource[resource] = _Sorted(self._state.left_of(resource))
                found.update(index.below(value))
        return found - self._silent

    def in_domain(self, domain: tuple[str, str]) -> Iterable[str]:
        """Return the nodes with that label."""
        key, value = domain
        values = self._by_key.get(key)
        if values is None:
            values = self._by_key[key] = {}
            for name, node in self._state.nodes.items():
                if isinstance(node.labels.get(key), str):
                    values.setdefault(node.labels[key], set()).add(name)
        return values.get(value, _NONE)

    # --- volumes

    def near_limit(self, claims: Sequence[Claim]) -> set[str]:
        """Return the nodes that may not attach all the volumes,
        and those whose limits cannot be read.
        """
        drivers = {claim.driver for claim in claims if claim.driver}
        if not drivers or not self.limited:
            return set()
        found = {name for name, limits in self._limits.items() if limits is None}
        for driver in drivers:
            index = self._by_driver.get(driver)
            if index is None:
                left = {
                    name: limits[driver] - len(self.attached(name, driver))
                    for name, limits in self._limits.items()
                    if limits is not None and driver in limits
                }
                index = self._by_driver[driver] = _Sorted(left)
            found.update(index.below(sum(claim.driver == driver for claim in claims)))
        return found | (self.unread.keys() & self._limits.keys())

    def attached(self, node: str, driver: str) -> set[str]:
        """Return the volumes of a driver that the pods of a node use."""
        return self._attached_to(node).get(driver, set())

    def _attached_to(self, node: str) -> dict[str, set[str]]:
        found = self._attached.get(node)
        if found is None:
            found = self._attached[node] = {}
            for pod in self._state.pods.get(node, ()):
                for name in pod.claims:
                    try:
                        claim = self._volumes.claim(pod.namespace, name)
                    except Unseen as blind:
                        self.unread.setdefault(node, blind.what)
                        continue
                    if claim.driver:
                        found.setdefault(claim.driver, set()).add(claim.handle)
        return found

    def _limits_of(self, node: str) -> Mapping[str, int] | None:
        try:
            return self._volumes.limits(node)
        except Unseen:
            return None
