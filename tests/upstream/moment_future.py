"""What KubeVirt's controllers did after a moment of a run: the migrations of
``migrations/main.go``, and who held a place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

TICK: Final = 0.25
"""Seconds: two ticks of the fake kubelet, which notes what happens, and a little more."""
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Move:
    """One VirtualMachineInstanceMigration, its times in seconds since the beginning.

    What never came is at ``NEVER``.
    """

    uid: str
    vm: str
    """``namespace/name``."""
    source: str
    target: str
    evacuates: bool
    """Whether the evacuation controller created it."""
    created: float
    pod: float
    """When its target pod was created: from then on it holds a place."""
    bound: float
    ended: float
    phase: str
    """The last one."""
    phases: Mapping[str, float]

    def entered(self, phase: str) -> float:
        """Return when it came into a phase."""
        return self.phases.get(phase, NEVER)

    def holds_place(self, at: float) -> bool:
        return self.pod <= at < self.ended


@dataclass(frozen=True)
class Future:
    """A whole run."""

    result: Mapping[str, Any]
    """The answer of ``main.go``."""
    limits: tuple[int, int]
    """Migrations at the same time in the cluster, and away from one node."""

    @cached_property
    def moves(self) -> Mapping[str, Move]:
        """The migrations by uid, in the order in which they were created."""
        where = {_name(vmi): vmi["status"]["nodeName"] for vmi in self.result["vmis"] or ()}
        found: dict[str, Move] = {}
        for row in self.result["migrations"]:
            move = _move(row, where[row["vmi"]])
            found[move.uid] = move
            if move.phase == "Succeeded":  # a VM has one migration at a time
                where[move.vm] = move.target
        return found

    @property
    def end(self) -> float:
        """When the run ended, so that nothing is known of what comes after."""
        seconds: float = self.result["seconds"]
        return seconds

    def of(self, vm: str) -> Iterator[Move]:
        return (move for move in self.moves.values() if move.vm == vm)

    def after(self, vm: str, at: float) -> Iterator[Move]:
        """Yield the migrations of a VM that had not ended at that time."""
        return (move for move in self.of(vm) if move.ended > at - TICK)

    def pauses(self, move: Move, at: float) -> bool:
        """Whether a migration waits at that time because earlier ones of its VM have failed."""
        failed = 0
        for each in self.of(move.vm):
            if each.ended > at:
                break
            failed = failed + 1 if each.phase == "Failed" else 0
        last = max((each.ended for each in self.of(move.vm) if each.ended <= at), default=NEVER)
        # migration.go#handleMigrationBackoff
        return failed > 0 and at < last + 20 * 2 ** (failed - 1)

    def leaves(self, vm: str, node: str, at: float) -> float:
        """Return when the VM leaves a node."""
        away = (move for move in self.after(vm, at) if move.source == node)
        return min((move.ended for move in away if move.phase == "Succeeded"), default=NEVER)

    def holders(self, at: float, node: str | None = None) -> frozenset[str]:
        """Return the VMs that hold a place, of one node or of all of them."""
        holding = (move for move in self.moves.values() if move.holds_place(at))
        return frozenset(
            move.vm for move in holding if node in (None, move.source, self._recorded(move, at))
        )

    def _recorded(self, move: Move, at: float) -> str:
        """Return the source node in the ``migrationState`` of a VM:
        of an earlier migration until the hand-over.
        """
        handed = (each for each in self.of(move.vm) if each.entered("PreparingTarget") <= at + TICK)
        return max(handed, key=lambda each: each.created, default=move).source

    def has_place(self, at: float, node: str) -> bool:
        """Whether another migration may start away from a node."""
        return (
            len(self.holders(at)) < self.limits[0] and len(self.holders(at, node)) < self.limits[1]
        )

    def emptied(self, node: str) -> float:
        """Return when the drain of a node ended with success."""
        return float(self.result["emptied"].get(node, NEVER))

    @cached_property
    def changes(self) -> tuple[float, ...]:
        """When room may have come or gone: a migration ended, a node was cordoned or came back,
        or a pod ended.
        """
        moves = (move.ended for move in self.moves.values() if move.ended != NEVER)
        nodes = (at for kind in ("started", "ended", "gone") for at in self.result[kind].values())
        return tuple(sorted((*moves, *nodes)))

    def changed(self, since: float) -> float:
        """Return when room may have come or gone for the first time since then."""
        return next((at for at in self.changes if at > since - TICK), NEVER)


def _name(vmi: Mapping[str, Any]) -> str:
    return f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}"


def _move(row: Mapping[str, Any], source: str) -> Move:
    def time(key: str) -> float:
        return NEVER if row[key] < 0 else float(row[key])

    return Move(
        row["uid"],
        row["vmi"],
        source,
        row["target"],
        bool(row["source"]),
        time("created"),
        time("pod"),
        time("bound"),
        time("ended"),
        row["phase"],
        row["phases"],
    )
