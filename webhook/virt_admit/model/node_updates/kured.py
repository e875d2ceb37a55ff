"""kured, which reboots one node after the other: the lock that it holds for one of them.

The lock is an annotation of its DaemonSet. A node that holds it and no longer exists keeps it, unless it has a time to live.
Source: kubereboot/kured:pkg/daemonsetlock/daemonsetlock.go#lockAnnotationValue #Acquire, :cmd/kured/main.go.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names

_LOCK: Final = "weave.works/kured-node-lock"
_BEGUN: Final = "weave.works/kured-reboot-in-progress"

READS: Final[Reads] = union(
    clock.READS,
    {
        DAEMON_SET: (f"metadata.annotations.{_LOCK}",),
        NODE: (f"metadata.annotations.{_BEGUN}", "spec.unschedulable"),
    },
)


class Lock(NamedTuple):
    """The lock of one kured."""

    daemon: Object
    node: str
    """Its holder."""
    since: datetime | None
    expires: bool
    """Whether it may end by its time to live."""


def locks(cluster: Cluster) -> tuple[Lock, ...]:
    """Return the locks that nodes hold, as far as the DaemonSets are known."""
    return cluster.cached(_locks)


def _locks(cluster: Cluster) -> tuple[Lock, ...]:
    daemons = sorted(cluster.known(DAEMON_SET), key=lambda each: each.full_name)
    found = (_lock(daemon) for daemon in daemons if _LOCK in daemon.annotations)
    return tuple(lock for lock in found if lock is not None)


def _lock(daemon: Object) -> Lock | None:
    try:
        said = json.loads(daemon.annotations[_LOCK])
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("nodeID"), str) or not said["nodeID"]:
        return None
    since = clock.instant(said.get("created") if isinstance(said.get("created"), str) else None)
    nanoseconds = said.get("TTL")
    return Lock(daemon, said["nodeID"], since, expires=not isinstance(nanoseconds, int) or nanoseconds > 0)


def reboots(node: Object, cluster: Cluster) -> bool:
    """Return whether kured empties or reboots a node now. Without its lock, which may not be known, the annotation says it."""
    held = locks(cluster)
    return any(lock.node == node.name for lock in held) if held else _BEGUN in node.annotations


def waits(node: Object) -> bool:
    """Return whether kured is to reboot a node, and has not cordoned it for that."""
    return _BEGUN in node.annotations and not node.at("spec", "unschedulable").boolean


def hold(cluster: Cluster) -> Hold | None:
    """Return the lock that keeps kured from rebooting any node for good; None: none is known to."""
    waiting = tuple(sorted(node.name for node in cluster.known(NODE) if waits(node)))
    nodes = {node.name for node in cluster.known(NODE)}
    if not waiting or unlisted(cluster, NODE):
        return None
    left = (lock for lock in locks(cluster) if lock.node not in nodes and not lock.expires)
    return next((Hold(lock, waiting) for lock in left), None)


class Hold(NamedTuple):
    """A lock whose holder does not exist, and which never expires."""

    lock: Lock
    waiting: tuple[str, ...]
    """The nodes that are to be rebooted."""

    def reason(self, cluster: Cluster) -> str:
        """Return what is wrong."""
        daemon, current = self.lock.daemon, clock.now(cluster)
        age = current - self.lock.since if current is not None and self.lock.since is not None else None
        since = f" for {_days(age)}" if age is not None else ""
        return (
            f"kured reboots no node: {self.lock.node}, which does not exist, has held its lock{since} (annotation {_LOCK} of "
            f"DaemonSet {daemon.full_name}), and the lock has no time to live. {names(self.waiting)} "
            f"{'wait' if len(self.waiting) > 1 else 'waits'} for a reboot, and that does not end by itself"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with a command."""
        where = ("-n", self.lock.daemon.namespace)
        release = shell("kubectl", "annotate", "daemonset", argument(self.lock.daemon.name), *where, f"{_LOCK}-")
        return typed(
            f"make sure that {self.lock.node} is gone, and set --lock-ttl for the future; this gives the lock up",
            release,
        )


def _days(age: timedelta) -> str:
    return f"{age.days} days" if age.days > 1 else clock.duration(age)
