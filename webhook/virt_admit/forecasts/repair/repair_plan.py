"""The values of a repair plan: problems, changes and steps.

They know no files, no kubectl and no HTML.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object


class Goal(enum.StrEnum):
    """The goal of the steps."""

    DRAIN = "drain"
    UPGRADE = "upgrade"
    OUTAGE = "outage"


class CostClass(enum.StrEnum):
    """What a step costs."""

    NOTHING = "0"
    MIGRATION = "M"
    COPY = "D"
    RESTART = "R"
    DECISION = "H"


class Command(enum.StrEnum):
    """How a change is made."""

    PATCH = "patch"
    APPLY = "apply"
    VIRTCTL = "virtctl"
    PERSON = "person"


class TakesEffect(enum.StrEnum):
    """When a step takes effect."""

    AT_ONCE = "at once"
    LIVE = "at once on the running VM"
    COPY = "with a data copy and a live migration"
    RESTART = "with a restart"
    PERSON = "once a person has done it"


class Proof(enum.StrEnum):
    """What the cluster in memory says after a step."""

    FLIPS = "flips"
    PART = "part"
    DOES_NOT_FLIP = "does not flip"
    UNKNOWN = "cannot be determined"


class PlanStage(enum.IntEnum):
    """The order of steps. Cluster settings come before what needs them, roll-outs come last."""

    SETTINGS = 1
    QUOTAS = 2
    LIVE = 3
    ROOM = 4
    COPIES = 5
    RESTARTS = 6
    ROLLOUT = 7


class ObjectRef(NamedTuple):
    """The object that a problem or a change is about."""

    kind: Kind
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.full_name}"

    @classmethod
    def of(cls, kind: Kind, obj: Object) -> ObjectRef:
        """Return the subject that is this object."""
        return cls(kind, obj.namespace if kind.namespaced else "", obj.name)


class Witness(NamedTuple):
    """An object on which a rule or a verb shows a problem."""

    rule: str
    """Empty: no rule does, only a forecast."""
    subject: ObjectRef


@dataclass(frozen=True, slots=True)
class RootProblem:
    """One cause at one root object."""

    cause: str
    subject: ObjectRef
    nodes: tuple[str, ...]
    """The nodes that it keeps from being drained."""
    reason: str
    shown_by: tuple[Witness, ...] = ()
    vms: tuple[ObjectRef, ...] = ()
    """The VMIs that it keeps on their nodes."""
    remedy: str = ""
    """What a person can do about it where no step does."""

    @property
    def id(self) -> str:
        return f"{self.cause}:{self.subject.full_name}"

    @property
    def owner(self) -> str:
        """The namespace of its owner; empty: the cluster administrator."""
        return self.subject.namespace


class FieldEdit(NamedTuple):
    """A new value of a field."""

    path: tuple[str | int, ...]
    value: Any


class _Removed:
    """The value of an edit that removes the field."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = _Removed()


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change of one object, as it is wanted: the patch is made from it."""

    subject: ObjectRef
    command: Command
    edits: tuple[FieldEdit, ...] = ()
    manifest: Mapping[str, Any] | None = None
    """A new object. With ``PERSON``: an example of it."""
    arguments: tuple[str, ...] = ()
    """Of ``virtctl``."""
    text: str = ""
    """What a person has to do."""


@dataclass(frozen=True, slots=True)
class Patched:
    """A change with its JSON Patch and its inverse."""

    change: ObjectChange
    patch: tuple[Patch, ...] = ()
    undo: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step costs.

    ``class``: 0 nothing, M a live migration, D a data copy, R a restart, H a person decides.
    """

    class_: CostClass
    gib: int = 0
    """GiB that are copied, rounded up."""
    downtime: int = 0
    """Seconds during which a VM does not run, at most."""
    quota_gib: int = 0
    """GiB by which a storage quota is raised."""
    pods: int = 0
    """Pods that run from then on, besides those of today."""


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """What must be true, the arguments of ``kubectl`` that show it (empty: none does),
    and what they print.
    """

    text: str
    query: tuple[str, ...] = ()
    expected: str = ""


class DiskCopy(NamedTuple):
    """A claim that is copied into a new one."""

    namespace: str
    claim: str
    copy: str
    storage_class: str
    volume_mode: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One step of a plan."""

    id: str
    stage: PlanStage
    title: str
    """An order: ``copy disk db-root to class ceph-block``."""
    subject: ObjectRef
    changes: tuple[ObjectChange, ...]
    cost: StepCost = StepCost(CostClass.NOTHING)
    takes_effect: TakesEffect = TakesEffect.AT_ONCE
    solves: tuple[str, ...] = ()
    frees: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    preconditions: tuple[PlannedCheck, ...] = ()
    verify: tuple[PlannedCheck, ...] = ()
    risk: str = ""
    gitops: str = ""
    proof: Proof = Proof.UNKNOWN
    finding: str = ""
    """The verdict after the step where it does not flip."""
    alternatives: tuple[OtherWay, ...] = ()
    copies: tuple[DiskCopy, ...] = ()
    patched: tuple[Patched, ...] = ()
    predicted: tuple[Object, ...] = ()
    """What controllers make of the changes, besides what follows from the kind of the subject."""
    followed: tuple[ObjectChange, ...] = ()
    """Changes that a controller makes by itself after those of the step."""

    @property
    def owner(self) -> str:
        """The namespace whose owner must agree; empty: the cluster administrator."""
        return self.subject.namespace


@dataclass(frozen=True, slots=True)
class OtherWay:
    """Another way, and why it ranks lower."""

    title: str
    class_: CostClass
    lower_because: str
    decision: bool = False
    """Whether only a person may choose it, because it lowers protection."""


class RemainingProblem(NamedTuple):
    """A problem without a step, and why."""

    problem: RootProblem
    why: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """An ordered list of steps that reach a goal, as far as they do."""

    goal: Goal
    holds: bool | None
    """Whether the goal holds today."""
    reaches: bool | None
    """Whether it holds after the steps."""
    steps: tuple[RepairStep, ...]
    problems: tuple[RootProblem, ...]
    remaining: tuple[RemainingProblem, ...]
    unseen: tuple[str, ...]
    nodes: tuple[str, ...]
    """The nodes that were judged."""
    notes: tuple[str, ...] = ()
    """What the goal costs once it holds: VMs that stay off until their node is back."""
    cut: str = ""
    """How far the plan came, if it was given up; empty: to its end."""
