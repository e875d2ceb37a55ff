"""Nodes in deletion: what keeps them, and that none of them is to be brought back."""

from __future__ import annotations

from typing import Any

import pytest

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import node_removals

NOW = "2026-06-01T12:00:00Z"


def node(name: str = "a", *finalizers: str, deleted: str = "", ready: str = "Unknown") -> Object:
    """Return a node that is silent, and in deletion since a time if that is given."""
    metadata: dict[str, Any] = {"name": name, "finalizers": list(finalizers)}
    if deleted:
        metadata["deletionTimestamp"] = deleted
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-06-01T11:00:00Z"}
    return Object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"conditions": [condition]},
        }
    )


def cluster(*objects: Object) -> Snapshot:
    return Snapshot(objects, complete=["*"], time=NOW)


def pod(**spec: Any) -> Object:
    return Object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "job",
                "namespace": "apps",
                "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {"nodeName": "a", **spec},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
        }
    )


OLD, YOUNG = "2026-06-01T09:00:00Z", "2026-06-01T11:55:00Z"


@pytest.mark.parametrize("deleted", [OLD, YOUNG])
def test_a_node_in_deletion_is_never_to_be_brought_back(deleted: str) -> None:
    own = node("a", "example.com/x", deleted=deleted)
    there = cluster(own, pod())
    remedies = [
        awaited_return.advice("a", there),
        node_removals.instead_of_return("a", there),
        broken_pods.of_pod(pod(), there).remedy,  # type: ignore[union-attr]
    ]
    assert len(set(remedies)) == 1
    assert "bring" not in remedies[0]
    assert "fence" not in remedies[0]


def test_a_silent_node_that_stays_is_brought_back() -> None:
    there = cluster(node("a", "example.com/x"), pod())
    assert not node_removals.instead_of_return("a", there)
    assert "bring node a back" in broken_pods.of_pod(pod(), there).remedy  # type: ignore[union-attr]


def test_karpenter_evicts_a_pod_once_its_annotation_is_gone() -> None:
    own = node("a", KARPENTER, deleted=OLD, ready="True")
    found = node_removals.of_node(own, cluster(own, pod()))
    assert found is not None
    assert "apps/job carries karpenter.sh/do-not-disrupt" in found.waits
    assert "terminationGracePeriod" not in found.waits  # its NodePool is not known
    annotate = "kubectl annotate pod job -n apps karpenter.sh/do-not-disrupt-"
    assert found.remedy.endswith(annotate)


def test_nothing_migrates_from_a_node_of_karpenter_that_does_not_report() -> None:
    own = node("a", KARPENTER, deleted=OLD)
    found = node_removals.of_node(own, cluster(own, pod()))
    assert found is not None
    assert found.remedy.startswith("make sure that its instance is off")


def test_karpenter_does_not_wait_for_a_pod_that_tolerates_its_taint() -> None:
    own = node("a", KARPENTER, deleted=OLD)
    own.data["spec"] = {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}
    there = cluster(own, pod(tolerations=[{"operator": "Exists"}]))
    found = node_removals.of_node(own, there)
    assert found is not None
    assert "apps/job" not in found.waits


def guest(name: str = "db") -> list[Object]:
    """Return a VM on the node that Karpenter may not evict, and its pod."""
    launcher = pod()
    launcher.metadata.map.update(
        labels={"kubevirt.io": "virt-launcher"},
        ownerReferences=[{"kind": "VirtualMachineInstance", "name": name, "controller": True}],
    )
    vmi = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "apps"},
        "status": {
            "nodeName": "a",
            "phase": "Running",
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    }
    return [launcher, Object(vmi)]


def migration(phase: str) -> Object:
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "m", "namespace": "apps"},
            "spec": {"vmiName": "db"},
            "status": {"phase": phase},
        }
    )


def pool(limit: str) -> Object:
    return Object(
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "metal"},
            "spec": {"template": {"spec": {"terminationGracePeriod": limit}}},
        }
    )


