"""The current time as the cluster reports it.

Rules have no clock of their own, so that the same input always gives the same answer.
"""

from __future__ import annotations

from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {NODE: ("status.conditions.lastHeartbeatTime",)}
LONGEST: Final = 10**9
"""More seconds than that never pass, and overflow as times."""


def bounded(seconds: int) -> int:
    """Return seconds of a field as a number that a time can be moved by."""
    return max(0, min(seconds, LONGEST))


def instant(text: str | None) -> datetime | None:
    """Parse a Kubernetes time stamp (RFC 3339); return None if it is not valid, in UTC too,
    or has no time zone.
    """
    try:
        found = datetime.fromisoformat(text or "")
        if found.tzinfo is None:
            return None
        found.astimezone(UTC)  # "0001-01-01T00:00:00+14:00" is in the year 0 of UTC
    except (ValueError, OverflowError):
        return None
    # a pause may be added to it, or taken from it
    return found if _FIRST <= found.year < MAXYEAR else None


_FIRST: Final = 1970
"""Of Unix time: the clock of a machine that knows no time begins there."""


def exact(cluster: Cluster) -> datetime | None:
    """Return the API server's time at the end of the listing; None: it was not recorded."""
    return instant(cluster.time)


def end_asked(obj: Object) -> datetime | None:
    """Return when the deletion of an object was asked for; None: it was not, or that is not known.

    Its time stamp is the end of the grace period (kubernetes/apiserver:
    pkg/registry/rest/delete.go#BeforeDelete).
    """
    end = instant(obj.metadata["deletionTimestamp"].text)
    grace = obj.metadata["deletionGracePeriodSeconds"].integer
    if end is None or grace is None:
        return None
    return end - timedelta(seconds=bounded(grace))


def now(cluster: Cluster) -> datetime | None:
    """Return the time of the listing, else the newest heartbeat of a known node; None:
    it cannot be determined.

    A heartbeat is at most five minutes old, because kubelets report that often
    (``nodeStatusReportFrequency``).
    """
    return exact(cluster) or cluster.cached(_newest_heartbeat)


def ago(length: timedelta, cluster: Cluster) -> datetime | None:
    """Return the time so long before now; None: it cannot be determined."""
    current = now(cluster)
    return current - length if current is not None else None


def stamp(time: datetime | None) -> str | None:
    """Format a time as Kubernetes does, in whole seconds of UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time is not None else None


def since(text: str | None, cluster: Cluster) -> timedelta | None:
    """Return how long ago a time stamp was, or None if the stamp or the time cannot be
    determined.
    """
    return elapsed(instant(text), cluster)


def elapsed(then: datetime | None, cluster: Cluster) -> timedelta | None:
    """Return how long ago a time was; None: it is not known, or cannot be determined."""
    if then is None:  # the time is not read: what reads it is judged again all the time
        return None
    current = now(cluster)
    return current - then if current is not None else None


def age(obj: Object, cluster: Cluster) -> timedelta | None:
    """Return how long ago an object was created; None: that cannot be determined."""
    return since(obj.created, cluster)


def has_lasted(text: str | None, least: timedelta, cluster: Cluster) -> bool:
    """Return whether something that began at a time stamp certainly lasts at least so long."""
    found = since(text, cluster)
    return found is not None and found >= least


def is_overdue(text: str | None, patience: timedelta, cluster: Cluster) -> bool:
    """Return whether something lasts at least so long, or does not say since when.

    Raises:
        Unseen: it says so, and Nodes, whose heartbeats tell the time, were not read.
    """
    found = since(text, cluster)
    if found is None and text:
        for unread in more_may_exist(cluster, NODE):
            raise unread
        return False
    return found is None or found >= patience


def lasting(text: str | None, cluster: Cluster) -> str:
    """Return for how long something lasts that began at a time stamp, as `` for 3 h 10``; empty:
    that is not known.
    """
    return lasts(since(text, cluster))


def lasts(length: timedelta | None) -> str:
    """Return a duration as `` for 3 h 10``; empty: it is not known."""
    return f" for {duration(length)}" if length is not None else ""


def past(text: str | None, cluster: Cluster) -> str:
    """Return how long ago a time stamp was, as `` 3 h 10 ago``; empty: that is not known."""
    length = since(text, cluster)
    return f" {duration(length)} ago" if length is not None else ""


_IN_DAYS: Final = 3
_IN_WHOLE_DAYS: Final = 10


def duration(length: timedelta) -> str:
    """Format a duration for people: ``40 s``, ``65 min``, ``2 h``, ``2 h 52``, ``3 days 4 h``,
    ``35 days``.
    """
    seconds = max(int(length.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    days, hours = divmod(minutes // 60, 24)
    if days >= _IN_DAYS:
        return f"{days} days {hours} h" if hours and days < _IN_WHOLE_DAYS else f"{days} days"
    return f"{minutes} min" if minutes < 120 else of_minutes(minutes)


def of_minutes(minutes: int) -> str:
    """Format minutes as hours: ``2 h``, ``2 h 52``."""
    return f"{minutes // 60} h {minutes % 60:02}" if minutes % 60 else f"{minutes // 60} h"


def _newest_heartbeat(cluster: Cluster) -> datetime | None:
    exact(cluster)  # heartbeats count when time has passed: this value is to follow the time
    heartbeats = (
        instant(condition["lastHeartbeatTime"].text)
        for node in cluster.known(NODE)
        for condition in node.at("status", "conditions").items()
    )
    return max(filter(None, heartbeats), default=None)
