"""Whether several pods find room together: first fit decreasing, then a bounded search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.model.kubernetes.cluster import check_time
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import PODS, missing

STEPS: Final = 5_000
"""Placements that the exact search tries before it gives up; a fraction of a second."""
MOST_PODS: Final = 200
"""Pods that are searched: the search is recursive, and its steps are too few for more."""
_COMPARISONS: Final = 500
"""Comparisons with other pods that take as long as one placement without any, or longer."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What became of the attempt to place pods."""

    fits: bool | None
    """None: the search was given up, or some node could not be judged."""
    placed: Mapping[str, str]
    """The node of each pod that found one, by ``namespace/name``, in an order in which
    kube-scheduler accepts them.
    """
    left: tuple[Pod, ...] = ()
    """The pods for which first fit decreasing found no room."""
    preempting: bool = False
    """Whether ``fits`` is None because they may fit after preemption."""
    in_turn: bool = False
    """Whether they find a place only if all of them move at the same time: see ``one_by_one``."""


@dataclass(frozen=True, slots=True)
class Item:
    """A pod that needs a place and the nodes that it could go to alone."""

    pod: Pod
    nodes: tuple[str, ...]
    uncertain: bool = False
    """Whether there may be further nodes."""
    source: str = ""
    """The node that it leaves: it never goes back there, even if others open it."""
    gone: tuple[Pod, ...] = ()
    """Pods that have ended when this one starts: the own one of a VM that restarts."""
    follows: tuple[Pod, ...] = ()
    """Pods that end once this one runs: the source pod of a migration."""


def pack(items: Sequence[Item], scheduler: FilterPipeline) -> Packing:
    """Return whether all pods find a place at the same time, besides all that run already."""
    if not items:
        return Packing(True, {})
    ordered = sorted(items, key=lambda item: _size(item, scheduler), reverse=True)
    placed, left = _first_fit(ordered, scheduler.fork())
    if not left:
        return Packing(True, placed)
    if any(item.uncertain for item in items) or len(items) > MOST_PODS:
        return Packing(None, placed, left)
    fits, found = _search(ordered, scheduler)
    return Packing(fits, placed if found is None else found, () if fits else left)


def one_by_one(items: Sequence[Item], scheduler: FilterPipeline) -> Packing:
    """Return whether all pods find a place if each starts after the one before has taken over from
    its source pod.

    A source pod that has gone makes room and repels no pod any more. But it counted for topology
    spread, so its node may have become the emptiest domain, which takes no pod while it is
    cordoned.
    """
    items = [_widened(item, scheduler) for item in items]
    search = _Search(scheduler, STEPS // 10, any_order=True)
    found = search.run(items)
    if found is not None:
        return Packing(True, dict(found))
    left = tuple(item.pod for item in items if item.pod.full_name not in search.most)
    return Packing(None if search.steps <= 0 else False, dict(search.most), left, in_turn=True)


def _search(
    items: Sequence[Item], scheduler: FilterPipeline
) -> tuple[bool | None, dict[str, str] | None]:
    """Return whether the pods fit, and where.

    A pod that is placed takes room and keeps others off, whatever the order. But it can open a node
    to a pod with affinity or topology spread, so the pods are searched for without these
    constraints first: if there is no place then, there is none. Otherwise every order counts.
    """
    open_later = any(waits_for_others(item.pod) for item in items)
    if open_later:
        items = [_widened(item, scheduler) for item in items]
    free = [replace(item, pod=_without_others(item.pod)) for item in items]
    search = _Search(scheduler, STEPS)
    found = search.run(sorted(free, key=lambda item: len(item.nodes)))
    if found is not None and open_later:
        search = _Search(scheduler, STEPS // 10, any_order=True)
        found = search.run(sorted(items, key=lambda item: len(item.nodes)))
    return (True if found is not None else None if search.steps <= 0 else False), found


def waits_for_others(pod: Pod) -> bool:
    """Return whether other pods can open a node to this one."""
    return bool(pod.affinity or pod.spread)


def _without_others(pod: Pod) -> Pod:
    return replace(pod, affinity=(), spread=()) if waits_for_others(pod) else pod


def _widened(item: Item, scheduler: FilterPipeline) -> Item:
    """Return the pod with the nodes that others can open to it."""
    if not waits_for_others(item.pod):
        return item
    return replace(
        item, nodes=scheduler.place(_without_others(item.pod), without=item.source).candidates
    )


def _size(item: Item, scheduler: FilterPipeline) -> tuple[float, str]:
    """Return the largest share of a node's resource that the pod requests:
    the usual measure for several resources.
    """
    nodes = [scheduler.state.nodes[name] for name in item.nodes[:1]] or list(
        scheduler.state.nodes.values()
    )[:1]
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


def _first_fit(
    items: Sequence[Item], scheduler: FilterPipeline
) -> tuple[dict[str, str], tuple[Pod, ...]]:
    placed: dict[str, str] = {}
    left: list[Pod] = []
    for item in items:
        name = next((name for name in item.nodes if _takes(scheduler, item, name)), "")
        if name:
            scheduler.state.bind(replace(item.pod, node=name))
            placed[item.pod.full_name] = name
        else:
            left.append(item.pod)
    return placed, tuple(left)


def _takes(scheduler: FilterPipeline, item: Item, name: str) -> bool:
    """Return whether a candidate of a pod still takes it, after other pods were placed."""
    check_time()
    state, pod = scheduler.state, item.pod
    if any(True for _ in missing({PODS: 1, **pod.requests}, state.free(state.nodes[name]))):
        return False
    return scheduler.is_simple(pod) or scheduler.accepts(pod, name, item.gone)


class _Search:
    """Depth-first search with a bound on the placements that it tries."""

    def __init__(self, scheduler: FilterPipeline, steps: int, *, any_order: bool = False) -> None:
        self.scheduler = scheduler.fork()
        self.steps = steps
        self.any_order = any_order
        self.placed: dict[str, str] = {}
        self.most: dict[str, str] = {}
        """The most pods that were placed at the same time."""

    def run(self, items: Sequence[Item]) -> dict[str, str] | None:
        """Return a node for each pod; None: there is none, or ``steps`` ran out."""
        return self.placed if self._descend(items) else None

    def _descend(self, items: Sequence[Item]) -> bool:
        if not items:
            return True
        return any(
            self._place(item, [*items[:index], *items[index + 1 :]])
            for index, item in enumerate(items if self.any_order else items[:1])
        )

    def _place(self, item: Item, others: Sequence[Item]) -> bool:
        tried: set[tuple[tuple[str, int], ...]] = set()
        for name in item.nodes:
            if self.steps <= 0:
                return False
            if not self.scheduler.is_simple(item.pod):
                self.steps -= self.scheduler.state.comparisons(item.pod) // _COMPARISONS
            if not _takes(self.scheduler, item, name):
                continue
            free = tuple(
                sorted(self.scheduler.state.free(self.scheduler.state.nodes[name]).items())
            )
            if free in tried and self.scheduler.is_simple(item.pod):
                continue  # a node with the same room leads to the same result
            tried.add(free)
            self.steps -= 1
            bound = replace(item.pod, node=name)
            self.scheduler.state.bind(bound)
            self.placed[item.pod.full_name] = name
            if len(self.placed) > len(self.most):
                self.most = dict(self.placed)
            for pod in item.follows:
                self.scheduler.state.unbind(pod)
            if self._descend(others):
                return True
            for pod in item.follows:
                self.scheduler.state.bind(pod)
            del self.placed[item.pod.full_name]
            self.scheduler.state.unbind(bound)
        return False
