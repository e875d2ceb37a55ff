"""Pods whose workload tolerates the cordon: they come back to the node that is drained."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import drain_plan, node_notes
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, BEGAN = "2026-01-01T12:00:00Z", "2026-01-01T11:15:00Z"
KEY = "node.kubernetes.io/unschedulable"
CORDON = {"key": KEY, "effect": "NoSchedule"}
SPACE = "cattle-fleet-local-system"


def node(**spec):
    taints = [CORDON | {"timeAdded": BEGAN}]
    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": NOW}]}
    spec = {"unschedulable": True, "taints": taints} | spec
    return manifest("v1", "Node", "a", spec=spec, status=status)


def machine(*, deleted=True, annotations=None, **spec):
    metadata = {"deletionTimestamp": BEGAN} if deleted else {}
    said = {"type": "DrainingSucceeded", "status": "False", "reason": "Draining", "message": "Pods"}
    status = {"nodeRef": {"name": "a"}, "conditions": [said | {"lastTransitionTime": BEGAN}]}
    metadata["annotations"] = annotations or {}
    api, spec = "cluster.x-k8s.io/v1beta1", {"clusterName": "c"} | spec
    return manifest(api, "Machine", "m-a", "fleet", metadata=metadata, spec=spec, status=status)


def pod(app="fleet-agent", created="2026-01-01T11:59:30Z", kind="ReplicaSet", **toleration):
    toleration = toleration or CORDON
    metadata = {
        "creationTimestamp": created,
        "ownerReferences": [{"kind": kind, "name": f"{app}-x", "controller": True}],
    }
    spec = {"nodeName": "a", "tolerations": [toleration], "containers": [{"name": "c"}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    name = f"{app}-x-1"
    return manifest("v1", "Pod", name, SPACE, metadata=metadata, spec=spec, status=status)


def made_by(kind="Deployment", app="fleet-agent"):
    owners = [{"kind": kind, "name": app, "controller": True}]
    return manifest(
        "apps/v1", "ReplicaSet", f"{app}-x", SPACE, metadata={"ownerReferences": owners}
    )


def fleet(space=SPACE, key=KEY):
    spec = {"agentTolerations": [{"key": key, "effect": "NoSchedule"}], "agentNamespace": space}
    return manifest("fleet.cattle.io/v1alpha1", "Cluster", "local", "fleet-local", spec=spec)


def plan(*objects):
    return drain_plan.node_plan("a", Snapshot([*objects], complete=["*"], time=NOW))


LOOP = (node(), machine(), pod(), made_by())


def test_cluster_api_drains_without_an_end():
    found = plan(*LOOP, fleet())
    (blocker,) = found.pods.blockers
    assert found.drainable is False
    assert blocker.subject == f"Deployment {SPACE}/fleet-agent"
    assert "fleet-agent-x-1 is 30 s old), as it tolerates " + KEY in blocker.reason
    assert "spec.agentTolerations of Fleet's Cluster fleet-local/local" in blocker.remedy
    assert "kubectl edit clusters.fleet.cattle.io local -n fleet-local" in blocker.remedy


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([pod(), made_by()], "take that toleration out of it"),
        ([pod(), made_by(), fleet(space="elsewhere")], "take that toleration out of it"),
        ([pod(), made_by(), fleet(key="other")], "take that toleration out of it"),
        ([pod(operator="Exists"), made_by()], "by their keys, and not every taint"),
        ([pod(kind="StatefulSet")], "kubectl edit statefulset fleet-agent-x"),
    ],
)
def test_the_remedy_is_at_what_writes_the_toleration(others, says):
    (blocker,) = plan(node(), machine(), *others).pods.blockers
    assert says in f"{blocker.remedy[0].lower()}{blocker.remedy[1:]}"


@pytest.mark.parametrize(
    "objects",
    [
        (node(), machine(), pod(created="2025-12-01T00:00:00Z"), made_by()),
        (node(), machine(), pod(created="2026-01-01T11:16:00Z"), made_by()),
        (node(), machine(), pod(created="2026-01-01T11:30:00Z"), made_by()),
        (node(), machine(), pod(key="other", effect="NoSchedule"), made_by()),
        (node(), machine(), pod(kind="DaemonSet")),
        (node(), machine(), pod(kind="Job")),
        (node(), machine(nodeDrainTimeout="10m"), pod(), made_by()),
        (
            node(),
            machine(annotations={"machine.cluster.x-k8s.io/exclude-node-draining": ""}),
            pod(),
            made_by(),
        ),
        (node(), machine(deleted=False), pod(), made_by()),
        (node(), pod(), made_by()),
    ],
    ids=(
        *(
            "older than the drain",
            "as old as the drain",
            "not evicted",
            "another taint",
            "DaemonSet",
            "Job",
        ),
        *("time-out", "not drained", "Machine stays", "kubectl drain"),
    ),
)
def test_other_drains_end(objects):
    found = plan(*objects)
    assert not found.pods.blockers
    assert found.drainable is not False


def test_a_cordoned_node_does_not_become_empty():
    cluster = Snapshot([node(), pod(), made_by()], complete=["*"], time=NOW)
    said = [each for each in node_notes.notes(node(), cluster) if "come back" in each]
    assert len(said) == 1
    assert "kubectl drain ends all the same" in said[0]
    quiet = Snapshot([node(), pod(key="other"), made_by()], complete=["*"], time=NOW)
    assert not any("come back" in each for each in node_notes.notes(node(), quiet))
