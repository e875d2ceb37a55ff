"""Scores that are kept between two choices are those that would be computed now."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.forecasts.upgrade.test_simulation import vm, world
from virt_admit.forecasts.upgrade import scoring
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.scoring import Targets
from virt_admit.forecasts.upgrade.simulation import World, simulate


def some_world(seed: int) -> World:
    """Return a world with VMs of three sizes on nodes that become full."""
    chance = Random(seed)
    vms = [
        vm(f"v{number}", chance.choice("abcde"), chance.choice((1, 2, 6)), chance.randint(5, 90))
        for number in range(24)
    ]
    found = world(vms, "abcde", gib=chance.choice((20, 24, 40)), at_once=chance.choice((1, 2)))
    return replace(found, favourable=bool(seed % 2), seed=chance.choice((None, seed)))


@pytest.mark.parametrize("sizes", [1, 256])
def test_a_run_with_kept_scores_equals_one_without(
    sizes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Outcome] = []
    monkeypatch.setattr(scoring, "_SIZES", sizes)
    runs += [simulate(some_world(seed)) for seed in range(30)]
    kept = Targets._scores_for

    def fresh(self: Targets, requests: scoring.Resources) -> object:
        self._scores.clear()
        return kept(self, requests)

    monkeypatch.setattr(Targets, "_scores_for", fresh)
    assert [simulate(some_world(seed)) for seed in range(30)] == runs
    assert any(run.stops for run in runs)
    assert any(not run.stops for run in runs)
