"""Chance between the best and the worst run: repeatable, with a bounded number of VMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.cli.test_upgrade import kubevirt, node
from tests.cli.test_upgrade import vm as an_upgradable_vm
from tests.forecasts.upgrade.test_simulation import vm, world
from virt_admit.forecasts.upgrade import random_runs
from virt_admit.forecasts.upgrade.outcomes import Outcome, shown, undetermined
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.forecasts.upgrade.simulation import World, simulate
from virt_admit.model.kubernetes.cluster import Snapshot


def bounds() -> list[World]:
    """Return worlds in which both bounds complete, and some order between them does not."""
    given = world([vm("large", "a", 10), vm("one", "a", 8), vm("two", "a", 8)], gib=16, at_once=2)
    return [given, replace(given, favourable=False)]


def test_a_run_may_stop_where_both_bounds_complete() -> None:
    assert [simulate(each).stops for each in bounds()] == [{}, {}]

    stopped = [bool(simulate(each).stops) for each in random_runs.worlds(bounds())]
    assert set(stopped) == {True, False}


def test_the_same_input_gives_the_same_runs() -> None:
    first, second = ([simulate(each) for each in random_runs.worlds(bounds())] for _ in range(2))

    assert first == second
    assert len({tuple(run.migrations) for run in first}) > 2


@pytest.mark.parametrize(("vms", "runs"), [(0, 16), (3, 16), (1_000, 5), (40_000, 2)])
def test_large_clusters_have_fewer(vms: int, runs: int) -> None:
    given = replace(bounds()[0], vms=(vm("one", "a"),) * vms)

    assert len(random_runs.worlds([given, given])) == runs


def test_what_several_runs_say() -> None:
    ends, stops = Outcome(), Outcome(stops={"a": "shop/one: no other node can take it"})

    assert shown([ends, stops]) == stops.stops
    assert list(undetermined([ends, ends])) == list(undetermined([stops, stops])) == []
    assert "the end on a depends on" in next(undetermined([ends, stops]))
    assert "given up" in next(undetermined([ends, Outcome(exhausted=True)]))


@pytest.mark.parametrize(("stops", "possible"), [(None, True), ((1,), None), ((0, 1), None)])
def test_a_yes_needs_all_runs(
    monkeypatch: pytest.MonkeyPatch, stops: tuple[int, ...] | None, possible: bool | None
) -> None:
    """``stops``: which of the random runs stop, because another pod keeps a node."""

    def some(bounds: Sequence[World]) -> list[World]:
        held = {bounds[0].pools[0].to_do[0]: "held"}
        return [
            replace(each, stuck=held) if number in (stops or ()) else each
            for number, each in enumerate(bounds)
        ]

    monkeypatch.setattr(random_runs, "worlds", some)
    cluster = Snapshot([node("a"), node("b"), *an_upgradable_vm("db", "a"), kubevirt()], ["*"])
    found = rehearse(cluster, Options(Driver.PLAIN))

    assert found.possible is possible
    assert bool(found.unseen) is (possible is None)
    assert [stop.reason for stop in found.stops] == ["held"] * (possible is None)
