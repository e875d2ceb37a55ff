"""What happened in a run of the simulation, and what several runs say together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.rollouts import Pool

MAX_EVENTS: Final = 500_000
"""Events after which a simulation is given up; 10,000 VMs on 500 nodes need about 50,000."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration that succeeded, in seconds from the beginning."""

    vm: str
    source: str
    target: str
    start: int
    end: int


@dataclass(slots=True)
class Outcome:
    """What happened, in seconds from the beginning."""

    started: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)
    migrations: list[Migration] = field(default_factory=list)
    """In the order in which they ended."""
    stops: dict[str, str] = field(default_factory=dict)
    """Nodes that never become empty, each with the reason, in the order in which that shows."""
    lost: dict[str, tuple[str, str]] = field(default_factory=dict)
    """VMs that are lost with their nodes, as the time of a drain ends: the node, and why they are
    still there.
    """
    waited: dict[str, int] = field(default_factory=dict)
    """The seconds for which VMs that were shut down or lost found no room to start again."""
    off: frozenset[str] = frozenset()
    """Those that have found none until the end."""
    exhausted: bool = False
    """Whether the bound in events was reached."""
    crowded: bool = False
    """Whether a VM had to wait for room on another node."""

    def start(self, vm: str, waited: int) -> None:
        """Note that a VM has started again after some seconds without room."""
        self.moves[vm] = self.moves.get(vm, 0) + 1
        self.waited[vm] = self.waited.get(vm, 0) + waited

    @property
    def seconds(self) -> int:
        return max(self.ended.values(), default=0)


def leftovers(pools: Sequence[Pool], outcome: Outcome) -> list[str]:
    """Return the nodes that were never started."""
    return [node for pool in pools for node in pool.to_do if node not in outcome.started]


def shown(runs: Sequence[Outcome]) -> Mapping[str, str]:
    """Return the nodes that do not become empty in some run, each with a reason."""
    return {node: reason for run in runs for node, reason in run.stops.items()}


def undetermined(runs: Sequence[Outcome]) -> Iterator[str]:
    """Yield why the answer is unknown: a run was given up, or only some of them complete."""
    if any(run.exhausted for run in runs):
        yield f"the simulation was given up after {MAX_EVENTS:,} events"
    elif len({bool(run.stops) for run in runs}) > 1:
        node, reason = next(iter(shown(runs).items()))
        yield (
            f"the end on {node} depends on which VMs KubeVirt moves first and on how long they "
            f"take: {reason}"
        )


@dataclass(frozen=True, slots=True)
class Wave:
    """Nodes that start at the same time."""

    nodes: tuple[str, ...]
    start: Range
    end: Range
    waits: tuple[str, ...] = ()
    """What has to pass before their drains begin, although their updater begins with them now."""


def waves(
    pools: Sequence[Pool],
    low: Outcome,
    high: Outcome,
    lasts: Range | None,
    held: Mapping[str, tuple[str, ...]],
) -> tuple[Wave, ...]:
    """Return the waves of an upgrade.

    Args:
        pools: its pools.
        low, high: the shorter run and the longer one.
        lasts: the range of all runs; None: one does not end.
        held: what the drains of nodes wait for that would begin now.
    """
    return _until(lasts, tuple(_waves(pools, low, high, held)))


def whole(seconds: Iterable[int]) -> Range:
    """Return the range of some runs."""
    return _range(*seconds)


def _waves(
    pools: Sequence[Pool], low: Outcome, high: Outcome, held: Mapping[str, tuple[str, ...]]
) -> Iterator[Wave]:
    """Yield the nodes by the time at which they start in the shorter run, without those that have
    begun, which come first.
    """
    by_start: dict[tuple[int, bool, tuple[str, ...]], list[str]] = {}
    for pool in pools:
        for node in pool.to_do:
            if node in low.started and node in high.started:
                waiting = not high.started[node] and node not in pool.begun
                waits = held.get(node, ()) if waiting else ()
                key = low.started[node], node not in pool.begun, waits
                by_start.setdefault(key, []).append(node)
    for (start, _, waits), nodes in sorted(by_start.items()):
        ends = [
            (low.ended[node], high.ended[node])
            for node in nodes
            if node in low.ended and node in high.ended
        ]
        if len(ends) == len(nodes):
            yield Wave(
                tuple(nodes),
                _range(start, max(high.started[node] for node in nodes)),
                _range(max(end for end, _ in ends), max(end for _, end in ends)),
                waits,
            )


def _until(whole: Range | None, waves: tuple[Wave, ...]) -> tuple[Wave, ...]:
    """Return the waves, of which the one that ends last takes as long as the whole upgrade may:
    chance adds to the runs of which the others tell.
    """
    if whole is None or not waves:
        return waves
    last = max(range(len(waves)), key=lambda each: waves[each].end.high)
    end = waves[last].end
    longest = replace(waves[last], end=_range(end.low, whole.low, end.high, whole.high))
    return (*waves[:last], longest, *waves[last + 1 :])


def _range(*seconds: int) -> Range:
    """Return the range of all runs; chance that is best at each step is not always best in the
    end.
    """
    return Range(min(seconds), max(seconds))
