"""The states that a VM on a draining node can have."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.migration_failures import Failure
from virt_admit.model.problems import ProblemCause


class State(enum.StrEnum):
    """What a VM on a draining node is doing now."""

    GONE = "gone"
    ENDED = "ended"
    STOPPING = "stopping"
    STARTING = "starting"
    REFUSED = "refused"
    EXTERNAL = "external"
    STALE_MARK = "stale-mark"
    MARKED = "marked"
    TWO_PODS = "two-pods"
    BACKOFF = "backoff"
    BLOCKED_BY_BACKUP = "blocked-by-backup"
    BLOCKED_BY_VOLUME = "blocked-by-volume"
    QUOTA = "quota"
    QUEUED = "queued"
    NO_TARGET = "no-target"
    UNSCHEDULABLE = "unschedulable"
    TARGET_PENDING = "target-pending"
    TARGET_NOT_READY = "target-not-ready"
    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    POST_COPY = "post-copy"
    ABORTING = "aborting"
    ARRIVED = "arrived"
    NOT_CLOSED = "not-closed"
    DECENTRALIZED = "decentralized"
    STILL = "still"


class Flag(enum.StrEnum):
    """What is true besides the state."""

    LEFTOVER = "leftover"
    TAINTED = "tainted"
    FOREIGN = "foreign"
    ARRIVING = "arriving"
    COPYING = "copying"
    """Its disks are copied to other claims, as its volumes were changed."""
    UNATTACHED = "unattached"
    """Its target pod is ready and waits for the pod that attaches its volumes there."""
    UNASKED = "unasked"
    """Its eviction would be refused, and nothing evicts it."""


PLACED: Final = frozenset(
    (
        State.TARGET_PENDING,
        State.TARGET_NOT_READY,
        State.PREPARING,
        State.RUNNING,
        State.PAUSED,
        State.POST_COPY,
        State.ARRIVED,
        State.NOT_CLOSED,
    )
)
"""States in which another node has room for the VM already: its target pod holds it."""


_RUNS_THERE: Final = frozenset(
    (State.TARGET_NOT_READY, State.PREPARING, State.RUNNING, State.PAUSED, State.POST_COPY)
)
"""Those in which the target pod runs, wherever that is."""


@dataclass(frozen=True, slots=True)
class VmState:
    """The state of one VM on one node."""

    state: State = State.STILL
    flags: tuple[Flag, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    """When KubeVirt takes its next step by itself. None: not known, or without limit."""
    attempts: int = 0
    """Failed migrations since the last success."""
    failure: Failure | None = None
    """The last of them."""
    source: str = ""
    """The node from which an arriving VM comes."""
    target: str = ""
    """The node to which it migrates."""
    detail: str = ""
    """Words of KubeVirt or kube-scheduler, or the name of what it waits for."""
    migration: Object | None = None
    silent: bool = False
    """Whether the node to which it migrates does not report, so that it has no room there."""
    late: bool = False
    """Whether the state lasts much longer than it should."""
    holders: tuple[tuple[str, str], ...] = ()
    """Namespace and name of the VMs whose migrations hold the places that it waits for."""
    place: int = 0
    """The first place that it may have among the VMs that wait for the same places, from 1.
    0: it does not wait.
    """
    last: int = 0
    """The last one: those of the same priority go in no order."""
    waiting: int = 0
    """The number of these VMs."""

    @property
    def placed(self) -> bool:
        """Whether another node has room for the VM already."""
        if self.silent:
            return False
        return self.state in _RUNS_THERE or (self.state in PLACED and bool(self.target))

    @property
    def others(self) -> int:
        """The number of other VMs that wait for the same places."""
        return max(self.waiting - 1, 0)

    @property
    def tied(self) -> bool:
        """Whether another one that waits has the same priority."""
        return self.last > self.place

    @property
    def unordered(self) -> bool:
        """Whether all that wait have the same priority, so that no place is known."""
        return self.tied and self.last - self.place == self.others


AT_REST: Final = VmState()


class StateEffect(enum.IntEnum):
    """The effect of a state on a drain, worst last."""

    WAITS = 0
    UNKNOWN = 1
    BLOCKS = 2


class Ruling(NamedTuple):
    """What a state means for a drain, with the sentence about it and the remedy (empty:
    none needed).
    """

    effect: StateEffect
    reason: str
    remedy: str = ""
    cause: ProblemCause = ProblemCause.MIGRATION_FAILS
    """The cause of the problem if the effect is ``BLOCKS``."""
