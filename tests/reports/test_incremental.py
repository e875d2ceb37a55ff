"""Judgements that are kept from one change to the next are equal to full ones."""

import pytest

from tests.changing_cluster import ChangingCluster, differences
from virt_admit.forecasts.placement import candidates
from virt_admit.reports.findings import incremental

CHANGES = 40
"""``make verify-judgements`` makes thousands."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_judgements_that_are_kept_equal_full_ones_after_each_change(seed):
    assert list(differences(CHANGES, seed)) == []


def test_a_change_that_is_missed_is_counted_as_a_difference():
    cluster = ChangingCluster(0)
    cluster.kept.report(), cluster.kept.plan(), cluster.kept.page(), cluster.kept.seconds()
    assert cluster.kept.differences(cluster.full()) == 0
    cluster.forbid("nodes")
    cluster.moment.refresh()
    assert cluster.kept.differences(cluster.full()) > 0


def judged(cluster):
    """Return how many values were computed to judge a cluster after its last change."""
    before = cluster.kept.computed
    cluster.kept_results()
    return cluster.kept.computed - before


@pytest.mark.parametrize(
    ("plural", "path", "value", "most"),
    [
        ("nodes", ("metadata", "annotations", "kubevirt.io/heartbeat"), "2027-03-01T11:00:30Z", 0),
        ("virtualmachines", ("metadata", "annotations", "team"), "shop", 1),
        ("virtualmachineinstances", ("status", "guestOSInfo"), {"id": "fedora"}, 30),
        ("nodes", ("metadata", "annotations", "team"), "shop", 44),
    ],
)
def test_the_cost_follows_the_change(plural, path, value, most):
    cluster = ChangingCluster(0)
    # an empty map that comes is a change
    cluster.set("virtualmachines", ("metadata", "annotations", "first"), "x")
    cluster.kept.change(cluster.moment.refresh(), time_passed=False)
    assert judged(cluster) > 150
    cluster.set(plural, path, value)
    cluster.kept.change(cluster.moment.refresh(), time_passed=False)
    assert judged(cluster) <= most


def test_time_that_passes_judges_no_vm_again_that_waits_for_nothing(monkeypatch):
    cluster, judged_again = ChangingCluster(0), []
    cluster.kept.report()
    judge = incremental.judge_object
    monkeypatch.setattr(
        incremental,
        "judge_object",
        lambda obj, *rest: judged_again.append(obj.kind) or judge(obj, *rest),
    )
    cluster.kept.change(cluster.moment.refresh(), time_passed=True)
    cluster.kept.report()
    assert set(judged_again) <= {"Node"}


def test_what_other_vms_need_of_their_nodes_is_not_computed_again_for_a_cordon(monkeypatch):
    cluster, computed = ChangingCluster(0), []
    demand = candidates.demand
    monkeypatch.setattr(
        candidates,
        "demand",
        lambda vmi, *rest, **how: computed.append(vmi.name) or demand(vmi, *rest, **how),
    )
    cluster.kept_results()
    assert len(computed) >= 6
    computed.clear()
    cluster.set("nodes", ("spec", "unschedulable"), True)
    cluster.kept.change(cluster.moment.refresh(), time_passed=False)
    kept, again = cluster.kept_results(), len(computed)
    computed.clear()
    assert kept == cluster.full_results()
    assert again < len(computed) / 2
