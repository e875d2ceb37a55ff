"""The nodes that a remediator leaves alone, by the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names


class Refused(NamedTuple):
    """The selected nodes that are not remediated."""

    by_reason: Mapping[str, tuple[str, ...]]
    """The names of the nodes by the reason."""
    everything: bool
    """Whether no other node is selected."""
    unseen: str = ""
    """What could not be read, so that more nodes may be among them."""

    @property
    def text(self) -> str:
        """The reasons with their nodes: ``no Machine exists (a, b)``."""
        return "; ".join(
            f"{reason} ({names(nodes, 60)})" for reason, nodes in self.by_reason.items()
        )


def refused(nodes: Selection, refusal: Callable[[Object], str]) -> Refused:
    """Return which of these nodes are left alone; ``refusal`` returns why one is,
    or an empty text.
    """
    by_reason: dict[str, list[str]] = {}
    unseen = nodes.unseen
    for node in nodes.objects:
        try:
            reason = refusal(node)
        except Unseen as missing:
            unseen = missing.what
            continue
        if reason:
            by_reason.setdefault(reason, []).append(node.name)
    found = {reason: tuple(some) for reason, some in by_reason.items()}
    total = sum(map(len, found.values()))
    return Refused(found, bool(total) and total == len(nodes) and not nodes.unseen, unseen)
