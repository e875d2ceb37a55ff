"""How long a VM has been in a state, how long a migration should take, and both for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migration_timeouts, migrations
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings

_COARSE: Final = timedelta(minutes=5)
"""Without the time of the listing, nothing younger is late:
a heartbeat is up to five minutes old.
"""


def last_duration(vmi: Object, cluster: Cluster) -> timedelta | None:
    """Return how long the last successful migration of a VMI took; None: not known."""
    done = [
        each
        for each in migrations.own(vmi, cluster)
        if each.at("status", "phase").text == "Succeeded"
    ]
    states = [each.at("status", "migrationState") for each in reversed(done)]
    own = vmi.at("status", "migrationState")
    for state in (
        *([own] if own["completed"].boolean and not own["failed"].boolean else []),
        *states,
    ):
        begin, end = stamp_of(state, "start"), stamp_of(state, "end")
        if begin is not None and end is not None and end >= begin:
            return max(end - begin, timedelta(seconds=1))
    return None


SLOW: Final = 1.25e8
"""Bytes per second of a 1 Gbit/s network: assumed where no bandwidth is configured."""


def expected(vmi: Object, found: MigrationSettings | None, cluster: Cluster) -> timedelta | None:
    """Return how long a migration should take: as long as the last one,
    else the memory at the bandwidth.

    Twice an estimate is at least the time without progress after which KubeVirt itself gives a
    migration up.
    """
    last = last_duration(vmi, cluster)
    if last is not None:
        return last
    size = migration_timeouts.size(vmi)
    if not size:
        return None
    bandwidth, patience = (found.bandwidth, found.progress) if found is not None else (0, 0)
    usual = max(30.0, patience / 2, size / (bandwidth or SLOW))
    return timedelta(seconds=min(usual, clock.LONGEST))


def backoff_end(vmi: Object, migration: Object, cluster: Cluster) -> datetime | None:
    """Return when KubeVirt starts a migration after failures: 20 s after one,
    twice that after each further one.
    """
    failed = migrations.failed_in_a_row(vmi, cluster)
    if not failed or not migrations.is_automatic(migration):
        return None
    last = clock.instant(migrations.entered(failed[-1], "Failed"))
    return last + pause(len(failed)) if last is not None else None


def pause(failures: int) -> timedelta:
    """Return how long KubeVirt waits after so many failures in a row
    (migration.go#handleMigrationBackoff).
    """
    return timedelta(seconds=20 * 2 ** (min(failures, 5) - 1))


def is_older(since: datetime | None, limit: timedelta, cluster: Cluster) -> bool:
    """Whether a state certainly lasts longer than this."""
    current = clock.now(cluster)
    if since is None or current is None:
        return False
    return current - since > (limit if clock.exact(cluster) is not None else max(limit, _COARSE))


def after(since: datetime | None, wait: timedelta, cluster: Cluster) -> datetime | None:
    try:
        return known_time(since + wait, cluster) if since is not None else None
    except OverflowError:
        return None


def known_time(until: datetime, cluster: Cluster) -> datetime | None:
    """Return the time of a next step, if the time of the listing is known."""
    return until if clock.exact(cluster) is not None else None


def is_over(until: datetime | None, cluster: Cluster) -> bool:
    """Whether the time of a next step had passed when the objects were listed:
    it did not follow.
    """
    current = clock.exact(cluster)
    return until is not None and current is not None and until < current


OVERDUE: Final = timedelta(minutes=5)
"""After this time it is certain that a deadline, whose memory is rounded up to GB, was not kept."""


def stamp_of(state: Field, which: str) -> datetime | None:
    return clock.instant(state[f"{which}Timestamp"].text)


def age(since: datetime | None, cluster: Cluster) -> str:
    """Return how long ago a time was; empty: not known."""
    found = clock.elapsed(since, cluster)
    return duration(found) if found is not None else ""


def ago(since: datetime | None, cluster: Cluster) -> str:
    """Return how long ago a time was, as `` 91 min ago``; empty: not known."""
    found = age(since, cluster)
    return f" {found} ago" if found else ""


def clock_words(since: datetime | None, cluster: Cluster) -> str:
    """Return how long ago a time was, else the time, else that it is not known."""
    return age(since, cluster) or moment(since, None)


def lasting(since: datetime | None, cluster: Cluster) -> str:
    """Return how long something lasts: ``for 91 min``, else since when."""
    found = age(since, cluster)
    return f"for {found}" if found else f"since {moment(since, None)}"


def moment(time: datetime | None, now: datetime | None) -> str:
    """Format a time in UTC, with its date unless that is today.

    ``now``: the time of the listing.
    """
    if time is None:
        return "an unknown time"
    found = time.astimezone(UTC)
    today = now is not None and now.astimezone(UTC).date() == found.date()
    return f"{found:%H:%M} UTC" if today else f"{found:%Y-%m-%d %H:%M} UTC"
