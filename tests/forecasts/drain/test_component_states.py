"""What keeps components of KubeVirt from a node for good."""

import pytest

from tests.incidents_platform.operators import tainted
from virt_admit.forecasts.drain.control import component_states
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("key", "stays"), [("dedicated", True), ("kubevirt.io/drain", False), ("karpenter.sh/x", False)]
)
def test_a_taint_that_goes_again_does_not_keep_virt_handler_away(key, stays):
    items = tainted()
    for item in items:
        for taint in item.get("spec", {}).get("taints", ()):
            taint["key"] = key
    snapshot = Snapshot(map(Object, items), ["*"])
    said = [component_states.unwanted(each, snapshot) for each in snapshot.known(NODE)]

    assert any(said) is stays


@pytest.mark.parametrize(
    ("version", "where"),
    [("v1beta1", '"workloads":{"nodePlacement":'), ("v1", '"deployment":{"nodePlacements":{"workload":')],
)
def test_hyperconverged_takes_the_toleration(version, where):
    hco = {"apiVersion": f"hco.kubevirt.io/{version}", "kind": "HyperConverged", "spec": {}}
    hco["metadata"] = {"name": "kubevirt-hyperconverged", "namespace": "kubevirt"}
    snapshot = Snapshot(map(Object, [*tainted(), hco]), ["*"])
    (held,) = (each for each in component_states.held(snapshot) if each.nodes)

    assert "nodePlacement" in held.note
    assert "kubectl patch hyperconverged kubevirt-hyperconverged -n kubevirt" in held.note
    assert where in held.note
    assert '{"key":"dedicated","operator":"Equal","value":"gpu","effect":"NoSchedule"}' in held.note
