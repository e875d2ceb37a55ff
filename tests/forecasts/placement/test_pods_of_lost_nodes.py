"""Pods that others rely on and whose node does not report: when they are replaced elsewhere."""

import pytest

from tests.builders import complete
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.kubernetes.objects import Object

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def on_lost_node(owner="ReplicaSet", tolerations=None, *, ready="Unknown", minutes=3) -> BrokenPod:
    usual = [UNREACHABLE | {"operator": "Exists", "tolerationSeconds": 300}]
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": ago(minutes=minutes)}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "cp-1"},
        "spec": {"taints": [UNREACHABLE | {"timeAdded": ago(minutes=minutes)}]},
        "status": {"conditions": [condition]},
    }
    owners = [{"kind": owner, "name": "macs-1", "controller": True}] if owner else []
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "macs-1-a", "namespace": "hco", "ownerReferences": owners},
        "spec": {"nodeName": "cp-1", "tolerations": usual if tolerations is None else tolerations},
        "status": {"phase": "Running", "conditions": [condition | {"status": "False"}]},
    }
    clock = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}
    heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": ago(minutes=0)}
    cluster = complete(*map(Object, (node, pod, clock | {"status": {"conditions": [heartbeat]}})))
    found = next(each for each in cluster.known(broken_pods.POD) if each.name == "macs-1-a")
    broken = broken_pods.of_pod(found, cluster)
    assert broken is not None
    return broken


def test_it_is_evicted_and_its_replica_set_replaces_it():
    broken = on_lost_node()

    assert broken.why == "its node cp-1 has not reported for 3 min"
    assert broken.ends == (
        "it is evicted from cp-1 in 2 min, then its ReplicaSet starts it on another node, if one "
        "takes it"
    )
    assert broken.remedy.endswith("kubectl delete pod macs-1-a -n hco --wait=false")


@pytest.mark.parametrize(
    "case",
    [
        {"owner": "StatefulSet"},
        {"owner": ""},
        {"tolerations": [UNREACHABLE | {"operator": "Exists"}]},
        {"tolerations": [UNREACHABLE | {"operator": "Exists", "tolerationSeconds": 2**63 - 1}]},
        {"minutes": 8},
    ],
    ids=[
        "waits for the end of the pod",
        "no owner",
        "tolerated without end",
        "tolerated for ages",
        "should have been evicted",
    ],
)
def test_nothing_replaces_it(case):
    assert not on_lost_node(**case).ends


def test_without_an_owner_only_the_node_helps():
    assert on_lost_node("").remedy == (
        "bring node cp-1 back, or fence it: kubectl describe node cp-1"
    )


def test_a_pod_of_a_node_that_reports_is_repaired():
    broken = on_lost_node(ready="True")

    assert not broken.on_lost_node
    assert broken.remedy.startswith("repair pod macs-1-a")
