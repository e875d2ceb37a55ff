"""kured, which drains and reboots the nodes that ask for it one after the other, and its lock.

Its pods write the lock into an annotation of their DaemonSet. The pod of the node that has it drains that node. It keeps the
lock until the node is back, or until its drain fails, which needs a drain time-out. Sources: kubereboot/kured:
pkg/daemonsetlock/daemonsetlock.go#Acquire, #ttlExpired; cmd/kured/main.go#rebootAsRequired.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase

LOCK: Final = "weave.works/kured-node-lock"
"""The annotation of the DaemonSet; a flag of kured can name another one."""
_NEEDED: Final = "weave.works/kured-most-recent-reboot-needed"
"""The annotation of a node with the time from which it needs a reboot. It stays. kured writes it if a flag says so."""

READS: Final[Reads] = union(
    clock.READS,
    {
        DAEMON_SET: (f"metadata.annotations.{LOCK}",),
        NODE: (f"metadata.annotations.{_NEEDED}", "spec.unschedulable", "status.conditions"),
    },
)
"""The fields that say what kured does."""


class RebootLock(NamedTuple):
    """A node that kured reboots now, while the others wait."""

    daemon: Object
    node: str
    since: datetime | None
    until: datetime | None
    """When the lock expires. None: it does not."""


def locks(cluster: Cluster) -> tuple[RebootLock, ...]:
    """Return the locks that are held, by node. A value that kured does not write counts for nothing."""
    return cluster.cached(_locks)


def _locks(cluster: Cluster) -> tuple[RebootLock, ...]:
    now = clock.now(cluster)
    daemons = (each for each in cluster.known(DAEMON_SET) if LOCK in each.annotations)
    found = (lock for daemon in daemons for lock in _of_daemon(daemon))
    held = (lock for lock in found if lock.until is None or now is None or lock.until > now)
    return tuple(sorted(held, key=lambda lock: lock.node))


def _of_daemon(daemon: Object) -> Iterator[RebootLock]:
    try:
        value = json.loads(daemon.annotations[LOCK])
    except ValueError:
        return
    several = value.get("locks") if isinstance(value, dict) else None
    for each in several if isinstance(several, list) else [value]:
        if isinstance(each, dict) and isinstance(each.get("nodeID"), str) and each["nodeID"]:
            yield _lock(daemon, each)


def _lock(daemon: Object, value: dict[str, Any]) -> RebootLock:
    created, lasts = value.get("created"), value.get("TTL")
    since = clock.instant(created) if isinstance(created, str) else None
    until = None
    if isinstance(lasts, int) and 0 < lasts < _LONGEST and since is not None:
        with contextlib.suppress(OverflowError):
            until = since + timedelta(microseconds=lasts // 1000)
    return RebootLock(daemon, value["nodeID"], since, until)


_LONGEST: Final = 2**63
"""A Go duration: nanoseconds in 64 bits."""


def updates(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return what kured does to the nodes that have a lock: one that is not cordoned is not drained yet, or is back."""
    found = {}
    for lock in locks(cluster):
        node = find(cluster, NODE, "", lock.node)
        if node is not None and node.at("spec", "unschedulable").boolean:
            ready = node.condition("Ready")["status"].text == "True"
            phase = Phase.DRAINING if ready else Phase.REBOOTING
            found[lock.node] = NodeUpdate(DAEMON_SET.kind, lock.daemon.name, phase, lock.since, exact=ready)
    return found


def waiting(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that certainly wait for a lock, as far as kured marks nodes: they need a reboot and had none since."""
    held = {lock.node for lock in locks(cluster)}
    return tuple(sorted(node.name for node in cluster.known(NODE) if held and node.name not in held and _waits(node)))


def _waits(node: Object) -> bool:
    needed = clock.instant(node.annotations.get(_NEEDED))
    ready = clock.instant(node.condition("Ready")["lastTransitionTime"].text)
    return needed is not None and ready is not None and ready < needed


def words(cluster: Cluster) -> Iterator[str]:
    """Yield which lock the nodes that are still to be rebooted wait for, and when it ends."""
    left = waiting(cluster)
    who = f"{names(left)} wait{'s' * (len(left) == 1)}" if left else "Other nodes that need a reboot wait"
    now = clock.now(cluster)
    for lock in locks(cluster):
        age = now - lock.since if lock.since is not None and now is not None else None
        since = f" for {clock.duration(age)}" if age is not None else ""
        ends = (
            f"expires at {clock.stamp(lock.until)}"
            if lock.until is not None
            else "does not expire, as --lock-ttl is not set"
        )
        yield (
            f"{who} for the lock of kured (DaemonSet {lock.daemon.full_name}), which {lock.node} has{since}. kured goes on by "
            f"itself once {lock.node} is empty. Its lock {ends}"
        )