def in_pool() -> Object:
    own = node("a", KARPENTER, deleted=OLD, ready="True")
    own.metadata.map["labels"] = {"karpenter.sh/nodepool": "metal"}
    return own


@pytest.mark.parametrize(("phase", "held"), [("Running", False), ("Failed", True)])
def test_a_vm_that_migrates_from_a_node_of_karpenter_is_not_held(phase: str, held: bool) -> None:
    own = in_pool()
    found = node_removals.of_node(own, cluster(own, *guest(), migration(phase)))
    assert found is not None
    assert ("virtctl migrate db" in found.remedy, bool(found.remedy)) == (held, held)
    assert found.ends is None


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("12h", "but deletes it by force in 9 h at the latest (terminationGracePeriod 12h"),
        ("2h", "Karpenter does not evict it."),
    ],
)
def test_karpenter_ends_a_wait_where_its_pool_says_so(limit: str, says: str) -> None:
    own = in_pool()
    found = node_removals.of_node(own, cluster(own, *guest(), pool(limit)))
    assert found is not None
    assert says in found.waits
    assert found.ends is None
    leaving = node_removals.of_node(own, cluster(own, *guest(), migration("Running"), pool(limit)))
    assert leaving is not None
    assert ("deletes those that are left by force" in leaving.waits, leaving.remedy) == (
        limit == "12h",
        "",
    )


@pytest.mark.parametrize(
    ("deleted", "grace", "held"),
    [(YOUNG, 30, False), (OLD, 30, True), (OLD, 21600, False), ("", 30, True)],
)
def test_the_autoscaler_forgot_no_node_whose_pods_end(deleted: str, grace: int, held: bool) -> None:
    own, ending = node(ready="True"), pod(terminationGracePeriodSeconds=grace)
    key = "ToBeDeletedByClusterAutoscaler"
    own.data["spec"] = {"taints": [{"key": key, "value": "1780300800", "effect": "NoSchedule"}]}
    if deleted:
        ending.metadata.map["deletionTimestamp"] = deleted
    found = node_removals.of_node(own, cluster(own, ending))
    assert found is not None
    assert found.state == "marked for deletion by the cluster autoscaler for 4 h"
    assert ("remove taint" in found.remedy, found.ends is None) == (held, held)


KARPENTER = "karpenter.sh/termination"
LOG = (
    'failed calling webhook "x": Post "https://hook.system.svc:443/nodes": no endpoints available '
    'for service "hook"'
)


@pytest.mark.parametrize(("said", "first"), [(LOG, True), ("panic: no such file", False)])
def test_the_service_that_a_crash_names_is_repaired_first(said: str, first: bool) -> None:
    crashed = pod(containers=[{"name": "cni"}])
    ended = {"exitCode": 255, "message": said}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"name": "cni", "state": waits, "lastState": {"terminated": ended}}
    crashed.data["status"]["containerStatuses"] = [status]
    found = broken_pods.of_pod(crashed, cluster(node("a", ready="True"), crashed))
    assert found is not None
    assert ("repair Service system/hook first" in found.remedy) is first


LEFT = "wrangler.cattle.io/cisnetworkpolicy-node"


@pytest.mark.parametrize(
    ("ready", "says"),
    [
        ("True", "drain a and switch it off before you remove this finalizer"),
        ("Unknown", "make sure that a is off, as it does not report, before"),
    ],
)
def test_pods_leave_before_their_node_goes(ready: str, says: str) -> None:
    own = node("a", LEFT, deleted=OLD, ready=ready)
    found = node_removals.of_node(own, cluster(own, pod()))
    assert found is not None
    assert says in found.remedy
    assert "kubectl edit" not in found.remedy


def test_unread_pods_may_be_on_a_node() -> None:
    own = node("a", LEFT, deleted=OLD, ready="True")
    there = Snapshot([own], complete=[NODE.resource, VMI.resource], time=NOW)
    found = node_removals.of_node(own, there)
    assert found is not None
    assert "kubectl drain a --ignore-daemonsets" in found.remedy
