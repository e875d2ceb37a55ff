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
