"""The table of the watch's page about drains under way."""

from __future__ import annotations

import pytest

from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import node
from tests.reports.drain.test_drain_metrics import LEFT, MOVING, cordoned, time
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.ongoing_drains import ongoing
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.reports import watch_page
from virt_admit.reports.drain import html
from virt_admit.reports.drain.words import range_words
from virt_admit.reports.findings.report import Report


def under_way(*objects, ends_in=None):
    cluster = vm_motion.cluster(*objects)
    plan = drain_plan.plan(cluster)
    drains = tuple(ongoing(plan, cluster))
    drained = html.page(plan, html.placed(cluster))
    return watch_page.page(Report(()), plan, drained, (), time(0), drains, ends_in or {}).leading


def test_the_page_has_a_row_for_each_drain_that_is_not_empty():
    (table,) = under_way(cordoned(), *MOVING, ends_in={"a": Range(1200, 5400)})
    assert table.title == "Drains under way"
    assert table.rows == (("a", "cordon", "2027-03-01 10:59:00 UTC", 1, 0, 0, "20 to 90 min"),)
    assert under_way(cordoned(), *LEFT) == ()
    (table,) = under_way(node("a", unschedulable=True), *MOVING)
    assert table.rows[0][2:] == ("not known", 1, 0, 0, "not known, or never")


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (Range(6, 87), "6 to 87 s"),
        (Range(30, 30), "30 s"),
        (Range(1200, 5400), "20 to 90 min"),
        (Range(59, 121), "0 to 3 min"),
        (Range(3900, 13_900), "1 h 05 to 3 h 52"),
        (Range(7200, 10_800), "2 h to 3 h"),
    ],
)
def test_lengths_for_people(length, words):
    assert range_words(length) == words
