"""Our rehearsal against KubeVirt's controllers on a real API server with kube-scheduler,
in real time.

``make verify-rehearsal LIVE=1 COUNT=20`` runs so many random clusters, some at once. They share one
API server: each has its namespace, and nodes that a label selects. The kubelet and virt-handler are
those of ``migrations/node.go``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.upstream.migration_cases import case
from tests.upstream.migrations import Comparison, judged, report, run
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.forecasts.upgrade import simulation
from virt_admit.model.kubernetes import kinds

AT_ONCE: Final = 4
"""Clusters that run at the same time."""
UNSCHEDULABLE: Final = 10
"""Seconds that a target pod may be unschedulable, for both sides:
KubeVirt's five minutes would take too long.
"""
DEADLINE: Final = 800
"""Seconds after which a roll-out is given up in any case."""
STALL: Final = 75
"""Seconds without progress after which a roll-out is stuck:
with these time-outs every VM had its turn by then.
"""
_KINDS: Final = (kinds.VMI, kinds.VMIM, kinds.KUBEVIRT)


def compare_live(
    binary: Path, plane: ControlPlane, seeds: Sequence[int], at_once: int = AT_ONCE
) -> Iterator[Comparison]:
    """Yield the comparison of each random cluster with the controllers on a running API server with
    kube-scheduler.
    """
    with shorter_time_out(), ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(partial(_compared, binary, plane), seeds)


def _compared(binary: Path, plane: ControlPlane, seed: int) -> Comparison:
    tries = iter(range(100))

    def once() -> Any:
        times = {"unschedulable": UNSCHEDULABLE, "deadline": DEADLINE, "stall": STALL}
        given = case(seed, f"c{seed}-{next(tries)}") | times
        return run(binary, given, "-kubeconfig", str(plane.kubeconfig))

    return judged(seed, once)


@contextlib.contextmanager
def shorter_time_out() -> Iterator[None]:
    """Let the simulation give up unschedulable target pods as early as the controllers of the live
    clusters do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "UNSCHEDULABLE", UNSCHEDULABLE)
        yield


def main(count: int, first: int) -> int:
    """Compare clusters on an API server of our own and print what differs.

    Returns the exit code.
    """
    binary = program(MIGRATIONS)
    with ControlPlane() as plane, plane.scheduler():
        install_crds(plane, _KINDS)
        at_once = int(os.environ.get("AT_ONCE") or AT_ONCE)
        return report(compare_live(binary, plane, range(first, first + count), at_once))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
