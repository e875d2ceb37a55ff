"""Nodes of Harvester that Rancher never updates, as no Machine has them."""

import pytest

from tests.builders import kubevirt, manifest
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates.rancher import machineless_nodes

NOW, LONG_AGO, JUST_NOW = "2027-03-01T12:00:00Z", "2026-01-01T00:00:00Z", "2027-03-01T11:55:00Z"
OWNER = "cluster.x-k8s.io/machine"


def node(name, machine="", created=LONG_AGO, managed="true"):
    labels = {"harvesterhci.io/managed": managed, "kubevirt.io/schedulable": "true"}
    notes = {OWNER: machine} if machine else {}
    metadata = {"labels": labels, "annotations": notes, "creationTimestamp": created}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return manifest("v1", "Node", name, metadata=metadata, status=status)


def machine(name, of=None):
    status = {"nodeRef": {"name": of}} if of else {}
    return manifest("cluster.x-k8s.io/v1beta1", "Machine", name, "fleet-local", status=status)


def upgrade(**states):
    done = ("LogReady", "ImageReady", "RepoReady", "NodesPrepared", "SystemServicesUpgraded")
    nodes = {name: {"state": state} for name, state in states.items()}
    status = {
        "conditions": [{"type": each, "status": "True"} for each in done],
        "nodeStatuses": nodes,
    }
    metadata = {"labels": {"harvesterhci.io/latestUpgrade": "true"}, "creationTimestamp": LONG_AGO}
    return manifest(
        "harvesterhci.io/v1beta1",
        "Upgrade",
        "hvst",
        "harvester-system",
        metadata=metadata,
        status=status,
    )


def cluster(*objects, complete=("*",)):
    return Snapshot([*objects, kubevirt()], complete=list(complete), time=NOW)


KNOWN = (machine("m-a", "a"), node("a", "m-a"))


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (node("b"), "which has no annotation cluster.x-k8s.io/machine"),
        (node("b", "m-b"), "which names Machine m-b, which does not exist"),
    ],
)
def test_a_node_that_no_machine_has(lost, said):
    there = cluster(*KNOWN, lost, upgrade(a="Succeeded", b="Images preloaded"))
    (found,) = machineless_nodes.standing(there)
    assert found.certain
    assert "Upgrade harvester-system/hvst does not end: b (Images preloaded)" in found.reason
    assert f"(1 Machine for 2 nodes), {said}" in found.reason
    assert "keeps its entry of b" in found.remedy
    (stop,) = rehearse(there, Options()).stops
    assert (stop.node, stop.reason) == ("b", found.reason)
    (before,) = machineless_nodes.refusals(cluster(*KNOWN, lost))
    assert before.order.name == "b"
    assert "keeps its entry" not in before.remedy


@pytest.mark.parametrize(
    "objects",
    [
        (node("b", "m-b"), machine("m-b", "b")),
        (node("b"), machine("m-b", "b")),
        (node("b"), machine("m-b")),
        (node("b", created=JUST_NOW),),
        (node("b", managed="false"),),
    ],
    ids=["known", "not annotated yet", "a Machine without a node", "it joins", "not of Harvester"],
)
def test_nodes_that_rancher_updates(objects):
    running = upgrade(a="Succeeded", b="Images preloaded")
    assert not [*machineless_nodes.standing(cluster(*KNOWN, *objects, running))]
    assert not [*machineless_nodes.refusals(cluster(*KNOWN, *objects))]


def test_an_upgrade_that_has_updated_it_or_is_not_seen():
    assert not [*machineless_nodes.standing(cluster(*KNOWN, node("b"), upgrade(b="Succeeded")))]
    running = upgrade(a="Succeeded", b="Images preloaded")
    assert not [*machineless_nodes.standing(cluster(*KNOWN, node("b"), running, complete=()))]
    assert not [*machineless_nodes.refusals(cluster(node("b")))]
