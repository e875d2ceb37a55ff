"""``drain`` and ``upgrade`` at random moments of drains,
against what KubeVirt's own controllers did next.

``python -m tests.upstream.moments 200`` compares at least that many moments; a second number is the
first seed. Each run of the controllers gives four: two right after a write to the API server and
two at any time.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.builders import EVERY_NODE
from tests.upstream.migrations import answer
from tests.upstream.moment_cases import REBOOT, case
from tests.upstream.moment_checks import Case, differences
from tests.upstream.moment_future import TICK, Future
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

TOLERANCE: Final = 0.15
_SMALL: Final = 10
"""Seconds that may differ in any case: two intervals in which KubeVirt looks at its queue."""
_EACH: Final = 2
"""Moments of each kind in a run."""
_GROUP: Final = "machineconfiguration.openshift.io"


@dataclass(frozen=True, slots=True)
class Compared:
    """One moment of a run."""

    seed: int
    at: float
    """Seconds since the beginning."""
    states: Counter[str]
    """The VMs by state."""
    differs: tuple[str, ...]
    remaining: float | None
    """How far the end of the roll-out is out of the range that is said, in seconds. None:
    no time is compared.
    """


def compare(binary: Path, count: int, first: int = 0) -> Iterator[Compared]:
    """Yield the comparison of so many moments."""
    seeds = iter(range(first, first + 100 * count))
    yield from islice((found for seed in seeds for found in of_run(binary, seed)), count)


def of_run(binary: Path, seed: int) -> Iterator[Compared]:
    """Yield the comparison of the moments of one run, in the order of time."""
    given = case(seed, _EACH)
    result = answer(binary, deepcopy(given))
    for moment in sorted(result["moments"], key=lambda each: each["seconds"]):
        if moment["seconds"] < result["seconds"] - 3 * TICK:
            yield compared(seed, given, result, moment)


def compared(
    seed: int, given: Mapping[str, Any], result: Mapping[str, Any], moment: Mapping[str, Any]
) -> Compared:
    """Compare one moment."""
    limits = given["kubevirt"]["spec"]["configuration"]["migrations"]
    future = Future(
        result,
        (limits["parallelMigrationsPerCluster"], limits["parallelOutboundMigrationsPerNode"]),
    )
    at, cluster = moment["seconds"], snapshot(given, result, moment)
    plan = drain_plan.plan(cluster)
    states: Counter[str] = Counter()
    found = [f"not seen: {', '.join(plan.unseen)}"] if plan.unseen else []
    for node in plan.nodes:
        for row in (*node.forecasts, *node.visitors):
            states[row.state.state] += 1
            judged = Case(
                node.name, row, at, moment["time"], future, given["behaviour"], given["requests"]
            )
            said = (
                f"{node.name} {row.vmi.full_name} {row.state.state} ({row.outcome}: {row.reason})"
            )
            found += [f"{said}: {words}" for words in differences(judged)]
        found += [f"{node.name}: {words}" for words in _drained(node, given, future, at)]
    remaining = _remaining(cluster, given, future, at)
    if isinstance(remaining, str):
        return Compared(seed, at, states, (*found, remaining), None)
    return Compared(seed, at, states, tuple(found), remaining)


def _drained(node: NodePlan, given: Mapping[str, Any], future: Future, at: float) -> Iterator[str]:
    """Yield that a drain which is under way ends otherwise than is said,
    where nothing else takes or makes room.
    """
    result = future.result
    alone = given["pools"][0]["capacity"] == 1 and not given["requests"]
    started = result["started"].get(node.name, math.inf)
    if not alone or not started + TICK < at < future.emptied(node.name):
        return
    emptied = future.emptied(node.name) < math.inf
    if node.drainable is False and emptied:
        yield f"it is said to block, and is empty at {future.emptied(node.name):.1f}"
    if node.drainable and not emptied and not any(map(_never_moves, given["behaviour"].values())):
        yield "it is said to be drainable, and never becomes empty"


def _never_moves(how: Mapping[str, Any]) -> bool:
    """Whether no migration of a VM ever succeeds, for a reason that no object shows before."""
    return bool(how.get("refused")) or how.get("failures", 0) > 2 or how.get("start", 0) > 900


def _remaining(
    cluster: Snapshot, given: Mapping[str, Any], future: Future, at: float
) -> float | str | None:
    """Return how far the real end is out of the range that is said, or what else disagrees; None:
    not compared.
    """
    if given["behaviour"] or given["requests"]:
        return None
    found = rehearse(
        cluster, Options(Driver.MACHINE_CONFIG, node_minutes=REBOOT // 60), forecast_only=True
    )
    done = len(future.result["ended"]) == len(given["nodes"])
    if found.possible is not None and found.possible != done:
        stops = "; ".join(f"{stop.node}: {stop.reason}" for stop in found.stops)
        return (
            f"the roll-out is said to {'end' if found.possible else f'stop ({stops})'}, and does "
            "not"
        )
    if found.duration is None:
        return None
    left = max(future.result["ended"].values(), default=0.0) - at
    small = max(_SMALL, TOLERANCE * left)
    out = max(found.duration.low - left, left - found.duration.high, 0.0)
    if out > small:
        return f"{left:.0f} s remain, and {found.duration.low} to {found.duration.high} are said"
    return out


# --- the snapshot ---------------------------------------------------------------------------------


def snapshot(
    given: Mapping[str, Any], result: Mapping[str, Any], moment: Mapping[str, Any]
) -> Snapshot:
    """Return what ``scan --save`` would write at a moment,
    with the objects of the operator that rolls out.
    """
    listed = [each for kind in ("pods", "vmis", "migrations") for each in moment[kind] or ()]
    nodes = [_updated(node, result, moment) for node in moment["nodes"]]
    reports = [_report(node, result, moment) for node in moment["nodes"]]
    pool = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker"},
        "spec": {
            "nodeSelector": EVERY_NODE,
            "maxUnavailable": given["pools"][0]["capacity"],
            "configuration": {"name": "new"},
        },
    }
    every = (*listed, *nodes, *reports, given["kubevirt"], pool)
    return Snapshot(map(Object, every), complete=["*"], time=moment["time"])


def _phase(name: str, result: Mapping[str, Any], moment: Mapping[str, Any]) -> str:
    phases = {"ended": "done", "emptied": "updating", "started": "draining"}
    return next(
        (
            phase
            for key, phase in phases.items()
            if result[key].get(name, math.inf) <= moment["seconds"]
        ),
        "",
    )


def _updated(
    node: Mapping[str, Any], result: Mapping[str, Any], moment: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a Node with what the machine config operator and its daemon write."""
    phase = _phase(node["metadata"]["name"], result, moment)
    marks = {
        "currentConfig": "new" if phase == "done" else "old",
        "desiredConfig": "new" if phase else "old",
        "state": "Working" if phase in ("draining", "updating") else "Done",
        "desiredDrain": "drain-new" if phase in ("draining", "updating") else "uncordon-old",
        "lastAppliedDrain": "drain-new" if phase == "updating" else "uncordon-old",
    }
    metadata = node["metadata"] | {
        "annotations": {f"{_GROUP}/{key}": value for key, value in marks.items()}
    }
    return {**node, "metadata": metadata}


