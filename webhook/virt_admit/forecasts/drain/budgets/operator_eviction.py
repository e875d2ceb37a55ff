"""The eviction of a pod whose PodDisruptionBudget an operator writes,
and what the operator may answer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import pod_budgets
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads

READS: Final[Reads] = {
    NODE: ("spec.unschedulable",),
    PDB: ("metadata.labels", "metadata.ownerReferences", "spec", "status"),
    POD: ("metadata.labels", "spec.nodeName", *CONDITIONS),
}


class Way(enum.Enum):
    """What the drain of a node meets at a budget of an operator."""

    GOES = enum.auto()
    """The pod is evicted at once."""
    WAITS = enum.auto()
    """The operator makes way by itself."""
    NOW = enum.auto()
    """Refused by the state of the moment, without a known end."""
    NEVER = enum.auto()
    """Refused until the operator's object is changed."""


class OperatorAnswer(NamedTuple):
    """What an operator does about the eviction of one pod."""

    way: Way
    reason: str = ""
    remedy: str = ""
    """For ``NOW`` and ``NEVER``."""
    awaits: tuple[str, ...] = ()
    """For ``NOW``: the nodes whose return ends it."""
    passes: bool = False
    """Whether these nodes are being rebooted and come back within minutes."""
    of_pods: bool = False
    """For ``NOW``: whether it lasts until pods of the budget are ready, so that these say why."""


GOES: Final = OperatorAnswer(Way.GOES)


@dataclass(frozen=True, slots=True)
class PodEviction:
    """A pod that a drain evicts, and the budget of an operator that selects it."""

    pod: Object
    budget: Object
    never: str
    """Why the form of the budget can never allow an eviction; empty: it can."""
    cluster: Cluster

    @property
    def node(self) -> str:
        """The node that is drained."""
        return self.pod.at("spec", "nodeName").text or ""

    @property
    def allowed(self) -> int:
        """The number of evictions that the budget allows now;
        a budget without a status allows none.
        """
        return 0 if self.never else self.budget.at("status", "disruptionsAllowed").integer or 0

    @property
    def pods(self) -> Iterator[Object]:
        """The pods in the namespace of the budget. Raises Unseen after those that are known."""
        return self.cluster.list(POD, self.budget.namespace)

    @property
    def selected(self) -> Iterator[Object]:
        """The pods that the budget selects. Raises Unseen after those that are known."""
        return pod_budgets.selected(self.budget, self.pods)


def selected_labels(budget: Object) -> dict[str, str]:
    """Return the labels that the selector of a budget demands."""
    return dict(budget.at("spec", "selector", "matchLabels").texts)


def is_ready(pod: Object) -> bool:
    return pod.condition("Ready")["status"].text == "True"


def node_of(pod: Object) -> str:
    return pod.at("spec", "nodeName").text or ""


def is_schedulable(node: str, cluster: Cluster) -> bool:
    found = cluster.get(NODE, "", node)
    return found is not None and found.at("spec", "unschedulable").boolean is not True


def not_ready(what: str) -> OperatorAnswer:
    """Return that the budget allows nothing until a pod of it is ready again."""
    reason = f"{what} is not ready, so it allows no disruption now"
    return OperatorAnswer(
        Way.NOW, reason, "Wait until its pods are ready, or repair them.", of_pods=True
    )
