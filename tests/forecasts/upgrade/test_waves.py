"""The last wave of an upgrade ends when the whole upgrade does."""

from virt_admit.forecasts.upgrade import outcomes
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.forecasts.upgrade.outcomes import Outcome
from virt_admit.forecasts.upgrade.rollouts import Pool


def test_the_run_that_lasts_longest_ends_with_the_last_wave():
    low = Outcome(started={"a": 0, "b": 10}, ended={"a": 10, "b": 20})
    high = Outcome(started={"a": 0, "b": 30}, ended={"a": 30, "b": 60})
    pool = Pool("p", ("a", "b"), 1)
    lasts = outcomes.whole([20, 60, 75])

    first, last = outcomes.waves([pool], low, high, lasts, {})
    assert (first.end, last.end) == (Range(10, 30), lasts)
    assert outcomes.waves([pool], low, high, None, {})[-1].end == Range(20, 60)


def test_a_drain_that_waits_does_not_begin_with_the_others():
    run = Outcome(started={"a": 0, "b": 0, "c": 9}, ended={"a": 10, "b": 20, "c": 30})
    pool = Pool("p", ("a", "b", "c"), 2)
    held = {"a": ("the budget",), "c": ("a later one",)}
    found = outcomes.waves([pool], run, run, None, held)
    assert [(each.nodes, each.end.high, each.waits) for each in found] == [
        (("b",), 20, ()),
        (("a",), 10, ("the budget",)),
        (("c",), 30, ()),
    ]