def _report(
    node: Mapping[str, Any], result: Mapping[str, Any], moment: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the MachineConfigNode of a Node: when it was cordoned and when it was empty."""
    now, name = clock.instant(moment["time"]), node["metadata"]["name"]
    assert now is not None

    def stamp(key: str) -> str | None:
        at = result[key].get(name, math.inf)
        return (
            clock.stamp(now.fromtimestamp(now.timestamp() + at - moment["seconds"], now.tzinfo))
            if at <= moment["seconds"]
            else None
        )

    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp(key)}
        for kind, key in (("Cordoned", "started"), ("Drained", "emptied"))
        if stamp(key)
    ]
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "MachineConfigNode",
        "metadata": {"name": name},
        "status": {"conditions": conditions},
    }


# --- the command ----------------------------------------------------------------------------------


def report(found: Iterable[Compared]) -> int:
    """Print what differs, and how many moments agree. Returns the exit code."""
    states: Counter[str] = Counter()
    moments, wrong, times = 0, 0, []
    for one in found:
        moments += 1
        states += one.states
        wrong += bool(one.differs)
        if one.remaining is not None:
            times.append(one.remaining)
        for words in one.differs:
            print(f"seed {one.seed} at {one.at:.2f}: {words}", flush=True)
    print(f"{moments} moments, {wrong} disagree")
    print(", ".join(f"{number} {state}" for state, number in states.most_common()))
    if times:
        print(f"remaining time: {len(times)} compared, at most {max(times):.0f} s out of the range")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(
        report(
            compare(
                program(MIGRATIONS), int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
            )
        )
    )
