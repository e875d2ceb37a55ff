"""How often an upgrade shuts a guest down, and how long it is down or paused in all."""

from __future__ import annotations

from virt_admit.forecasts.drain import vm_downtime
from virt_admit.forecasts.drain.vm_downtime import NONE, Downtime
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, Forecast, VmOutcome
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubevirt.instances import migration_timeouts


def shutdowns(row: Forecast, moves: int, *, reached: bool) -> int:
    """Return how often the VM is shut down: at each move, or once where it does not start on another node."""
    if row.outcome not in SHUT_DOWN:
        return 0
    return moves if row.outcome is VmOutcome.RESTARTS else int(reached)


def downtime(row: Forecast, count: int, away: int | None) -> Downtime | None:
    """Return how long the guest is down in all.

    Args:
        row: what a drain of its node does to the VM.
        count: how often it is shut down.
        away: the seconds in which its node is drained and updated in the longest run; None: without end.
    """
    if row.outcome is VmOutcome.MIGRATES or (row.outcome in SHUT_DOWN and not count):
        return NONE
    if row.outcome not in SHUT_DOWN:
        return None
    once = vm_downtime.restart(row.vmi)
    if row.outcome is VmOutcome.RESTARTS:
        return Downtime(once.low * count, None if once.high is None else once.high * count)
    if row.outcome is VmOutcome.AWAITS_NODE and away is not None and once.high is not None:
        return Downtime(once.low, away + once.high)
    return Downtime(0, None)


def paused(row: Forecast, moves: int, cluster: Cluster) -> Downtime | None:
    """Return how long migrations may pause the guest in all.

    Only ``allowWorkloadDisruption`` without post-copy pauses it: from the completion time-out until twice that
    (kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#handleLegacyConvergence).
    """
    if row.outcome in SHUT_DOWN or not moves:
        return NONE
    if row.outcome is not VmOutcome.MIGRATES:
        return None
    try:
        settings = migration_timeouts.settings(row.vmi, row.vmi["-"], cluster)
    except Unseen:
        return None
    if settings is None:
        return None
    if settings.post_copy or not settings.disruption:
        return NONE
    limit = migration_timeouts.seconds(row.vmi, settings)
    return Downtime(0, limit * moves if limit else None)
