"""``virt-admit upgrade`` names what a possible upgrade costs in the words of ``drain --all``."""

import pytest

from tests.cli.rehearsals import upgrade
from tests.cli.test_upgrade import kubevirt, node, vm
from virt_admit.cli.commands.drain import forecast
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.html.levels import GOOD, SEVERE
from virt_admit.reports.upgrade import html


def seen(*groups):
    """Return a cluster of two nodes with room, of which everything can be read."""
    return Snapshot([node("a"), node("b"), *sum(groups, []), kubevirt()], ["*"])


def answers(cluster):
    """Return the words of ``drain --all`` and of ``upgrade`` before the first colon."""
    plan = drain_plan.plan(cluster)
    drained = forecast(plan, cluster).render("text").rpartition("upgraded today? ")[2]
    return drained.partition(":")[0], upgrade(cluster, Options(), "text")[0].partition(":")[0]


OFF = vm("batch", "a", strategy="None", run="Manual")


@pytest.mark.parametrize(
    ("cluster", "word", "level"),
    [
        (seen(vm("x", "a")), "Yes", GOOD),
        (seen(vm("x", "a", strategy="None")), "Yes", GOOD),
        (seen(vm("x", "a"), OFF), "Yes, at a cost", SEVERE),
    ],
)
def test_drain_and_upgrade_say_the_cost_alike(cluster, word, level):
    assert answers(cluster) == (word, word)
    text, page = upgrade(cluster, Options(), "text")[0], html.page(rehearse(cluster, Options()))
    assert (page.verdict.level, page.verdict.word) == (level, word)
    costs = "1 VM would stay stopped." if level == SEVERE else ""
    assert text.splitlines()[0].endswith(costs or " min.")
    assert costs in page.verdict.text
