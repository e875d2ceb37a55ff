"""What a Machine of a dead node waits for besides its pods, by the release of Cluster API."""

import pytest

from tests.forecasts.outage import test_deletion_under_way as dying
from tests.healthy.parts import ago
from tests.incidents_platform import cluster_api
from tests.incidents_platform.case import cluster, only
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

EXCLUDED = {"machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": ""}


@pytest.mark.parametrize(
    ("tag", "attached", "changed", "ends"),
    [
        ("v1.7.1", 2, {}, False),
        ("v1.7.1", 2, {"nodeDrainTimeout": "1m"}, False),
        ("v1.7.1", 0, {}, True),
        ("v1.7.1", 2, {"nodeVolumeDetachTimeout": "5m"}, True),
        ("v1.7.1", 2, {"notes": EXCLUDED}, True),
        ("v1.7.4", 2, {}, True),
        ("latest", 2, {}, True),
    ],
)
def test_older_releases_wait_for_the_volumes_of_a_dead_node(tag, attached, changed, ends):
    vm = dying.with_long_grace(
        dying.capi(dying.machine(dying.SHORT, **changed)), dying.release(tag), attached=attached
    )
    assert vm.outcome == ("restarts" if ends else "never restarts")
    assert ("for the 2 volumes that n1 has attached" in vm.reason) is not ends
    if not ends:
        assert "nodeVolumeDetachTimeout is not set" in vm.reason
        assert "exclude-wait-for-node-volume-detach=" in vm.remedy
        assert "nodeDrainTimeout and nodeVolumeDetachTimeout of Machine machine-n1" in vm.remedy


@pytest.mark.parametrize("pods", [dying.ledger(), dying.ledger(tolerates=False)])
def test_a_drain_time_out_does_not_end_the_wait_for_volumes(pods):
    own = dying.capi(dying.machine(dying.SHORT, nodeDrainTimeout="5m"))
    vm = dying.with_long_grace(own, dying.release("v1.7.1"), pods, attached=2)
    assert vm.outcome == "never restarts"
    assert "its deletion then waits without a limit for the 2 volumes" in vm.reason


@pytest.mark.parametrize("version", ["v1.33.4", "v1.25.4"])
@pytest.mark.parametrize("pods", [[], dying.ledger()], ids=["volumes", "a budget"])
def test_the_taint_of_a_node_without_power_ends_what_its_drain_waits_for(version, pods):
    items = dying.cluster_with(
        dying.capi(dying.machine(dying.SHORT)), dying.release("v1.7.1"), pods
    )
    dead_node = only(items, "Node", "n1")
    dead_node["status"]["volumesAttached"] = [{"name": "csi^1"}]
    dead_node["spec"]["taints"] = [
        {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    ]
    seen = Snapshot(map(Object, items), ["*"], server_version=version, time=ago())
    (vm,) = outages(Question(nodes=("n1",)), seen).outages[0].vms
    assert vm.outcome == ("restarts" if version == "v1.33.4" else "never restarts")


def test_a_drain_that_is_over_waits_for_no_grace_period():
    at = ago(minutes=1)
    over = [
        {"type": "DrainingSucceeded", "status": "True", "lastTransitionTime": at},
        {"type": "VolumeDetachSucceeded", "status": "False", "lastTransitionTime": at},
    ]
    vm = dying.with_long_grace(
        dying.capi(dying.machine(dying.SHORT, over)), dying.release("v1.7.1"), attached=2
    )
    assert "waits without a limit for the 2 volumes" in vm.reason
    assert "its drain" not in vm.reason


def test_a_pod_that_a_drain_leaves_alone_holds_it_for_no_grace_period():
    pod, own = dying.ledger(deleted={"minutes": -30})
    skips = {"labels": dying.LABELS | {"cluster.x-k8s.io/drain": "skip"}}
    held = dying.lost(dying.capi(dying.machine(dying.SHORT)), dying.release("v1.9.0"), pod, own)
    assert "for pod vms/ledger-0, whose grace period" in held.reason
    pod["metadata"] |= skips
    assert (
        "ledger-0"
        not in dying.lost(
            dying.capi(dying.machine(dying.SHORT)), dying.release("v1.9.0"), pod, own
        ).reason
    )


@pytest.mark.parametrize(("tag", "ends"), [("v1.7.3", False), ("v1.7.4", True)])
def test_the_loss_of_a_node_whose_volumes_an_older_release_would_wait_for(tag, ends):
    items = cluster(vms=[("web", "n1")]) + dying.capi(cluster_api.machine("machine-n1", "n1"))
    only(items, "Node", "n1")["status"]["volumesAttached"] = [{"name": "csi^1"}]
    seen = Snapshot(
        map(Object, [*items, dying.release(tag)]), ["*"], server_version="v1.33.4", time=ago()
    )
    (vm,) = outages(Question(nodes=("n1",)), seen).outages[0].vms
    assert vm.outcome == ("restarts" if ends else "never restarts")
    assert ("update Cluster API to 1.7.4 or later" in vm.remedy) is not ends
