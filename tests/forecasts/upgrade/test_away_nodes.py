"""Nodes that are away, and for how long that is known."""

import pytest

from tests.incidents_platform.openshift import cordoned_by_hand
from virt_admit.forecasts.upgrade.pools import away_nodes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW = "2026-11-01T12:00:00Z"


@pytest.mark.parametrize(
    ("since", "held"),
    [
        ({"timeAdded": "2026-11-01T11:00:00Z"}, True),
        ({"timeAdded": "2026-11-01T11:45:00Z"}, False),
        ({"timeAdded": "0001-01-01T00:00:00+14:00"}, False),
        ({}, False),
    ],
)
def test_a_pool_is_held_only_by_what_is_known_to_last(since, held):
    items = cordoned_by_hand().items
    node = next(
        each for each in items if each["kind"] == "Node" and each["metadata"]["name"] == "n1"
    )
    node["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", **since}
    ]
    found = away_nodes.held(Snapshot(list(map(Object, items)), ["*"], time=NOW))
    assert ("worker" in found) is held
