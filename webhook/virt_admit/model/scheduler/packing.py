"""Whether several pods find room at the same time: first fit decreasing, then a bounded exact search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.model.scheduler.filters import Scheduler
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import PODS, missing

STEPS: Final = 5_000
"""Placements that the exact search tries before it gives up; a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What became of the attempt to place pods."""

    fits: bool | None
    """None: the search was given up, or some node could not be judged."""
    placed: Mapping[str, str]
    """The node of each pod that found one, by ``namespace/name``."""
    left: tuple[Pod, ...] = ()
    """The pods for which first fit decreasing found no room."""


@dataclass(frozen=True, slots=True)
class Item:
    """A pod that needs a place and the nodes that it could go to alone."""

    pod: Pod
    nodes: tuple[str, ...]
    uncertain: bool = False
    """Whether there may be further nodes."""


def pack(items: Sequence[Item], scheduler: Scheduler) -> Packing:
    """Return whether all pods find a place at the same time, in addition to all that run already."""
    if not items:
        return Packing(True, {})
    ordered = sorted(items, key=lambda item: _size(item, scheduler), reverse=True)
    placed, left = _first_fit(ordered, scheduler.fork())
    if not left:
        return Packing(True, placed)
    if any(item.uncertain for item in items):
        return Packing(None, placed, left)
    if any(not item.nodes for item in items):
        return Packing(False, placed, left)
    search = _Search(scheduler)
    found = search.run(sorted(ordered, key=lambda item: len(item.nodes)))
    if found is not None:
        return Packing(True, found)
    return Packing(None if search.steps <= 0 else False, placed, left)


def _size(item: Item, scheduler: Scheduler) -> tuple[float, str]:
    """Return the largest share of a node's resource that the pod requests: the usual measure for several resources."""
    nodes = [scheduler.state.nodes[name] for name in item.nodes[:1]] or list(scheduler.state.nodes.values())[:1]
    share = max(
        (
            value / offered
            for node in nodes
            for name, value in item.pod.requests.items()
            if (offered := (node.allocatable or {}).get(name, 0))
        ),
        default=0.0,
    )
    return share, item.pod.full_name


def _first_fit(items: Sequence[Item], scheduler: Scheduler) -> tuple[dict[str, str], tuple[Pod, ...]]:
    placed: dict[str, str] = {}
    left: list[Pod] = []
    for item in items:
        name = next((name for name in item.nodes if _takes(scheduler, item.pod, name)), "")
        if name:
            scheduler.state.bind(replace(item.pod, node=name))
            placed[item.pod.full_name] = name
        else:
            left.append(item.pod)
    return placed, tuple(left)


def _takes(scheduler: Scheduler, pod: Pod, name: str) -> bool:
    """Return whether a node among a pod's candidates still takes it, after other pods were placed."""
    state = scheduler.state
    if any(True for _ in missing({PODS: 1, **pod.requests}, state.free(state.nodes[name]))):
        return False
    return scheduler.is_simple(pod) or scheduler.accepts(pod, name)


class _Search:
    """Depth-first search with a bound on the placements that it tries."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler.fork()
        self.steps = STEPS

    def run(self, items: Sequence[Item]) -> dict[str, str] | None:
        """Return a node for each pod, or None if there is none or the search was given up (``steps`` is 0)."""
        placed: dict[str, str] = {}
        return placed if self._descend(items, 0, placed) else None

    def _descend(self, items: Sequence[Item], depth: int, placed: dict[str, str]) -> bool:
        if depth == len(items):
            return True
        item = items[depth]
        tried: set[tuple[tuple[str, int], ...]] = set()
        for name in item.nodes:
            if self.steps <= 0:
                return False
            if not _takes(self.scheduler, item.pod, name):
                continue
            free = tuple(sorted(self.scheduler.state.free(self.scheduler.state.nodes[name]).items()))
            if free in tried and self.scheduler.is_simple(item.pod):
                continue  # a node with the same room leads to the same result
            tried.add(free)
            self.steps -= 1
            bound = replace(item.pod, node=name)
            self.scheduler.state.bind(bound)
            if self._descend(items, depth + 1, placed):
                placed[item.pod.full_name] = name
                return True
            self.scheduler.state.unbind(bound)
        return False
