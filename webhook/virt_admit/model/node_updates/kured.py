"""kured, which drains and reboots the nodes that ask for it one after the other, and its lock.

Its pods write the lock into an annotation of their DaemonSet. The pod of the node that has it
drains that node. It keeps the lock until the node is back, or until its drain fails, which needs a
drain time-out. A node that was deleted meanwhile keeps it, unless the lock has a time to live. So
does a node whose reboot is blocked: 1.13 takes the lock before it looks for what blocks it.
Sources: kubereboot/kured: pkg/daemonsetlock/daemonsetlock.go#Acquire, #ttlExpired;
cmd/kured/main.go#rebootAsRequired, also in 1.12.0, 1.13.2 and 1.14.0; kubereboot/kured#792.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, json_codec, selectors, units
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase

LOCK: Final = "weave.works/kured-node-lock"
"""The annotation of the DaemonSet; a flag of kured can name another one."""
_BEGUN: Final = "weave.works/kured-reboot-in-progress"
"""The annotation of a node that kured is to reboot, until it has. kured writes it if a flag says
so, together with ``kured-most-recent-reboot-needed``, which stays after the reboot and so says
nothing (cmd/kured/main.go#rebootAsRequired).
"""

_BEFORE: Final = "kured.dev/node-unschedulable-before-drain"
"""The annotation of a node that says whether it was cordoned before the drain;
up to 1.17 the lock alone says so.
"""

READS: Final[Reads] = union(
    {
        VMI: ("status.nodeName", "status.phase"),
        DAEMON_SET: (
            f"metadata.annotations.{LOCK}",
            "spec.template.spec.containers.args",
            "spec.template.spec.containers.command",
            "spec.template.spec.containers.image",
        ),
        POD: ("metadata.labels", "metadata.ownerReferences", "spec.nodeName", "status.phase"),
        NODE: (
            f"metadata.annotations.{_BEGUN}",
            f"metadata.annotations.{_BEFORE}",
            "spec.taints",
            "spec.unschedulable",
            "status.conditions",
        ),
    }
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


@cached
def locks(cluster: Cluster) -> tuple[RebootLock, ...]:
    """Return the locks that are held, by node.

    A value that kured does not write counts for nothing.
    """
    daemons = (each for each in cluster.known(DAEMON_SET) if LOCK in each.annotations)
    found = [lock for daemon in daemons for lock in _of_daemon(daemon)]
    now = clock.now(cluster) if found else None  # what reads the time is judged again all the time
    held = (lock for lock in found if lock.until is None or now is None or lock.until > now)
    return tuple(sorted(held, key=lambda lock: lock.node))


def _value(daemon: Object) -> Any:
    return json_codec.embedded(daemon.annotations[LOCK])


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
    return RebootLock(
        daemon, value["nodeID"], since, until, not isinstance(lasts, int) or lasts > 0, cordoned
    )


_LONGEST: Final = 2**63
"""A Go duration: nanoseconds in 64 bits."""


def updates(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return what kured does to the nodes that have a lock:
    one that is not cordoned is not drained yet, or is back.
    """
    found = {}
    for lock in locks(cluster):
        node = find(cluster, NODE, "", lock.node)
        if node is not None and node.at("spec", "unschedulable").boolean:
            phase, since = _phase(node, lock, cluster)
            left = node_phases.unready_since(node)
            exact = phase is not Phase.REBOOTING or left is not None
            found[lock.node] = NodeUpdate(
                DAEMON_SET.kind, lock.daemon.name, phase, since, exact=exact
            )
    return found


def _phase(node: Object, lock: RebootLock, cluster: Cluster) -> tuple[Phase, datetime | None]:
    """Return how far kured is with a node, and since when: one without VMs that became Ready after
    the lock has rebooted.
    """
    ready = node.condition("Ready")
    changed = clock.instant(ready["lastTransitionTime"].text)
    if ready["status"].text != "True":
        return Phase.REBOOTING, changed or lock.since
    rebooted = changed is not None and lock.since is not None and changed > lock.since
    if rebooted and node.name not in vmis.occupied(cluster) and not unlisted(cluster, VMI):
        return Phase.RETURNING, changed
    return Phase.DRAINING, lock.since


def waiting(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that certainly wait for a lock, as far as kured marks nodes: they need a
    reboot and had none since.
    """
    held = {lock.node for lock in locks(cluster)}
    return tuple(
        sorted(
            node.name
            for node in cluster.known(NODE)
            if held and node.name not in held and waits(node)
        )
    )


def left_alone(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that kured does not reboot while its lock is held, as it marks those that it
    does."""
    held = locks(cluster)
    if not held or not all(marks_nodes(lock.daemon) for lock in held):
        return frozenset()
    turn = {lock.node for lock in held}
    return frozenset(
        node.name for node in cluster.known(NODE) if node.name not in turn and not waits(node)
    )


def unmarked(cluster: Cluster) -> Iterator[str]:
    """Yield that the nodes that are left alone may still get a mark: a pod of kured looks whether
    its node needs a reboot once in a ``--period``, and marks it then.
    """
    for lock in locks(cluster) if left_alone(cluster) else ():
        given, age = _argument(lock.daemon, "--period"), clock.elapsed(lock.since, cluster)
        period = given if _length(given) else _PERIOD
        if age is None or age < _length(period):
            yield (
                f"kured marks no further node for a reboot (it looks at each every {period}, and "
                f"{lock.node} has its lock{clock.lasts(age)})"
            )


_PERIOD: Final = "1h"
"""That of kured without the argument (cmd/kured/main.go#root)."""


def words(cluster: Cluster) -> Iterator[str]:
    """Yield which lock the nodes that are still to be rebooted wait for, and when it ends."""
    if not locks(cluster):
        return
    left = waiting(cluster)
    who = (
        f"{names(left)} wait{'s' * (len(left) == 1)}"
        if left
        else "Other nodes that need a reboot wait"
    )
    for lock in locks(cluster):
        if not left and marks_nodes(lock.daemon) and not unlisted(cluster, NODE):
            continue  # it would have marked the others
        gone = not unlisted(cluster, NODE) and find(cluster, NODE, "", lock.node) is None
        if (gone and not lock.expires) or _block(lock, cluster):
            continue  # ``hold`` says it
        since = clock.lasts(clock.elapsed(lock.since, cluster))
        ends = f"expires at {clock.stamp(lock.until)}" if lock.until is not None else "may expire"
        whose = (
            f"the lock of kured (DaemonSet {lock.daemon.full_name}), which {lock.node} has{since}"
        )
        if gone:
            yield f"{who} for {whose}. That node does not exist any more. Its lock {ends}"
        else:
            lasts = ends if lock.expires else "does not expire, as --lock-ttl is not set"
            yield f"{who} for {whose}. {_next(lock, cluster)}. Its lock {lasts}"


def _next(lock: RebootLock, cluster: Cluster) -> str:
    """Return what has to become of the node with the lock before the next one has its turn."""
    update, back = updates(cluster).get(lock.node), _back(lock, cluster)
    if back is None:
        then = (
            "empty"
            if update is not None and update.phase is Phase.DRAINING
            else "back and uncordoned"
        )
        return f"kured goes on by itself once {lock.node} is {then}"
    begin = f"{lock.node} is back since {clock.stamp(back)}"
    delay, now = _argument(lock.daemon, "--lock-release-delay"), clock.now(cluster)
    length = _length(delay)
    if not length:
        return f"{begin}, and kured goes on by itself once its pod there has given the lock up"
    kept = f"{begin}, and kured keeps the lock after that for --lock-release-delay={delay}"
    # in Release, which follows the uncordon (pkg/daemonsetlock/daemonsetlock.go)
    until = max((back, *node_phases.uncordons(lock.node, cluster))) + length
    return kept if now is not None and now > until else f"{kept}, until about {clock.stamp(until)}"


def _length(duration: str) -> timedelta:
    """Return the length of a duration of Go; nothing if it is none."""
    try:
        return timedelta(microseconds=units.parse_duration(duration) // 1000)
    except (ValueError, OverflowError):
        return timedelta()


def _back(lock: RebootLock, cluster: Cluster) -> datetime | None:
    """Return since when the node with a lock is Ready again and takes pods; None: it does not, or
    has not rebooted."""
    node = find(cluster, NODE, "", lock.node)
    if node is None or node.at("spec", "unschedulable").boolean:
        return None
    since = node_phases.true_since(node.condition("Ready"))
    return since if since is not None and lock.since is not None and since > lock.since else None


# --- a lock that is never given up ----------------------------------------------------------------


def reboots(node: Object, cluster: Cluster) -> bool:
    """Return whether kured empties or reboots a node now.

    Without its lock, which may not be known, the annotation says it.
    """
    held = locks(cluster)
    return any(lock.node == node.name for lock in held) if held else _BEGUN in node.annotations


def was_cordoned(node: Object, cluster: Cluster) -> bool:
    """Return whether a node that kured reboots was cordoned before.

    Without a record of kured, the times say it.
    """
    said = node.annotations.get(_BEFORE)
    own = [lock for lock in locks(cluster) if lock.node == node.name]
    if said is not None or own:
        return said == "true" or any(lock.cordoned for lock in own)
    cordoned, begun = node_phases.cordoned_since(node), clock.instant(node.annotations.get(_BEGUN))
    return cordoned is not None and begun is not None and cordoned < begun


def waits(node: Object) -> bool:
    """Return whether kured is to reboot a node and has not cordoned it for that yet."""
    return _BEGUN in node.annotations and not node.at("spec", "unschedulable").boolean


def marks_nodes(daemon: Object) -> bool:
    """Return whether kured marks the nodes that are to be rebooted,
    which it does only with this argument.
    """
    return any(each in ("--annotate-nodes", "--annotate-nodes=true") for each in _arguments(daemon))


def _arguments(daemon: Object) -> Iterator[str]:
    """Yield the arguments of kured."""
    for one in daemon.at("spec", "template", "spec", "containers").items():
        for part in ("command", "args"):
            yield from (each.text or "" for each in one[part].items())


def _argument(daemon: Object, name: str) -> str:
    """Return the value of an argument of kured, as ``30m`` of ``--lock-release-delay=30m``; empty:
    it is not set."""
    return next(_values(daemon, name), "")


def _values(daemon: Object, name: str) -> Iterator[str]:
    """Yield the values of an argument that may be given several times."""
    given = (each.partition("=") for each in _arguments(daemon))
    return (value for key, _, value in given if key == name)


@cached
def hold(cluster: Cluster) -> Hold | None:
    """Return the lock that keeps kured from rebooting any other node for good; None: none is known
    to.
    """
    nodes = {node.name: node for node in cluster.known(NODE)}
    if unlisted(cluster, NODE):
        return None
    for daemon in {lock.daemon.full_name: lock.daemon for lock in locks(cluster)}.values():
        own = [lock for lock in locks(cluster) if lock.daemon is daemon]
        left = [
            lock
            for lock in own
            if not lock.expires and (lock.node not in nodes or _block(lock, cluster))
        ]
        # else a reboot goes on, whose lock is in the annotation
        is_left = len(left) == len(own) >= _owners(daemon)
        if is_left:
            blocked = _block(left[0], cluster)
            others = {name for name, node in nodes.items() if waits(node)} - {left[0].node}
            if blocked and not others and marks_nodes(daemon):
                continue  # that node is to stay as it is, and no other one waits
            return Hold(left[0], tuple(sorted(others)), blocked)
    return None


_LONG: Final = timedelta(hours=1)
"""A node with the lock that is not even cordoned after this time is not being rebooted."""

_KEEPS: Final = re.compile(r":v?1\.13\.[0-9]+(?:[-@]|$)")
"""The images whose kured takes the lock before it looks for what blocks the reboot."""


def _block(lock: RebootLock, cluster: Cluster) -> str:
    """Return what keeps a node with the lock from its reboot; empty: it goes on, or that is not
    known.

    Its drain would have cordoned it at once.
    """
    node, age = find(cluster, NODE, "", lock.node), clock.elapsed(lock.since, cluster)
    images = [
        each["image"].text or ""
        for each in lock.daemon.at("spec", "template", "spec", "containers").items()
    ]
    if node is None or age is None or age < _LONG or not any(map(_KEEPS.search, images)):
        return ""
    back = _back(lock, cluster) is not None or node.condition("Ready")["status"].text != "True"
    if back or node.at("spec", "unschedulable").boolean or not _needs_reboot(node, lock):
        return ""
    found = sorted(
        f"{vm_ledger.user(pod)} ({selector})"
        for selector in _values(lock.daemon, "--blocking-pod-selector")
        for pod in _selected(selector, node.name, cluster)
    )
    return names(dict.fromkeys(found)) if found else ""


def _needs_reboot(node: Object, lock: RebootLock) -> bool:
    return _BEGUN in node.annotations or not marks_nodes(lock.daemon)


def _selected(selector: str, node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the known pods on a node that block its reboot (pkg/blockers/kubernetespod.go)."""
    with contextlib.suppress(ValueError):
        parsed = selectors.parse_text(selector)
        for pod in cluster.known(POD):
            on_node = pod.at("spec", "nodeName").text == node and not pod.ended
            if on_node and parsed.matches(pod.labels):
                yield pod


def _owners(daemon: Object) -> int:
    """Return how many nodes may have the lock at once (``--concurrency``)."""
    value = _value(daemon)
    most = value.get("maxOwners") if isinstance(value, dict) else None
    return most if isinstance(most, int) else 1


class Hold(NamedTuple):
    """A lock that never expires, and whose holder does not exist or may not be rebooted."""

    lock: RebootLock
    waiting: tuple[str, ...]
    """The nodes that are to be rebooted, as far as kured marks them."""
    blocked: str = ""
    """The pods that keep the holder from its reboot; empty: it does not exist."""

    def concerns(self, node: str, cluster: Cluster) -> bool:
        """Return whether it is said at a node: one that waits, else the first one, since no mark
        says which ones wait.
        """
        return node in (
            self.waiting or (min((each.name for each in cluster.known(NODE)), default=""),)
        )

    def reason(self, cluster: Cluster) -> str:
        """Return what is wrong."""
        daemon = self.lock.daemon
        since = clock.lasts(clock.elapsed(self.lock.since, cluster))
        absent = "" if self.blocked else ", which does not exist,"
        ends = "lasts as long as that" if self.blocked else "does not end by itself"
        why = (
            f". Its reboot is blocked by {self.blocked}, as --blocking-pod-selector says, and "
            "kured 1.13 keeps the lock meanwhile, which"
            if self.blocked
            else ", and the lock"
        )
        return (
            f"kured reboots no node: {self.lock.node}{absent} has held its "
            f"lock{since} (annotation {LOCK} of DaemonSet {daemon.full_name}){why} has no "
            f"time to live. {self._waiting}, and that {ends}"
        )

    @property
    def knows_waiting(self) -> bool:
        """Whether nodes that are not marked certainly need no reboot."""
        return bool(self.waiting) or marks_nodes(self.lock.daemon)

    @property
    def _waiting(self) -> str:
        if not self.waiting:
            return "Each node that needs a reboot waits for it"
        return f"{names(self.waiting)} {'wait' if len(self.waiting) > 1 else 'waits'} for a reboot"

    @property
    def remedy(self) -> str:
        """What ends it, with a command."""
        if self.blocked:
            return typed(
                "update kured to 1.14 or later, which looks for such pods before it takes the "
                "lock; then give the lock up",
                self.release,
                f"or move {self.blocked} to another node or take the label away, if "
                f"{self.lock.node} may be rebooted",
            )
        return typed(
            f"make sure that {self.lock.node} is gone, and set --lock-ttl for the future; this "
            "gives the lock up",
            self.release,
        )

    @property
    def release(self) -> str:
        """The command that gives the lock up."""
        daemon = self.lock.daemon
        return shell(
            "kubectl",
            "annotate",
            "daemonset",
            argument(daemon.name),
            "-n",
            daemon.namespace,
            f"{LOCK}-",
        )
