"""Runs in which chance decides by itself:
between the best and the worst one there may be one that stops.

KubeVirt's queue and kube-scheduler's choice among equal nodes are chance. Best at each step is not
best in the end: a large VM that moves first may leave no room for two others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.upgrade.simulation import World

MOST: Final = 16
"""Runs of a small cluster."""
FEWEST: Final = 2
MOVES: Final = 5_000
"""VMs of all runs together, beyond ``FEWEST``: a run of 10,000 VMs takes 3 to 4 s."""


def worlds(bounds: Sequence[World]) -> list[World]:
    """Return what the runs start from: with the durations of these worlds in turn.

    The same input, the same runs.
    """
    number = max(FEWEST, min(MOST, MOVES // max(len(bounds[0].vms), 1)))
    return [replace(bounds[seed % len(bounds)], seed=seed) for seed in range(number)]
