"""The VMs that this process admitted in the last minute.

Each process has its own list, and so does each replica.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Final

from virt_admit.engine.admission_review import Reply
from virt_admit.forecasts.outage.recent_starts import SECONDS, RecentStart
from virt_admit.model.kubernetes.cluster import Cluster, OutOfTime, Unseen
from virt_admit.model.kubernetes.kinds import POOL, VM, VMIRS
from virt_admit.rule import Operation, Rule

RULE: Final = "vm-takes-failover-capacity"
KINDS: Final = (VM, POOL, VMIRS)
MOST: Final = 1_000
"""VMs that are remembered; the oldest are dropped."""


@functools.lru_cache(maxsize=64)
def _asks_for_room(evaluated_rules: tuple[Rule, ...]) -> bool:
    return any(rule.id == RULE for rule in evaluated_rules)


class AdmittedStarts:
    """Remembers admitted VMs that start or grow, for a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._starts: dict[tuple[str, str, str], tuple[float, RecentStart]] = {}

    def current(self) -> tuple[RecentStart, ...]:
        """Return the VMs of the last minute."""
        oldest = self._clock() - SECONDS
        return tuple(start for since, start in self._starts.values() if since > oldest)

    def observe(self, answered: Reply, cluster: Cluster) -> None:
        """Remember what the object of an answered review asks for.

        A dry run changes nothing. A refused object stays as it was, and a deleted one asks for
        nothing.
        """
        request, response = answered.request, answered.response
        if (
            request.kind not in KINDS
            or request.dry_run
            or request.subject is None
            or request.subresource
        ):
            return
        if not response.allowed:
            return
        if request.obj is None or request.operation == Operation.DELETE:
            self._starts.pop((request.kind.kind, request.namespace, request.name), None)
            return
        identity = request.kind.kind, request.obj.namespace or request.namespace, request.obj.name
        known = self._known(identity)
        if known is None and not _asks_for_room(response.evaluated_rules):
            return
        # the rule has imported it
        from virt_admit.forecasts.outage import failover_demand  # noqa: PLC0415

        with contextlib.suppress(Unseen, OutOfTime):
            start = failover_demand.remembered(request.obj, request.old, known, cluster)
            if start is None:
                self._starts.pop(identity, None)
            elif start != known:
                self._remember(start)

    def _known(self, identity: tuple[str, str, str]) -> RecentStart | None:
        since, start = self._starts.get(identity, (0.0, None))
        return start if since > self._clock() - SECONDS else None

    def _remember(self, start: RecentStart) -> None:
        now = self._clock()
        self._starts.pop(start.identity, None)
        for identity, (since, _) in list(self._starts.items()):
            if since > now - SECONDS and len(self._starts) < MOST:
                break  # they are in the order of time
            del self._starts[identity]
        self._starts[start.identity] = now, start
