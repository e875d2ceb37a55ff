"""The phases of a node that is being updated."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Field, Object


class Phase(enum.StrEnum):
    """How far the update of one node is."""

    DONE = "done"
    DRAINING = "draining"
    UPDATING = "updating"
    REBOOTING = "rebooting"
    RETURNING = "returning"
    """Updated, and still cordoned or not Ready."""
    FAILING = "failing"
    """The updater has reported an error and does not go on with this node by itself."""
    NEXT = "next"
    """It is chosen as soon as the updater looks again."""
    WAITING = "waiting"
    NOT_PART = "not part"


IN_FLIGHT: Final = frozenset(
    (Phase.DRAINING, Phase.UPDATING, Phase.REBOOTING, Phase.RETURNING, Phase.FAILING)
)
"""The phases of a node that the updater has begun and not finished."""
EMPTIED: Final = frozenset((Phase.UPDATING, Phase.REBOOTING, Phase.RETURNING))
"""The phases after the drain."""


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """What updates a node, and how far it is."""

    kind: str
    """The kind and the name of the object that says so."""
    name: str
    phase: Phase
    since: datetime | None = None
    """When the phase began, else when the node was cordoned. None: not known."""
    exact: bool = False
    """Whether ``since`` is the begin of the phase."""
    waits_for: str = ""
    """What it waits for, in the words of the updater. Empty: it does not say."""
    begun: bool = True
    """Whether it is on its way to another configuration. One that only fails may not be."""
    wanted: str = ""
    """The configuration that its pool gives it; empty: not known, or none as it is paused."""
    withdrawn: str = ""
    """That it fails with a configuration which its pool no longer gives, in words; empty: it does
    not.
    """


@dataclass(frozen=True, slots=True)
class PoolUpdate:
    """The roll-out of one pool of nodes, in the order in which they are updated."""

    kind: str
    name: str
    nodes: Mapping[str, NodeUpdate] = field(default_factory=dict)
    began: datetime | None = None
    """When the roll-out began. None: not known."""
    rolling: bool | None = None
    """Whether its objects say that a roll-out is under way. None: the phases of its nodes do."""
    revisions_unknown: bool = False
    """Whether nothing says of some node that is waiting whether it is done."""
    paused: tuple[str, ...] = ()
    """Nodes before which the roll-out waits until its administrator resumes it."""

    @property
    def in_flight(self) -> bool:
        """Whether some node is still to be updated.

        Deleting a Machine for another reason does not count.
        """
        if self.rolling is not None:
            return self.rolling and bool(self.nodes)
        return any(
            update.phase not in (Phase.DONE, Phase.NOT_PART) for update in self.nodes.values()
        )


def by_node(pools: Iterable[PoolUpdate]) -> Iterator[tuple[str, NodeUpdate]]:
    """Yield the nodes of roll-outs, each with what updates it."""
    return ((name, update) for pool in pools for name, update in pool.nodes.items())


_CORDONED: Final = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node; the node controller writes its time
(controller_utils.go#SwapNodeControllerTaint).
"""


def cordoned_since(node: Object) -> datetime | None:
    """Return when a node was cordoned; None: it is not cordoned, or the taint has no time."""
    taints = node.at("spec", "taints").items()
    return next(
        (
            clock.instant(taint["timeAdded"].text)
            for taint in taints
            if taint["key"].text == _CORDONED
        ),
        None,
    )


def cordoned_by(node: Object) -> str:
    """Return which manager of fields cordoned a node, such as ``kubectl``; empty: not known."""
    managers = (
        entry["manager"].text
        for entry in node.metadata["managedFields"].items()
        if entry.at("fieldsV1", "f:spec", "f:unschedulable").present
    )
    return next(filter(None, managers), "")


def uncordons(node: str, cluster: Cluster) -> Iterator[datetime]:
    """Yield when a node was uncordoned, as far as its kubelet told it."""
    for event in events.known(NODE.kind, "NodeSchedulable", cluster):
        time = events.time_of(event)
        if event.at("involvedObject", "name").text == node and time is not None:
            yield time


def is_away(node: Object) -> bool:
    """Return whether a node is cordoned or does not report that it is Ready."""
    ready = node.condition("Ready")["status"].text
    return bool(node.at("spec", "unschedulable").boolean) or ready in ("False", "Unknown")


def true_since(condition: Field) -> datetime | None:
    """Return since when a condition is True; None: it is not, or the time is not known."""
    is_true = condition["status"].text == "True"
    return clock.instant(condition["lastTransitionTime"].text) if is_true else None


def unready_since(node: Object) -> datetime | None:
    """Return when a node that is not Ready left that state; None: it is Ready,
    or the time is not known.
    """
    ready = node.condition("Ready")
    return (
        None if ready["status"].text == "True" else clock.instant(ready["lastTransitionTime"].text)
    )
