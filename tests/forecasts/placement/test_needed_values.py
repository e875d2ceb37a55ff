"""Reasons of nodes that are values which a pod demands."""

import pytest

from virt_admit.forecasts.placement import virt_handlers


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("TSC frequency 2893200000", "needs TSC frequency 2893200000"),
        ("CPU model Denverton; cordoned", "needs CPU model Denverton; cordoned"),
        ("Hyper-V synic; architecture arm64", "needs Hyper-V synic; needs architecture arm64"),
        ("memory: 6Gi missing", "memory: 6Gi missing"),
        ("taint dedicated", "taint dedicated"),
    ],
)
def test_a_demanded_value_does_not_read_as_one_of_the_node(why, words):
    assert virt_handlers.needs(why) == words
