"""Where one pod could go: the nodes that accept it, that refuse it, and the unjudged ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class ByLabels(NamedTuple):
    """The nodes by what names, labels and taints decide; shared by pods that demand the same."""

    accepting: tuple[str, ...]
    """Sorted."""
    refusing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one pod could go. Nodes are judged one by one, as if nothing else moved.

    A cluster has thousands of VMs and hundreds of nodes, so only the nodes that differ from what
    labels and taints decide are kept for each pod.
    """

    by_labels: ByLabels
    without: str = ""
    """The node that is left out: the one that the pod is on."""
    judged: Mapping[str, str | None] = field(default_factory=dict)
    """Nodes where more than labels decides: all causes; empty: accepted; None: undetermined."""
    unseen: tuple[str, ...] = ()
    """What could not be read. No node certainly accepts the pod then."""
    complete: bool = True
    """Whether every node of the cluster is known."""
    preempting: str = ""
    """A node that takes the pod if its pods of lower priority go, where none takes it now."""
    guessed: bool = False
    """Whether only what could not be read, such as its requests, refuses the pod besides labels."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the nodes that certainly accept the pod, sorted."""
        return () if self.unseen else tuple(self._open())

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Nodes on which nothing is known to be wrong, but not everything could be read."""
        blind = [
            name
            for name, causes in self.judged.items()
            if causes is None or (causes and self._may_take(name))
        ]
        return tuple(sorted((*blind, *self._open()))) if self.unseen else tuple(sorted(blind))

    def _may_take(self, name: str) -> bool:
        """Return whether a node that refuses the pod may take it after all."""
        return self.guessed and name not in self.by_labels.refusing

    def _open(self) -> Iterator[str]:
        # one look at each node: a drain asks this for each VM and each node
        shut = {self.without, *(name for name, causes in self.judged.items() if causes != "")}
        return (name for name in self.by_labels.accepting if name not in shut)

    @property
    def refusals(self) -> dict[str, str]:
        """The nodes that refuse the pod, each with all causes."""
        found = {
            name: causes for name, causes in self.by_labels.refusing.items() if name != self.without
        }
        return found | {
            name: causes
            for name, causes in self.judged.items()
            if causes and not self._may_take(name)
        }

    def refusal(self, name: str) -> str:
        """Return all causes for which a node refuses the pod; empty: it may take it."""
        if name in (self.without, self.preempting):
            return ""
        causes = self.judged.get(name)
        taken = causes and not self._may_take(name)
        return (causes or "") if taken else self.by_labels.refusing.get(name, "")

    @property
    def has_candidate(self) -> bool:
        return not self.unseen and next(self._open(), None) is not None

    @property
    def is_certain(self) -> bool:
        """Whether every node could be judged, and none may be a candidate after preemption."""
        return self.complete and not self.preempting and not self.undetermined

    @property
    def certain(self) -> tuple[str, ...] | None:
        """The candidates, or None if a node is not judged, or may be one after preemption."""
        return self.candidates if self.is_certain else None
