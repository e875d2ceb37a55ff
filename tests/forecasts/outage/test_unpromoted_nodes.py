"""The loss of the only node of a control plane that Harvester does not extend."""

import pytest

from tests.forecasts.outage.losses import lose, master, node, snapshot, vm
from virt_admit.model.node_updates.rancher import unpromoted_nodes

ZONE = "topology.kubernetes.io/zone"


def harvester(*zones):
    """Return a server and further nodes of Harvester, each in one of these zones."""
    every = [master("m1"), *(node(f"n{number}") for number in range(1, len(zones)))]
    for each, zone in zip(every, zones, strict=True):
        labels = each["metadata"].setdefault("labels", {})
        for key in list(labels):
            if key.startswith("node-role.kubernetes.io/"):
                labels[key] = "true"
        labels["harvesterhci.io/managed"] = "true"
        if zone:
            labels[ZONE] = zone
    return every


def test_the_zones_that_keep_harvester_from_promoting_nodes_are_the_cause():
    found = lose(snapshot(harvester("east", "east", "east"), vm("db", "m1")), "m1")
    (why,) = found.because
    assert why.startswith("the API stops: 0 of 1 control-plane node is left")
    assert why.endswith("waits for nodes in 3 zones, while the only one is east")
    (row,) = found.outages[0].vms
    assert row.remedy == (
        "Unless volumes or affinities go by these zones, give n1, n2 zones of their own, after "
        "which Harvester promotes one node after the other: kubectl label node n1 "
        "topology.kubernetes.io/zone=n1 --overwrite && kubectl label node n2 "
        "topology.kubernetes.io/zone=n2 --overwrite; or remove that label from all nodes"
    )


def moved(*zones, preferred=()):
    """Return the nodes that get another zone, with that zone."""
    every = harvester(*zones)
    for number in preferred:
        every[number]["metadata"]["labels"]["node-role.harvesterhci.io/management"] = "true"
    return unpromoted_nodes.known(snapshot(every)).moves


def test_the_zones_that_nodes_get_are_new_and_of_nodes_that_harvester_takes():
    assert moved("n1", "n1", "n1") == {"n1": "n1-zone", "n2": "n2"}
    assert moved("east", "west", "east", "east") == {"n2": "n2"}
    assert moved("east", "west", "east", "east", preferred=(3,)) == {"n3": "n3"}


@pytest.mark.parametrize(
    ("zones", "lost"),
    [
        (("east", "west", "south"), "m1"),
        (("", "east", "east"), "m1"),
        (("east", ""), "m1"),
        (("east", "east", "east"), "m1 n1"),  # one of three would be left
    ],
)
def test_nodes_that_harvester_promotes_or_that_are_too_few(zones, lost):
    found = lose(snapshot(harvester(*zones), vm("db", "m1")), *lost.split())
    (why,) = found.because
    assert why.startswith("the API stops: 0 of 1 control-plane node is left")
    assert "zones" not in why
    (row,) = found.outages[0].vms
    assert row.remedy == "restore the control plane"
