"""Judgements that are kept from one change to the next are equal to full ones."""

import pytest

from tests.changing_cluster import ChangingCluster, differences

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
        ("nodes", ("metadata", "annotations", "team"), "shop", 25),
    ],
)
def test_the_cost_follows_the_change(plural, path, value, most):
    cluster = ChangingCluster(0)
    assert judged(cluster) > 150
    cluster.set(plural, path, value)
    cluster.kept.change(cluster.moment.refresh(), time_passed=False)
    assert judged(cluster) <= most
