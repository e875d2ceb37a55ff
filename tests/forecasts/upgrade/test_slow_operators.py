"""An update that waits longer than expected for an operator that is well: its pod says why."""

from __future__ import annotations

import pytest

from tests.healthy.parts import Object as Raw
from tests.healthy.parts import ago, snapshot
from tests.incidents_platform.cluster_updates import at_rest, condition, operator, version
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

SPACE = "openshift-image-registry"
SLOW = condition(
    "Failing",
    False,
    "SlowClusterOperator",
    "waiting on image-registry over 30 minutes which is longer than expected",
) | {"status": "Unknown"}
CLAIM: Raw = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "storage",
        "namespace": SPACE,
        "finalizers": ["kubernetes.io/pvc-protection"],
        "deletionTimestamp": ago(hours=50),
    },
    "spec": {"volumeName": "pv-1"},
}


def pod(name: str, replica_set: str, phase: str, node: str = "") -> Raw:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set}
    metadata = {
        "name": name,
        "namespace": SPACE,
        "creationTimestamp": ago(hours=5),
        "ownerReferences": [owner | {"controller": True}],
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "storage"}}
    ready = condition("Ready", bool(node))
    spec: Raw = {"volumes": [volume], **({"nodeName": node} if node else {})}
    status = {"phase": phase, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


OLD = pod("image-registry-old-1", "image-registry-old", "Running", "n2")
NEW = pod("image-registry-new-1", "image-registry-new", "Pending")


def doubts(*pods: Raw, slow: Raw = SLOW) -> str:
    own = version("4.20.6", "4.20.6", slow, state="Partial")
    registry, nodes = operator("image-registry", "4.20.1"), operator("machine-config", "4.20.1")
    found = snapshot([*at_rest(), own, registry, nodes, CLAIM, *pods])
    cluster = Snapshot(map(Object, found["items"]), ["*"], time=found["time"])
    rehearsed = rehearse(cluster, Options(), forecast_only=True)
    assert rehearsed.possible is None
    return " ".join(rehearsed.unseen)


def test_the_claim_of_the_pod_is_being_deleted() -> None:
    said = doubts(OLD, NEW)
    assert f"longer than expected: pod {SPACE}/image-registry-new-1 (ReplicaSet" in said
    assert f"claim {SPACE}/storage is being deleted for 50 h and stays only while" in said
    assert "A deletion cannot be taken back" in said
    assert "(spec.storage.pvc.claim of configs.imageregistry.operator.openshift.io cluster)" in said


@pytest.mark.parametrize(
    ("pods", "slow"),
    [
        ([OLD], SLOW),  # all its pods are ready
        ([OLD, NEW], SLOW | {"message": "waiting on dns over 30 minutes which is longer"}),
        ([OLD, NEW], SLOW | {"message": "Could not update image-registry"}),
    ],
    ids=["ready", "another operator", "other words"],
)
def test_pods_for_which_it_is_not_known_to_wait(pods: list[Raw], slow: Raw) -> None:
    assert "image-registry-new-1" not in doubts(*pods, slow=slow)
