"""The report of ``explain node/NAME`` as one value: its fields are the keys of the JSON, in order.

None means that the value cannot be determined; ``unseen`` names what could not be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.model.evidence.node_differences import NodeDifference
from virt_admit.reports.drain.report import DrainedNode
from virt_admit.reports.explain.judged_rules import JudgedRule
from virt_admit.reports.outage.report import NodeOutage


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
    """The place of the node in an upgrade of the cluster.

    Times are whole seconds from its beginning.
    """

    possible: bool | None
    """Whether the upgrade of the whole cluster is possible, as ``upgrade`` says."""
    because: str | None
    """The first reason why it is not possible, or cannot be determined."""
    start: Range | None
    """None with an end: its update is under way."""
    end: Range | None
    stops: tuple[str, ...]
    """Why this node stops the upgrade."""
    before_nodes: str | None = None
    """What an update under way does before the nodes. Times count from their begin. Null:
    nothing.
    """
    takes_no_vm: str | None = None
    """Why no VM of another node can go to this one now, as ``upgrade`` says. Null:
    it may take one.
    """
    stays_stopped: int = 0
    """The number of VMs of all nodes that it shuts down for good: what a possible upgrade costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node: its drain and its loss."""

    version: Literal[1] = 1
    node: ExplainedNode
    drain: DrainedNode
    """The entry of the node in the JSON of ``drain``."""
    upgrade: UpgradeOfNode
    outage: NodeOutage
    """The entry of the node in the JSON of ``outage``."""
    control: tuple[Component, ...]
    differences: tuple[NodeDifference, ...]
    """In what the node differs from all others of its role."""
    rules: tuple[JudgedRule, ...] | None
    problems: tuple[str, ...]
    commands: tuple[str, ...]
    unseen: tuple[str, ...]
