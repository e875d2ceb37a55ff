"""What other than a VM keeps a drain from its end: blockers, and what passes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.problems import ProblemCause, ProblemId


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """Something for which a drain waits."""

    kind: str
    namespace: str
    name: str
    reason: str

    @property
    def subject(self) -> str:
        """Its kind and full name."""
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )


@dataclass(frozen=True, slots=True)
class Blocker(_Obstacle):
    """Something other than a VM that keeps a node from becoming empty."""

    remedy: str
    now: bool
    """Whether it is a state of the moment; otherwise it never passes by itself."""
    cause: str = ProblemCause.BLOCKED
    repeatable: bool = False
    """Whether a further drain passes: ``kubectl drain`` ends with an error,
    what updates nodes drains again.
    """
    awaits: tuple[str, ...] = ()
    """The nodes whose return ends it."""
    passes: bool = False
    """Whether these nodes are being rebooted and come back within minutes."""
    since: str | None = None
    """RFC 3339: since when a budget allows no disruption. None: not known."""
    of_vms: bool = False
    """Whether it keeps VMs that migrate alone, and no other pod."""

    @property
    def effect(self) -> str:
        """What it does, in words."""
        if self.of_vms and self.now:
            return "keeps VMs now"
        return "blocks now" if self.now else "blocks the drain"

    @classmethod
    def at(
        cls,
        obj: Object,
        kind: Kind,
        reason: str,
        remedy: str,
        *,
        now: bool,
        cause: str,
        repeatable: bool = False,
    ) -> Blocker:
        """Return that an object, which is of a kind, blocks."""
        place = kind.kind, obj.namespace, obj.name
        return cls(*place, reason, remedy, now=now, cause=cause, repeatable=repeatable)

    @property
    def id(self) -> ProblemId:
        """The id of the problem. Its root is this object."""
        return ProblemId(self.cause, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Wait(_Obstacle):
    """Something that a drain waits for, and that passes by itself."""

    since: str | None = None
    """RFC 3339. None: not known."""
    until: str | None = None
    """RFC 3339. None: not known."""

    @classmethod
    def at(cls, obj: Object, kind: Kind, reason: str, until: str | None = None) -> Self:
        """Return that a drain waits for an object, which is of a kind."""
        return cls(kind.kind, obj.namespace, obj.name, reason, until=until)


class ForeignWait(Wait):
    """Something that refuses an eviction until something else has passed, which no drain begins."""

    __slots__ = ()
