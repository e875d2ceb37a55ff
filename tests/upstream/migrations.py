"""Our rehearsal against KubeVirt's own evacuation and migration controllers and kube-scheduler.

``python -m tests.upstream.migrations 200`` compares that many random clusters; a second number is
the first seed. The program in ``migrations/`` runs the controllers on the fake clients of their own
unit tests, in virtual time.
"""

from __future__ import annotations

import enum
import json
import math
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.builders import EVERY_NODE
from tests.upstream.migration_cases import case
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import rollouts, simulated_world
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.forecasts.upgrade.simulation import simulate
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.parallel_migrations import limits

TOLERANCE: Final = 0.15
_REPEATED: Final = 3
_TIMEOUT: Final = 900
"""Real seconds after which a run is given up."""
_SMALL: Final = 10
"""Seconds that may differ in any case: two intervals in which KubeVirt looks at its queue."""


@dataclass(frozen=True, slots=True)
class Run:
    """A roll-out, by the simulation or by the real controllers."""

    nodes: tuple[str, ...]
    """In the order in which they were cordoned."""
    at_once: int
    """Migrations at the same time."""
    at_once_per_node: int
    """Outbound migrations of one node at the same time."""
    left: int
    """VMs on nodes that never became empty."""
    moves: int
    seconds: float
    """Until the last node was updated."""


