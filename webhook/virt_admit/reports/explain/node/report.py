"""The report of ``explain node/NAME`` as one value: its fields are the keys of the JSON, in order.

None means that the value cannot be determined; ``unseen`` names what could not be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.reports.drain.report import DrainedNode
from virt_admit.reports.explain.judged_rules import JudgedRule


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """The node that is explained."""

    name: str
    state: tuple[str, ...]
    """Of ``cordoned``, ``not Ready``, ``not seen``."""
    vms: tuple[str, ...] | None
    """The VMs on it. None: not all of them could be read."""


@dataclass(frozen=True, slots=True)
class UpgradeOfNode:
    """The place of the node in an upgrade of the cluster. Times are whole seconds from its beginning."""

    possible: bool | None
    """Whether the upgrade of the whole cluster is possible, as ``upgrade`` says."""
    start: Range | None
    end: Range | None
    stops: tuple[str, ...]
    """Why this node stops the upgrade."""


@dataclass(frozen=True, slots=True)
class RestartTime:
    """Seconds from the moment in which the node stops reporting until its VMs can start elsewhere."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class CheckOfNode:
    """A health check that watches the node."""

    kind: str
    namespace: str
    name: str
    restart: RestartTime | None
    """None: it never confirms that the node is down."""
    idle: str
    """Why it never does; empty: it does."""


@dataclass(frozen=True, slots=True)
class RestartAfterLoss:
    """Whether a VM starts again after its node is lost."""

    namespace: str
    name: str
    outcome: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class LossOfNode:
    """What happens after the node stops reporting for good."""

    covered: bool | None
    """Whether a health check confirms that it is down."""
    checks: tuple[CheckOfNode, ...]
    vms: tuple[RestartAfterLoss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node: its drain and its loss."""

    version: Literal[1] = 1
    node: ExplainedNode
    drain: DrainedNode
    """The entry of the node in the JSON of ``drain``."""
    upgrade: UpgradeOfNode
    loss: LossOfNode
    outage: None
    control: tuple[Component, ...]
    rules: tuple[JudgedRule, ...] | None
    problems: tuple[str, ...]
    commands: tuple[str, ...]
    unseen: tuple[str, ...]
