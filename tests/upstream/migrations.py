"""Our rehearsal against KubeVirt's own evacuation and migration controllers and kube-scheduler.

``python -m tests.upstream.migrations 200`` compares that many random clusters; a second number is the first seed. The
program in ``migrations/`` runs the controllers on the fake clients of their own unit tests, in virtual time.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.upstream.migration_cases import case
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.model.cluster import Snapshot
from virt_admit.model.kubevirt import drain_plan
from virt_admit.model.objects import Object
from virt_admit.model.rehearsal import rehearsal, rollouts
from virt_admit.model.rehearsal.limits import limits
from virt_admit.model.rehearsal.rehearsal import Options
from virt_admit.model.rehearsal.rollouts import Driver
from virt_admit.model.rehearsal.simulation import Outcome, simulate

TOLERANCE: Final = 0.15
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


def differences(ours: Run, real: Run) -> Iterator[str]:
    """Yield what differs between the simulation and the real controllers."""
    for name in ("nodes", "at_once", "at_once_per_node", "left"):
        if getattr(ours, name) != getattr(real, name):
            yield name
    if abs(ours.seconds - real.seconds) > max(_SMALL, TOLERANCE * real.seconds):
        yield "seconds"


def compare(binary: Path, seeds: Sequence[int]) -> Iterator[tuple[int, Run, Run]]:
    """Yield the seed, our run and the real run of each random cluster."""
    for seed in seeds:
        given = case(seed)
        result = _answer(binary, given)
        yield seed, _ours(given, result), _real(given, result)


def _answer(binary: Path, given: dict[str, Any]) -> dict[str, Any]:
    seconds = {f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}": _seconds(vmi) for vmi in given["vmis"]}
    text = json.dumps(given | {"seconds": seconds})
    done = subprocess.run([binary], input=text, check=False, text=True, capture_output=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{binary.name} failed:\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _seconds(vmi: dict[str, Any]) -> int:
    """Return how long a migration of this VMI takes: a whole number below 60."""
    return int(vmi["status"]["migrationState"]["endTimestamp"][17:19])


# --- what the controllers did --------------------------------------------------------------------------------------


def _real(given: dict[str, Any], result: dict[str, Any]) -> Run:
    done = [row for row in result["migrations"] if row["phase"] == "Succeeded"]
    stuck = set(result["started"]) - set(result["ended"])
    return Run(
        tuple(sorted(result["started"], key=lambda node: (result["started"][node], _order(given, node)))),
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


# --- what the simulation says --------------------------------------------------------------------------------------


def _ours(given: dict[str, Any], result: dict[str, Any]) -> Run:
    cluster = _cluster(given, result)
    plan = drain_plan.plan(cluster)
    assert not plan.unseen, plan.unseen
    pools = rollouts.pools(Driver.MACHINE_CONFIG, cluster, None, [])
    options = Options(Driver.MACHINE_CONFIG)
    found = limits(cluster)
    world = rehearsal.world(cluster, plan, pools, found, options, rehearsal.estimated(plan, cluster), "low")
    late = latency(given, result)
    vms = tuple(replace(vm, seconds=vm.seconds + late) for vm in world.vms)
    outcome = simulate(replace(world, vms=vms, reboot=given["reboot"]))
    return _run(outcome, [vm.name for vm in vms], {vm.name: vm.node for vm in vms})


def latency(given: dict[str, Any], result: dict[str, Any]) -> int:
    """Return what a migration takes beside the copying: the longest of this run, in whole seconds."""
    seconds = {f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}": _seconds(vmi) for vmi in given["vmis"]}
    done = [row for row in result["migrations"] if row["phase"] == "Succeeded"]
    return math.ceil(max((row["ended"] - row["bound"] - seconds[row["vmi"]] for row in done), default=0))


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
        "spec": {"nodeSelector": {}, "maxUnavailable": given["pools"][0]["capacity"]},
    }
    return Snapshot([*found, *(Object(each) for each in (*given["nodes"], given["kubevirt"], pool))], complete=["*"])


def _run(outcome: Outcome, vms: Sequence[str], where: dict[str, str]) -> Run:
    for moved in outcome.migrations:
        where[moved.vm] = moved.target
    stuck = set(outcome.started) - set(outcome.ended)
    spans = {
        node: [(move.start, move.end) for move in outcome.migrations if move.source == node] for node in outcome.started
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
    different: Counter[str] = Counter()
    clusters = moves = 0
    for seed, ours, real in compare(program(MIGRATIONS), range(first, first + count)):
        clusters, moves = clusters + 1, moves + real.moves
        found = list(differences(ours, real))
        different.update(found)
        if found:
            print(f"seed {seed}: {', '.join(found)}\n  ours {ours}\n  real {real}")
    print(f"{clusters} clusters with {moves} migrations, differences: {dict(different) or 'none'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