class Agreement(enum.StrEnum):
    """What the comparison of a cluster says."""

    SAME = "the same"
    """The real run is one of our two, and its time is between theirs or within 15 % of them."""
    UNKNOWN = "the end depends on chance, and we say that it cannot be determined"
    CHANCE = "the same in another real run, because KubeVirt or kube-scheduler chose differently"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Range:
    """Our two runs: chance decides as it is best for the roll-out, and as it is worst."""

    best: Run
    worst: Run

    def differences(self, real: Run) -> Iterator[str]:
        """Yield what differs between both runs and the real controllers."""
        for name in ("nodes", "at_once", "at_once_per_node", "left"):
            if getattr(real, name) not in (getattr(self.best, name), getattr(self.worst, name)):
                yield name
        small = max(_SMALL, TOLERANCE * real.seconds)
        low, high = sorted((self.best.seconds, self.worst.seconds))
        if not low - small <= real.seconds <= high + small:
            yield "seconds"

    @property
    def is_undetermined(self) -> bool:
        """Return whether one of our runs completes and the other does not."""
        return bool(self.best.left) != bool(self.worst.left)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One random cluster."""

    seed: int
    ours: Range
    real: Run
    differs: tuple[str, ...]
    """Empty unless it is different."""
    agreement: Agreement


def compare(binary: Path, seeds: Iterable[int]) -> Iterator[Comparison]:
    """Yield the comparison of each random cluster with the controllers in virtual time."""
    for seed in seeds:
        yield judged(seed, partial(run, binary, case(seed)))


def judged(seed: int, once: Callable[[], tuple[Range, Run]]) -> Comparison:
    """Compare a cluster; where it differs, up to three more real runs show whether chance decides
    it.
    """
    ours, real = once()
    differs = tuple(ours.differences(real))
    if not differs:
        return Comparison(seed, ours, real, (), Agreement.SAME)
    if ours.is_undetermined:
        return Comparison(seed, ours, real, (), Agreement.UNKNOWN)
    for _ in range(_REPEATED):
        again, other = once()
        if not tuple(again.differences(other)):
            return Comparison(seed, again, other, (), Agreement.CHANCE)
    return Comparison(seed, ours, real, differs, Agreement.DIFFERENT)


def run(binary: Path, given: dict[str, Any], *flags: str) -> tuple[Range, Run]:
    """Return our runs and the real one of a cluster."""
    result = answer(binary, given, *flags)
    return _ours(given, result), _real(given, result)


def answer(binary: Path, given: dict[str, Any], *flags: str) -> dict[str, Any]:
    """Return what ``main.go`` prints for a case."""
    seconds = {
        f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}": _seconds(vmi)
        for vmi in given["vmis"]
    }
    text = json.dumps(given | {"seconds": seconds})
    done = subprocess.run(
        [binary, *flags], input=text, check=False, text=True, capture_output=True, timeout=_TIMEOUT
    )
    if done.returncode:
        raise RuntimeError(f"{binary.name} failed:\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _seconds(vmi: dict[str, Any]) -> int:
    """Return how long a migration of this VMI takes: a whole number below 60."""
    return int(vmi["status"]["migrationState"]["endTimestamp"][17:19])


# --- what the controllers did ---------------------------------------------------------------------


def _real(given: dict[str, Any], result: dict[str, Any]) -> Run:
    done = [row for row in result["migrations"] if row["phase"] == "Succeeded"]
    stuck = set(result["started"]) - set(result["ended"])
    return Run(
        tuple(
            sorted(
                result["started"], key=lambda node: (result["started"][node], _order(given, node))
            )
        ),
        _most((row["bound"], row["ended"]) for row in done),
        max(
            (
                _most((row["bound"], row["ended"]) for row in done if row["source"] == node)
                for node in stuck | set(result["ended"])
            ),
            default=0,
        ),
        sum(node in stuck for node in result["where"].values()),
        len(done),
        max(result["ended"].values(), default=0.0),
    )


def _order(given: dict[str, Any], node: str) -> int:
    order: list[str] = given["pools"][0]["nodes"]
    return order.index(node)


def _most(spans: Any) -> int:
    """Return how many spans overlap at most; one may begin when another ends."""
    steps = sorted(step for start, end in spans for step in ((start, 1), (end, -1)))
    running = most = 0
    for _, change in steps:
        running += change
        most = max(most, running)
    return most


# --- what the simulation says ---------------------------------------------------------------------


def _ours(given: dict[str, Any], result: dict[str, Any]) -> Range:
    cluster = _cluster(given, result)
    plan = drain_plan.plan(cluster)
    assert not plan.unseen, plan.unseen
    pools = rollouts.pools(Driver.MACHINE_CONFIG, cluster, None, [])
    start = simulated_world.Start(plan, pools, limits(cluster), 600, continued=False)
    world = simulated_world.world(cluster, start, simulated_world.estimated(plan, cluster), "low")
    late = latency(given, result)
    vms = tuple(replace(vm, seconds=vm.seconds + late) for vm in world.vms)
    best = replace(world, vms=vms, reboot=given["reboot"])
    runs = (simulate(best), simulate(replace(best, favourable=False)))
    return Range(
        *(
            _run(outcome, [vm.name for vm in vms], {vm.name: vm.node for vm in vms})
            for outcome in runs
        )
    )


def latency(given: dict[str, Any], result: dict[str, Any]) -> int:
    """Return what a migration takes beside the copying: the longest of this run,
    in whole seconds.
    """
    seconds = {
        f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}": _seconds(vmi)
        for vmi in given["vmis"]
    }
    done = [row for row in result["migrations"] if row["phase"] == "Succeeded"]
    return math.ceil(
        max((row["ended"] - row["bound"] - seconds[row["vmi"]] for row in done), default=0)
    )


def _cluster(given: dict[str, Any], result: dict[str, Any]) -> Snapshot:
    kinds = {"vmis": ("kubevirt.io/v1", "VirtualMachineInstance"), "pods": ("v1", "Pod")}
    found = [
        Object(each | {"apiVersion": api, "kind": kind})
        for key, (api, kind) in kinds.items()
        for each in result[key] or ()
    ]
    pool = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {"nodeSelector": EVERY_NODE, "maxUnavailable": given["pools"][0]["capacity"]},
    }
    return Snapshot(
        [*found, *(Object(each) for each in (*given["nodes"], given["kubevirt"], pool))],
        complete=["*"],
    )


def _run(outcome: Outcome, vms: Sequence[str], where: dict[str, str]) -> Run:
    for moved in outcome.migrations:
        where[moved.vm] = moved.target
    stuck = set(outcome.started) - set(outcome.ended)
    spans = {
        node: [(move.start, move.end) for move in outcome.migrations if move.source == node]
        for node in outcome.started
    }
    return Run(
        tuple(outcome.started),
        _most(span for some in spans.values() for span in some),
        max((_most(some) for some in spans.values()), default=0),
        sum(where[name] in stuck for name in vms),
        len(outcome.migrations),
        outcome.seconds,
    )


def main(count: int, first: int) -> int:
    """Compare many clusters and print what differs. Returns the exit code."""
    return report(compare(program(MIGRATIONS), range(first, first + count)))


def report(found: Iterable[Comparison]) -> int:
    """Print what differs, and how many clusters agree. Returns the exit code."""
    counts: Counter[Agreement] = Counter()
    moves, errors = 0, []
    for one in found:
        counts[one.agreement] += 1
        moves += one.real.moves
        if one.agreement is Agreement.SAME and one.real.seconds and not one.ours.is_undetermined:
            middle = (one.ours.best.seconds + one.ours.worst.seconds) / 2
            errors.append(abs(middle / one.real.seconds - 1))
        if one.agreement is not Agreement.SAME:
            print(f"seed {one.seed}: {one.agreement} {', '.join(one.differs)}")
            print(
                f"  best  {one.ours.best}\n  worst {one.ours.worst}\n  real  {one.real}", flush=True
            )
    print(f"{counts.total()} clusters with {moves} migrations")
    for agreement, number in counts.most_common():
        print(f"{number:6} {agreement}")
    if errors:
        print(
            f"middle of our range against the real time: median {statistics.median(errors):.1%}, "
            f"largest {max(errors):.1%}"
        )
    return 1 if counts[Agreement.DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
