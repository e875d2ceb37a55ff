"""kured, which drains and reboots the nodes that ask for it one after the other, and its lock.

Its pods write the lock into an annotation of their DaemonSet. The pod of the node that has it drains that node. It keeps the
lock until the node is back, or until its drain fails, which needs a drain time-out. A node that was deleted meanwhile keeps
it, unless the lock has a time to live. Sources: kubereboot/kured:
pkg/daemonsetlock/daemonsetlock.go#Acquire, #ttlExpired; cmd/kured/main.go#rebootAsRequired.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase

LOCK: Final = "weave.works/kured-node-lock"
"""The annotation of the DaemonSet; a flag of kured can name another one."""
_NEEDED: Final = "weave.works/kured-most-recent-reboot-needed"
"""The annotation of a node with the time from which it needs a reboot. It stays. kured writes it if a flag says so."""

_BEGUN: Final = "weave.works/kured-reboot-in-progress"
"""The annotation of a node that kured is to reboot, until it has."""

_BEFORE: Final = "kured.dev/node-unschedulable-before-drain"
"""The annotation of a node that says whether it was cordoned before the drain; up to 1.17 the lock alone says so."""

READS: Final[Reads] = union(
    clock.READS,
    {
        DAEMON_SET: (f"metadata.annotations.{LOCK}",),
        NODE: (
            f"metadata.annotations.{_NEEDED}",
            f"metadata.annotations.{_BEGUN}",
            f"metadata.annotations.{_BEFORE}",
            "spec.taints",
            "spec.unschedulable",
            "status.conditions",
        ),
    },
)
"""The fields that say what kured does."""


class RebootLock(NamedTuple):
    """A node that kured reboots now, while the others wait."""

    daemon: Object
    node: str
    since: datetime | None
    until: datetime | None
    """When the lock expires. None: it does not, or that is not known."""
    expires: bool
    """Whether it may end by its time to live."""
    cordoned: bool
    """Whether the node was cordoned before kured drained it."""


def locks(cluster: Cluster) -> tuple[RebootLock, ...]:
    """Return the locks that are held, by node. A value that kured does not write counts for nothing."""
    return cluster.cached(_locks)


def _locks(cluster: Cluster) -> tuple[RebootLock, ...]:
    now = clock.now(cluster)
    daemons = (each for each in cluster.known(DAEMON_SET) if LOCK in each.annotations)
    found = (lock for daemon in daemons for lock in _of_daemon(daemon))
    held = (lock for lock in found if lock.until is None or now is None or lock.until > now)
    return tuple(sorted(held, key=lambda lock: lock.node))


def _value(daemon: Object) -> Any:
    try:
        return json.loads(daemon.annotations[LOCK])
    except (ValueError, RecursionError):
        return None


def _of_daemon(daemon: Object) -> Iterator[RebootLock]:
    value = _value(daemon)
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
    earlier = value.get("metadata")
    cordoned = isinstance(earlier, dict) and earlier.get("unschedulable") is True
    return RebootLock(daemon, value["nodeID"], since, until, not isinstance(lasts, int) or lasts > 0, cordoned)


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
        gone = not unlisted(cluster, NODE) and find(cluster, NODE, "", lock.node) is None
        if gone and not lock.expires:
            continue  # ``hold`` says it
        age = now - lock.since if lock.since is not None and now is not None else None
        since = f" for {clock.duration(age)}" if age is not None else ""
        ends = f"expires at {clock.stamp(lock.until)}" if lock.until is not None else "may expire"
        whose = f"the lock of kured (DaemonSet {lock.daemon.full_name}), which {lock.node} has{since}"
        if gone:
            yield f"{who} for {whose}. That node does not exist any more. Its lock {ends}"
        else:
            lasts = ends if lock.expires else "does not expire, as --lock-ttl is not set"
            yield f"{who} for {whose}. kured goes on by itself once {lock.node} is empty. Its lock {lasts}"


# --- a lock that is never given up -----------------------------------------------------------------------------------


def reboots(node: Object, cluster: Cluster) -> bool:
    """Return whether kured empties or reboots a node now. Without its lock, which may not be known, the annotation says it."""
    held = locks(cluster)
    return any(lock.node == node.name for lock in held) if held else _BEGUN in node.annotations


def was_cordoned(node: Object, cluster: Cluster) -> bool:
    """Return whether a node that kured reboots was cordoned before. Without a record of kured, the times say it."""
    said = node.annotations.get(_BEFORE)
    own = [lock for lock in locks(cluster) if lock.node == node.name]
    if said is not None or own:
        return said == "true" or any(lock.cordoned for lock in own)
    cordoned, begun = node_phases.cordoned_since(node), clock.instant(node.annotations.get(_BEGUN))
    return cordoned is not None and begun is not None and cordoned < begun


def waits(node: Object) -> bool:
    """Return whether kured is to reboot a node, and has not cordoned it for that."""
    return _BEGUN in node.annotations and not node.at("spec", "unschedulable").boolean


def hold(cluster: Cluster) -> Hold | None:
    """Return the lock that keeps kured from rebooting any node for good; None: none is known to."""
    nodes = {node.name: node for node in cluster.known(NODE)}
    waiting = tuple(sorted(name for name, node in nodes.items() if waits(node)))
    if not waiting or unlisted(cluster, NODE):
        return None
    for daemon in {lock.daemon.full_name: lock.daemon for lock in locks(cluster)}.values():
        own = [lock for lock in locks(cluster) if lock.daemon is daemon]
        left = [lock for lock in own if lock.node not in nodes and not lock.expires]
        is_left = len(left) == len(own) >= _owners(daemon)  # else a reboot goes on, whose lock is in the annotation
        if is_left:
            return Hold(left[0], waiting)
    return None


def _owners(daemon: Object) -> int:
    """Return how many nodes may have the lock at once (``--concurrency``)."""
    value = _value(daemon)
    most = value.get("maxOwners") if isinstance(value, dict) else None
    return most if isinstance(most, int) else 1


class Hold(NamedTuple):
    """A lock whose holder does not exist, and which never expires."""

    lock: RebootLock
    waiting: tuple[str, ...]
    """The nodes that are to be rebooted."""

    def reason(self, cluster: Cluster) -> str:
        """Return what is wrong."""
        daemon, current = self.lock.daemon, clock.now(cluster)
        age = current - self.lock.since if current is not None and self.lock.since is not None else None
        since = f" for {clock.duration(age)}" if age is not None else ""
        return (
            f"kured reboots no node: {self.lock.node}, which does not exist, has held its lock{since} (annotation {LOCK} of "
            f"DaemonSet {daemon.full_name}), and the lock has no time to live. {names(self.waiting)} "
            f"{'wait' if len(self.waiting) > 1 else 'waits'} for a reboot, and that does not end by itself"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with a command."""
        where = ("-n", self.lock.daemon.namespace)
        release = shell("kubectl", "annotate", "daemonset", argument(self.lock.daemon.name), *where, f"{LOCK}-")
        return typed(
            f"make sure that {self.lock.node} is gone, and set --lock-ttl for the future; this gives the lock up",
            release,
        )
