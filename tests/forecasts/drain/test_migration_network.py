"""A virt-handler that ends at its start: the cause is named, and a drain does not wait for it."""

import json

import pytest

from tests.builders import kubevirt, manifest
from tests.forecasts.drain.test_vm_states import LAUNCHER, MIGRATES, row
from tests.forecasts.drain.vm_motion import ago, cluster, vmi
from virt_admit.forecasts.drain.control import control_path

BLOCKS = "blocks the drain"
NETWORKS = "k8s.v1.cni.cncf.io/network-status"


def handler(*, ips=None, age=8000, restarts=29, ready=False, reason="CrashLoopBackOff"):
    """Return the virt-handler of node a; ``ips``: what its interface of migrations got, if any."""
    joined = {"name": "kubevirt/fast", "interface": "migration0", "dns": {}}
    joined |= {"ips": ips} if ips else {}
    notes = {NETWORKS: json.dumps([{"name": "k8s-pod-network", "ips": ["10.0.0.9"]}, joined])}
    labels = {"kubevirt.io": "virt-handler"}
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": ago(age)}
    ended = {"terminated": {"exitCode": 2, "reason": "Error"}}
    status = {
        "phase": "Running",
        "conditions": [condition],
        "containerStatuses": [
            {
                "name": "virt-handler",
                "restartCount": restarts,
                "state": state,
                "lastState": ended if restarts else {},
            }
        ],
    }
    return manifest(
        "v1",
        "Pod",
        "virt-handler-a",
        "kubevirt",
        metadata={"labels": labels, "annotations": notes, "creationTimestamp": ago(age)},
        spec={"nodeName": "a", "containers": [{"name": "virt-handler"}]},
        status=status,
    )


def network(**config):
    spec = {"config": json.dumps({"cniVersion": "0.3.1", "type": "macvlan"} | config)}
    kind = "NetworkAttachmentDefinition"
    return manifest("k8s.cni.cncf.io/v1", kind, "fast", "kubevirt", spec=spec)


def drained(pod, *more, settings=None):
    own = kubevirt({"migrations": {"network": "fast"} if settings is None else settings})
    snapshot = cluster(vmi(), LAUNCHER, pod, own, *more)
    return row(snapshot), control_path.of_node(snapshot, "a")


def test_a_network_without_ipam_is_the_cause():
    found, path = drained(handler(), network())

    assert found.outcome == BLOCKS
    assert "CrashLoopBackOff, it ends as migration0 got no IP address" in found.reason
    assert "NetworkAttachmentDefinition kubevirt/fast, which has no ipam" in found.reason
    assert "then delete pod virt-handler-a" in found.remedy
    assert "or remove spec.configuration.migrations.network of KubeVirt kubevirt" in found.remedy
    assert [each.name for each in path.hindrances] == ["virt-handler-a"]


@pytest.mark.parametrize(
    ("config", "settings"), [({"ipam": {"type": "whereabouts"}}, None), ({}, {})]
)
def test_a_pod_keeps_the_interface_it_was_created_with(config, settings):
    found, _ = drained(handler(), network(**config), settings=settings)

    assert found.outcome == BLOCKS
    assert "when it was created" in found.reason
    assert "an ipam" not in found.remedy
    assert "kubectl delete pod virt-handler-a -n kubevirt" in found.remedy


@pytest.mark.parametrize("ips", [["192.168.7.4"], ["fe80::1", "2001:db8::4"]])
def test_with_an_address_the_log_says_why(ips):
    found, _ = drained(handler(ips=ips), network())

    assert found.outcome == BLOCKS
    assert "ipam" not in found.reason + found.remedy
    assert "kubectl logs virt-handler-a -n kubevirt --previous" in found.remedy


def test_a_link_local_address_is_none():
    assert "got no IP address" in drained(handler(ips=["fe80::1"]), network())[0].reason


@pytest.mark.parametrize(
    ("pod", "stops"),
    [
        (handler(ips=["192.168.7.4"], age=300), [False]),
        (handler(age=30, restarts=0, reason=""), [False]),
        (handler(ips=["192.168.7.4"], reason="ContainerCreating", restarts=0), [False]),
        (handler(ready=True, reason="", restarts=0), []),
    ],
    ids=["crashes for minutes", "just started", "does not crash", "an address of a router"],
)
def test_what_may_recover_is_not_said_to_block(pod, stops):
    found, path = drained(pod, network())

    assert found.outcome == MIGRATES  # no more than a doubt
    assert [each.stops for each in path.hindrances] == stops
    assert not any("ipam" in each.reason for each in path.hindrances)


@pytest.mark.parametrize(("age", "outcome"), [(8000, BLOCKS), (300, MIGRATES)])
def test_a_network_that_does_not_exist_blocks_once_it_lasts(age, outcome):
    pod = handler(age=age, restarts=0, reason="ContainerCreating")
    pod.data["metadata"]["annotations"] = {}
    found, path = drained(pod)

    assert found.outcome == outcome
    assert "NetworkAttachmentDefinition kubevirt/fast, does not exist" in path.hindrances[0].reason
    field = "spec.configuration.migrations.network of KubeVirt kubevirt"
    create = f"Create NetworkAttachmentDefinition kubevirt/fast; or correct {field}"
    assert path.hindrances[0].remedy.startswith(create) is (outcome == BLOCKS)


@pytest.mark.parametrize(("age", "outcome"), [(8000, BLOCKS), (300, MIGRATES)])
def test_an_image_that_cannot_be_pulled_for_long_blocks(age, outcome):
    pod = handler(ips=["192.168.7.4"], age=age, restarts=0, reason="ImagePullBackOff")
    assert drained(pod, network())[0].outcome == outcome
