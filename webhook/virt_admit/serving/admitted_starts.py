"""The VMs that this process admitted in the last minute. Each process has its own list, and so does each replica."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from virt_admit.engine.admission_review import Reply
from virt_admit.forecasts.outage.recent_starts import SECONDS, RecentStart
from virt_admit.model.kubernetes.cluster import Cluster, OutOfTime, Unseen
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.rule import Operation

RULE: Final = "vm-takes-failover-capacity"
MOST: Final = 1_000
"""VMs that are remembered; the oldest are dropped."""


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
        """Remember what the VM of an answered review asks for. A dry run, a refused or a deleted VM asks for nothing."""
        request, response = answered.request, answered.response
        if request.kind is not VM or request.dry_run or request.subject is None or request.subresource:
            return
        if request.obj is None or request.operation == Operation.DELETE:
            self._starts.pop((VM.kind, request.namespace, request.name), None)
            return
        if not response.allowed or all(rule.id != RULE for rule in response.evaluated_rules):
            return
        from virt_admit.forecasts.outage import failover_demand  # noqa: PLC0415 - the rule has imported it

        identity = failover_demand.identity(request.obj)
        with contextlib.suppress(Unseen, OutOfTime):
            asked = failover_demand.demand(request.obj, request.old, cluster)
            if asked is not None:
                self._remember(RecentStart(identity, asked.requests))

    def _remember(self, start: RecentStart) -> None:
        now = self._clock()
        self._starts.pop(start.identity, None)
        for identity, (since, _) in list(self._starts.items()):
            if since > now - SECONDS and len(self._starts) < MOST:
                break  # they are in the order of time
            del self._starts[identity]
        self._starts[start.identity] = now, start
