"""A node selector and a node affinity that no node satisfies both."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.vm_motion import cluster, node, vmi
from virt_admit.forecasts.placement import candidates, no_target

LABEL = "network.harvesterhci.io/prod"


def demands(key):
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "nodeSelector": {"kubernetes.io/hostname": "c"},
        "affinity": {"nodeAffinity": required},
        "networks": [{"name": "vlan", "multus": {"networkName": "lan"}}],
    }


def reason(key=LABEL, labelled="b", uplink=True):
    labels = {"network.harvesterhci.io/clusternetwork": "prod"}
    lan = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "lan", "shop")
    lan.data["metadata"]["labels"] = labels
    spec = {"clusterNetwork": "prod", "nodeSelector": {"rack": "1"}}
    config = manifest("network.harvesterhci.io/v1beta1", "VlanConfig", "uplink", spec=spec)
    nodes = [node("b"), node("c")]
    for each in nodes:
        each.data["metadata"]["labels"] |= {"kubernetes.io/hostname": each.name}
        if each.name in labelled:
            each.data["metadata"]["labels"] |= {key: "true", "rack": "1"}
    own = vmi(spec=demands(key))
    there = cluster(own, *nodes, lan, *([config] if uplink else []))
    return no_target.reason(candidates.target(own, there, moves=True), there, moves=True)


def test_the_label_its_cluster_network_and_what_sets_it_up_are_named():
    found = reason()

    assert f"c lacks {LABEL}=true, which its node affinity demands" in found.reason
    assert "cluster network prod" in found.reason
    assert "VlanConfig uplink, which sets up cluster network prod, selects b alone" in found.reason
    assert found.remedy.startswith(
        "remove the node selector kubernetes.io/hostname=c from the VM, so that it can run on b, "
        "and restart it; or make a further VlanConfig like uplink that selects c"
    )


def test_without_a_configuration_the_cluster_network_is_named():
    assert "let a VlanConfig of cluster network prod select c" in reason(uplink=False).remedy


def test_a_label_of_another_writer():
    found = reason("example.org/fast")

    assert "c lacks example.org/fast=true" in found.reason
    assert "Harvester" not in found.reason
    assert "; or change its node affinity, or the labels of c" in found.remedy


@pytest.mark.parametrize("labelled", ["", "bc"])
def test_demands_that_do_not_contradict_each_other(labelled):
    """No node has the label, or the selected one has it and refuses the pod for another cause."""
    found = reason(labelled=labelled)
    assert found is None or "which its node affinity demands" not in found.reason
