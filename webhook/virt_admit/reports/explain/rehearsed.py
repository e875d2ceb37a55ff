"""The rehearsal of an upgrade as ``explain`` needs it: once for a cluster,
without trying other settings.
"""

from __future__ import annotations

from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import by_resource


@cached
def rehearsal(cluster: Cluster) -> Rehearsal:
    """Return the rehearsal with the usual settings."""
    return rehearse(cluster, Options(), forecast_only=True)


def unread(cluster: Cluster) -> tuple[str, ...]:
    """Return what could not be read, so that it cannot be determined whether the upgrade is
    possible.

    One line is enough for other VMs whose outcome is unknown.
    """
    found = rehearsal(cluster)
    if found.possible is not None:
        return ()
    kinds = tuple(what for what in found.unseen if by_resource(what.partition(" ")[0]) is not None)
    return kinds or ("whether an upgrade of the whole cluster completes",)
