"""Why virt-handler does not offer a node: it is absent, does not answer, or works and says so."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.refusals import unserved_nodes
from virt_admit.forecasts.placement.refusals.busy_nodes import not_ready_now
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED

KVM = "devices.kubevirt.io/kvm: 1 missing"
BEGIN = "no node can take it: "


def node(name="n1", schedulable="false", beat="2026-06-04T11:59:00Z", kubelet="v1.25.3"):
    labels = {"kubevirt.io/schedulable": schedulable} if schedulable else {}
    annotations = {"kubevirt.io/heartbeat": beat} if beat else {}
    times = {
        "lastHeartbeatTime": "2026-06-04T12:00:00Z",
        "lastTransitionTime": "2026-06-01T12:00:00Z",
    }
    status = {
        "conditions": [{"type": "Ready", "status": "True", **times}],
        "nodeInfo": {"kubeletVersion": kubelet},
    }
    metadata = {"labels": labels, "annotations": annotations}
    return manifest("v1", "Node", name, metadata=metadata, status=status)


def handler(on="n1", ready="True", since="2026-06-01T12:00:00Z"):
    labels = {"kubevirt.io": "virt-handler"}
    metadata = {"labels": labels, "creationTimestamp": "2026-05-01T12:00:00Z"}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    status = {"phase": "Running", "conditions": [condition]}
    return manifest(
        "v1",
        "Pod",
        f"virt-handler-{on}",
        "kubevirt",
        metadata=metadata,
        spec={"nodeName": on},
        status=status,
    )


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([node(schedulable="", beat="")], "KubeVirt does not run there"),
        ([node()], "no pod of virt-handler runs there"),
        ([node(), handler(ready="False")], "virt-handler there is not ready"),
        (
            [node(beat="2026-06-04T11:10:00Z"), handler()],
            "virt-handler there sent its last heartbeat 50 min ago",
        ),
        (
            [node(), handler()],
            "virt-handler works there, but its device plugins are not registered "
            "(kubevirt.io/schedulable=false)",
        ),
    ],
)
def test_each_state_has_its_words(objects, says):
    cluster = Snapshot(objects, complete=["*"])
    told = unserved_nodes.told("n1", f"{UNSERVED}; {KVM}", cluster)
    assert told == f"{says}; {KVM}"
    assert unserved_nodes.without_effects(told) == says


def test_what_does_not_follow_from_the_plugins_is_said_as_well():
    cluster = Snapshot([node(), handler()])
    told = unserved_nodes.told("n1", f"{UNSERVED}; {KVM}; memory: 2Gi missing", cluster)
    assert unserved_nodes.without_effects(told).endswith("; memory: 2Gi missing")


@pytest.mark.parametrize("cause", ["cordoned", "taint gpu", "memory: 2Gi missing"])
def test_other_causes_stay(cause):
    assert unserved_nodes.told("n1", cause, Snapshot([node(), handler()])) == cause
    assert unserved_nodes.without_effects(cause) == cause


def test_nodes_with_plugins_that_are_not_registered():
    cluster = Snapshot([node(), handler(), node("n2"), handler("n2")])
    refusals = {"n1": f"{UNSERVED}; {KVM}", "n2": f"{UNSERVED}; {KVM}", "n3": "taint gpu"}
    found = unserved_nodes.problem(refusals, BEGIN, cluster)
    assert found is not None
    assert found.reason.startswith(f"{BEGIN}n1, n2 are labelled kubevirt.io/schedulable=false")
    assert "(kubelet v1.25.3); the other nodes: taint gpu" in found.reason
    assert "see in the log of virt-handler" in found.remedy
    assert found.remedy.endswith("kubectl logs virt-handler-n1 -n kubevirt")


@pytest.mark.parametrize(
    ("kubevirt", "kubelet", "old"),
    [
        ("v0.57.1", "v1.25.0", True),
        ("v0.57.1", "v1.24.9", False),
        ("v0.58.0", "v1.25.0", False),
        ("v1.6.0", "v1.33.1", False),
    ],
)
def test_releases_that_do_not_go_together(kubevirt, kubelet, old):
    status = {"observedKubeVirtVersion": kubevirt}
    of_release = manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", status=status)
    cluster = Snapshot([node(kubelet=kubelet), handler(), of_release])
    assert ("to 0.58 or later" in unserved_nodes.remedy(["n1"], cluster)) == old


def test_only_a_node_that_virt_handler_has_left_is_ready_by_itself():
    refusals = {"n1": UNSERVED}
    assert not_ready_now(refusals, Snapshot([node(), handler()])) is None
    assert not_ready_now(refusals, Snapshot([node(), handler(ready="False")])) is not None
