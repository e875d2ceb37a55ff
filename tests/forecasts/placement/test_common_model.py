"""The CPU model that all nodes offer, and the remedy for VMs that host-model binds to a
processor.
"""

import pytest

from tests.builders import complete, kubevirt, node
from virt_admit.forecasts.placement.common_model import (
    best_models,
    closest,
    common_model,
    features,
    host_only,
    lost_features,
    models_first,
    other_model,
)
from virt_admit.forecasts.placement.refusals import refusal_remedies
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
        (
            [
                offering("a", "X", "Haswell", "Broadwell", "Skylake-Server"),
                offering("b", "X", "Haswell", "Broadwell"),
            ],
            "Broadwell",
        ),
        ([offering("a", "X", "Haswell-noTSX", "Haswell-IBRS", "Haswell"), NEW, OLD], "Haswell"),
        (
            [
                offering("a", "X", "Haswell-IBRS", "Broadwell"),
                offering("b", "X", "Haswell-IBRS", "Broadwell"),
            ],
            "",
        ),
        (
            [offering("a", "Future", "Future", "Other"), offering("b", "Newer", "Future", "Other")],
            "Future",
        ),
        ([], ""),
    ],
)
def test_the_model_that_all_nodes_offer(nodes, model):
    assert common_model(complete(kubevirt(), *nodes)) == model


def test_with_nodes_out_of_sight_no_model_is_named():
    assert common_model(Snapshot([kubevirt(), OLD, NEW], complete=["kubevirts.kubevirt.io"])) == ""


def test_models_that_lack_a_feature_of_each_other_are_all_shown():
    alike = [offering(name, "X", "Haswell-IBRS", "Broadwell", "Haswell") for name in "ab"]
    assert best_models(complete(kubevirt(), *alike)) == ("Broadwell", "Haswell-IBRS")


def test_only_the_nodes_that_a_vm_may_use_count():
    nodes = [OLD, NEW, offering("amd", "EPYC", "EPYC")]
    assert best_models(complete(kubevirt(), *nodes)) == ()
    assert best_models(complete(kubevirt(), *nodes), {"old", "new"}) == ("Haswell",)


def test_the_features_that_a_model_lacks():
    required = {
        f"host-model-required-features.node.kubevirt.io/{name}": "true"
        for name in ("vmx", "avx512f", "aes")
    }
    assert lost_features("Haswell", node("a", required)) == ("avx512f", "vmx")
    assert lost_features("Future", node("a", required)) == ()


@pytest.mark.parametrize(
    ("better", "model"),
    [
        ("Broadwell", "Haswell"),
        ("Skylake-Server", "Broadwell"),
        ("SapphireRapids", "Skylake-Server-IBRS"),
        ("GraniteRapids", "SapphireRapids"),
        ("EPYC-Genoa", "EPYC-Milan"),
    ],
)
def test_a_newer_model_has_all_features_of_an_older_one(better, model):
    assert features(model) < features(better)


@pytest.mark.parametrize(
    ("nodes", "remedy"),
    [
        (
            [OLD, NEW],
            (
                "set CPU model Haswell, which every node offers, and restart the VM, or set None "
                "and restart it"
            ),
        ),
        (
            [OLD, offering("amd", "EPYC", "EPYC")],
            "add a node with the same processor, or set None and restart it",
        ),
    ],
)
def test_nobody_is_told_to_change_a_processor(nodes, remedy):
    cluster = complete(kubevirt(), *nodes)

    causes = ("host model Skylake",)
    assert refusal_remedies.remedy_of(causes, "set None and restart it", cluster) == remedy


ROME = [offering(name, "EPYC-Rome", "EPYC", "Dhyana", "Westmere") for name in "ab"]


def test_a_model_that_is_only_the_host_model_of_nodes():
    cluster, causes = complete(kubevirt(), *ROME), ["CPU model EPYC-Rome"]
    assert host_only(causes, cluster).startswith(" (a, b have it only as host model")
    assert other_model(causes, cluster, starts=True).startswith(
        "use CPU model host-model, or EPYC, which every node offers, instead of EPYC-Rome"
    )
    moved = other_model(causes, cluster, starts=False)
    assert "use CPU model EPYC, which" in moved
    assert "host-model" not in moved


def test_a_model_that_no_node_has_at_all():
    cluster = complete(kubevirt(), OLD, offering("amd", "EPYC", "EPYC"))
    assert host_only(["CPU model Skylake"], cluster) == ""
    assert (
        other_model(["CPU model Skylake"], cluster, starts=False)
        == "add a node that offers CPU model Skylake"
    )
    assert other_model(["cordoned"], cluster, starts=True) == ""


def test_the_offered_model_with_most_features_of_another_one():
    cluster = complete(kubevirt(), *ROME)
    assert closest("EPYC-Rome", cluster) == "EPYC"
    assert closest("Future", cluster) in ("", *best_models(cluster))


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        (
            ["CPU feature a", "CPU feature b", "taint x", "CPU feature c", "host model m"],
            ["host model m", "CPU features a, b, c", "taint x"],
        ),
        (["CPU feature a", "host model m"], ["CPU feature a", "host model m"]),
    ],
)
def test_the_model_is_named_before_the_features_that_follow_from_it(causes, told):
    assert models_first(causes) == told
