"""The current time as the cluster reports it.

Rules have no clock of their own, so that the same input always gives the same answer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {NODE: ("status.conditions.lastHeartbeatTime",)}


def instant(text: str | None) -> datetime | None:
    """Parse a Kubernetes time stamp (RFC 3339); return None if it is not valid or has no time zone."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def exact(cluster: Cluster) -> datetime | None:
    """Return the API server's time at the end of the listing; None: it was not recorded."""
    return instant(cluster.time)


def now(cluster: Cluster) -> datetime | None:
    """Return the time of the listing, else the newest heartbeat of a known node; None: it cannot be determined.

    A heartbeat is at most five minutes old, because kubelets report that often (``nodeStatusReportFrequency``).
    """
    return exact(cluster) or cluster.cached(_newest_heartbeat)


def stamp(time: datetime | None) -> str | None:
    """Format a time as Kubernetes does, in whole seconds of UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time is not None else None


def since(text: str | None, cluster: Cluster) -> timedelta | None:
    """Return how long ago a time stamp was, or None if the stamp or the time cannot be determined."""
    then = instant(text)
    if then is None:  # the time is not read: what reads it is judged again all the time
        return None
    current = now(cluster)
    return current - then if current is not None else None


def duration(length: timedelta) -> str:
    """Format a duration for people: ``40 s``, ``65 min``, ``2 h 52``."""
    seconds = max(int(length.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02}"


def _newest_heartbeat(cluster: Cluster) -> datetime | None:
    exact(cluster)  # heartbeats count when time has passed: this value is to follow the time
    heartbeats = (
        instant(condition["lastHeartbeatTime"].text)
        for node in cluster.known(NODE)
        for condition in node.at("status", "conditions").items()
    )
    return max(filter(None, heartbeats), default=None)
