"""The report of ``explain vm/NAME`` as one value: its fields are the keys of the JSON, in order.

None means that the value cannot be determined; ``unseen`` names what could not be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.drain.vm_downtime import Downtime
from virt_admit.forecasts.drain.vm_events import EventForecast
from virt_admit.reports.drain.report import FailedMigration, MissingOnNode
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.outage.report import VmAfterLoss


@dataclass(frozen=True, slots=True)
class ExplainedVm:
    """The VM that is explained."""

    namespace: str
    name: str
    kind: str
    """``VirtualMachine``, or ``VirtualMachineInstance`` for a VMI without a VM."""
    running: bool | None
    node: str | None
    """None: it does not run, or that cannot be determined."""
    phase: str | None
    """The phase of its VMI."""
    run_strategy: str | None
    status: str | None
    """What KubeVirt itself says of the VM (``printableStatus``): ``Running``,
    ``ErrorUnschedulable``.
    """
    node_reports: bool | None
    """Whether the kubelet of its node reports. None: it has no node."""
    node_lost: bool | None
    """Whether its virt-handler does not report either: it is not known whether the guest runs.
    None: it has no node.
    """
    paused: str | None = None
    """Why its guest is paused, by KubeVirt's condition: ``PausedByUser``, ``PausedIOError``. None:
    it is not paused.
    """


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """How long a migration was in a phase."""

    phase: str
    seconds: int


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """One of the last migrations of the VM."""

    name: str
    phase: str
    asked_by: str
    created: str | None
    source: str | None
    target: str | None
    phases: tuple[PhaseTime, ...]
    failure: FailedMigration | None


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of the VM among the migrations that wait."""

    waits: bool
    limit: str
    """The limit that is reached, in words; empty: it does not wait."""
    others: int
    """The number of other VMs that wait for the same places. They start in no fixed order."""
    holders: tuple[str, ...]
    """The VMs that hold the places."""


@dataclass(frozen=True, slots=True)
class BudgetOfVm:
    """A PodDisruptionBudget that selects the pod of the VM."""

    namespace: str
    name: str
    allowed: int | None
    """The disruptions that it allows now."""
    blocks: bool
    """Whether it refuses an eviction of the pod."""


@dataclass(frozen=True, slots=True)
class VolumeOfVm:
    """A volume of the VM."""

    name: str
    kind: str
    """The source in the API: ``persistentVolumeClaim``, ``containerDisk``."""
    claim: str | None
    """Its PersistentVolumeClaim. None: it has none."""
    phase: str | None
    """The phase of the claim."""
    access_modes: tuple[str, ...] | None
    storage_class: str | None
    problem: str
    """Why it is not attached, or why another node cannot use it; empty:
    nothing is known to be wrong.
    """
    remedy: str = ""
    """What attaches it; empty: it is attached, or nothing says so."""
    copied_from: str = ""
    """The claim on which the guest runs, and which is copied to this one; empty: none is."""


@dataclass(frozen=True, slots=True)
class DrainOfVm:
    """The entry of the VM in the report of ``drain``;
    of a VM on no node only the outcome and the reason are known.
    """

    namespace: str
    name: str
    outcome: str
    """A word of ``drain``, or ``not running``."""
    reason: str
    remedy: str
    candidates: tuple[str, ...] | None = None
    short: tuple[MissingOnNode, ...] = ()
    state: str | None = None
    flags: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    attempts: int = 0
    failure: FailedMigration | None = None
    from_: str | None = None
    downtime: Downtime | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradeOfVm:
    """What an upgrade of the cluster and an update of KubeVirt do to the VM."""

    possible: bool | None
    """Whether the upgrade of the whole cluster is possible, as ``upgrade`` says."""
    outcome: str
    moves: int | None
    """Migrations and restarts during the upgrade."""
    update: str
    """How an update of KubeVirt reaches it."""
    reason: str
    stops: tuple[str, ...]
    """Why this VM stops the upgrade."""
    because: str | None = None
    """The first reason why it is not possible, or cannot be determined."""
    shutdowns: int = 0
    """How often its guest is shut down during the upgrade."""
    unless: str = ""
    """When it stays off although its node comes back; empty: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmReport:
    """One VM: where it is, what it does, and what would happen to it."""

    version: Literal[1] = 1
    vm: ExplainedVm
    state: str | None
    """A state of ``drain``, or ``stopped``."""
    strategy: str | None
    """The eviction strategy in force."""
    strategy_from: str | None
    """What sets it: ``VMI``, ``VM``, ``KubeVirt``, ``KubeVirt's default``."""
    migratable: bool | None
    candidates: tuple[str, ...] | None
    short: tuple[MissingOnNode, ...] | None
    migrations: tuple[MigrationRecord, ...] | None
    queue: QueuePlace | None
    budgets: tuple[BudgetOfVm, ...] | None
    volumes: tuple[VolumeOfVm, ...] | None
    control: tuple[Component, ...] | None
    drain: DrainOfVm
    upgrade: UpgradeOfVm
    outage: VmAfterLoss | None
    """The entry of the VM in the report of ``outage`` for its node. None: it is on no node."""
    events: tuple[EventForecast, ...]
    rules: tuple[JudgedRule, ...] | None
    problems: tuple[str, ...]
    """The ids of the problems that keep it on its node, and of those that the rules show."""
    commands: tuple[str, ...]
    avoid: tuple[str, ...]
    notes: tuple[str, ...]
    """What else is known of it, such as operations under way and words of KubeVirt and CDI."""
    unseen: tuple[str, ...]
