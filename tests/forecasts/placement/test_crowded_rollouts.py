"""Roll-outs whose new pod finds each of its nodes taken by a former one."""

import pytest

from tests.builders import kubevirt, manifest
from tests.forecasts.placement.test_cordoned_homes import LONG_AGO, MESSAGE, NOW, USUAL, node
from virt_admit.forecasts.placement.components.controllers import crowded_rollouts
from virt_admit.model.kubernetes.cluster import Snapshot

INFRA, APP = {"infra": ""}, {"app": "plugin"}
NODES = [node("i0", INFRA), node("i1", INFRA), node("w1")]
SPACE = kubevirt().namespace
ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": APP}}
        ]
    }
}


def deployment(reason="ProgressDeadlineExceeded"):
    late = {"type": "Progressing", "status": "False", "reason": reason}
    late |= {"lastTransitionTime": LONG_AGO}
    return manifest("apps/v1", "Deployment", "plugin", SPACE, status={"conditions": [late]})


def pod(name, on="", affinity=ALONE):
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    owner = {"kind": "ReplicaSet", "name": f"plugin-{name[-1]}", "controller": True}
    spec = {"nodeSelector": INFRA, "tolerations": USUAL, "affinity": affinity}
    return manifest(
        "v1",
        "Pod",
        name,
        SPACE,
        metadata={"ownerReferences": [owner], "labels": APP},
        spec=spec | ({"nodeName": on} if on else {}),
        status={"conditions": [] if on else [placed | {"message": MESSAGE}]},
    )


OLD, NEW = [pod("old-1", "i0"), pod("old-2", "i1")], pod("new-1")


def held(*objects, complete=("*",), nodes=NODES):
    return list(crowded_rollouts.held(Snapshot([kubevirt(), *nodes, *objects], complete, time=NOW)))


def test_each_node_of_the_new_pod_has_a_former_one():
    (found,) = held(deployment(), *OLD, NEW)

    assert found.reason == (
        f"the roll-out of Deployment {SPACE}/plugin has stood for 40 min: its new pod new-1 may "
        "share no node with the former ones (required anti-affinity), and only i0, i1 may run it "
        "(node selector infra=), each with one of them"
    )
    assert f"kubectl delete pod old-1 -n {SPACE} --wait=false; or let a further" in found.remedy


def test_a_single_pod_is_not_to_be_deleted():
    (found,) = held(deployment(), OLD[0], NEW, nodes=[NODES[0], NODES[2]])

    assert "kubectl delete" not in found.remedy
    assert found.remedy.startswith("let a further node run pod new-1, which needs infra=")


@pytest.mark.parametrize(
    ("objects", "nodes"),
    [
        ([deployment("NewReplicaSetCreated"), *OLD, NEW], NODES),  # it still goes on
        ([deployment(), *OLD], NODES),
        ([deployment(), *OLD, pod("new-1", affinity={})], NODES),  # it lacks something else
        ([deployment(), *OLD, NEW], [*NODES, node("i2", INFRA)]),  # a free node
        ([deployment(), *OLD, NEW], [NODES[2]]),
    ],
)
def test_other_roll_outs(objects, nodes):
    assert held(*objects, nodes=nodes) == []


def test_nodes_that_were_not_read_may_take_it():
    assert held(deployment(), *OLD, NEW, complete=("pods", "deployments.apps")) == []
