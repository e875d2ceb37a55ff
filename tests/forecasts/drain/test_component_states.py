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
    [
        ("v1beta1", '"workloads":{"nodePlacement":'),
        ("v1", '"deployment":{"nodePlacements":{"workload":'),
    ],
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


def deploying(level=""):
    """Return a KubeVirt whose virt-handler has no pod for hours, as Pod Security forbids it."""
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    space = {"metadata": {"name": "kubevirt", "labels": labels}}
    ready = {"type": "Available", "status": "False", "message": "Deploying version v1.5.0"}
    ready["lastTransitionTime"] = "2027-03-01T08:00:00Z"
    status = {"conditions": [ready], "phase": "Deploying"}
    event = {
        "metadata": {"name": "e", "namespace": "kubevirt"},
        "involvedObject": {"kind": "DaemonSet", "name": "virt-handler", "namespace": "kubevirt"},
        "type": "Warning",
        "reason": "FailedCreate",
        "lastTimestamp": "2027-03-01T11:50:00Z",
        "message": 'Error creating: pods "virt-handler-x8k2p" is forbidden: violates PodSecurity '
        '"baseline:latest": host namespaces (hostPID=true)',
    }
    own = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "status": status}
    daemon = {"metadata": {"name": "virt-handler", "namespace": "kubevirt"}}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", **space},
        {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", **own},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", **daemon},
        {"apiVersion": "v1", "kind": "Event", **event},
    ]
    return Snapshot(map(Object, items), ["*"], time="2027-03-01T12:00:00Z")


def test_pods_of_virt_handler_that_pod_security_forbids():
    (held,) = component_states.held(deploying())

    assert "DaemonSet virt-handler cannot create its pods, which violate PodSecurity" in held.reason
    assert "host namespaces (hostPID=true)" in held.reason
    assert "kubectl label namespace kubevirt pod-security.kubernetes.io/enforce=" in held.remedy
    assert "Let namespace kubevirt enforce Pod Security privileged" in held.brief


def test_a_namespace_that_allows_them_by_now_is_not_the_cause():
    (held,) = component_states.held(deploying("privileged"))

    assert "PodSecurity" not in held.reason
