"""Time, told by the cluster itself: rules have no clock, so that the same input always gives the same answer."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import NODE
from virt_admit.model.reads import Reads

READS: Final[Reads] = {NODE: ("status.conditions.lastHeartbeatTime",)}


def instant(text: str | None) -> datetime | None:
    """A time stamp of Kubernetes (RFC 3339), or None if it is none."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def now(cluster: Cluster) -> datetime | None:
    """The newest heartbeat of a known node; None: nothing tells the time.

    It is at most five minutes late, for kubelets report that often (``nodeStatusReportFrequency``).
    """
    return cluster.cached(_newest_heartbeat)


def _newest_heartbeat(cluster: Cluster) -> datetime | None:
    heartbeats = (
        instant(condition["lastHeartbeatTime"].text)
        for node in cluster.known(NODE)
        for condition in node.at("status", "conditions").items()
    )
    return max(filter(None, heartbeats), default=None)
