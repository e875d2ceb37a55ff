"""The CPU model that all nodes offer, and the remedy for VMs that host-model binds to a processor."""

import pytest

from tests.builders import complete, kubevirt, node
from virt_admit.forecasts.placement import no_target
from virt_admit.forecasts.placement.common_model import common_model
from virt_admit.model.kubernetes.cluster import Snapshot


def offering(name, host, *models):
    offered = {f"cpu-model.node.kubevirt.io/{model}": "true" for model in models}
    return node(name, {f"host-model-cpu.node.kubevirt.io/{host}": "true", **offered})


OLD = offering("old", "Haswell", "Haswell", "Broadwell-v1", "Conroe")
NEW = offering("new", "Skylake", "Skylake", "Haswell", "Broadwell-v1", "Conroe")


@pytest.mark.parametrize(
    ("nodes", "model"),
    [
        ([OLD, NEW], "Haswell"),
        ([OLD, offering("amd", "EPYC", "EPYC")], ""),
        ([offering("a", "X", "Conroe"), offering("b", "X", "Conroe")], ""),
        ([OLD, node("labelled", runs_vms=False)], "Haswell"),
        ([], ""),
    ],
)
def test_the_model_that_all_nodes_offer(nodes, model):
    assert common_model(complete(kubevirt(), *nodes)) == model


def test_with_nodes_out_of_sight_no_model_is_named():
    assert common_model(Snapshot([kubevirt(), OLD, NEW], complete=["kubevirts.kubevirt.io"])) == ""


@pytest.mark.parametrize(
    ("nodes", "remedy"),
    [
        ([OLD, NEW], "set CPU model Haswell, which every node offers, and restart the VM, or set None and restart it"),
        ([OLD, offering("amd", "EPYC", "EPYC")], "add a node with the same processor, or set None and restart it"),
    ],
)
def test_nobody_is_told_to_change_a_processor(nodes, remedy):
    cluster = complete(kubevirt(), *nodes)

    assert no_target._remedy(("host model Skylake",), "set None and restart it", cluster) == remedy
