"""Machines that wait for a controller of Cluster API which does not run,
and what waits for them.
"""

from __future__ import annotations

from typing import Any

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.incidents.machines import find
from tests.incidents.starts import starting
from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import command_of

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
API, LABEL = "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/provider"
Items = list[dict[str, Any]]


def machine(
    name: str, node: str = "", owner: str = "KubeadmControlPlane cp", **labels: str
) -> dict[str, Any]:
    kind, by = owner.split()
    metadata = {
        "name": name,
        "namespace": "fleet",
        "labels": {key.replace("_", "-"): value for key, value in labels.items()},
        "creationTimestamp": "2026-06-01T10:00:00Z",
        "ownerReferences": [{"kind": kind, "name": by, "controller": True}],
    }
    waits = {"type": "InfrastructureReady", "status": "False", "reason": "WaitingForIPAddress"}
    status = {"nodeRef": {"name": node}} if node else {"conditions": [waits]}
    spec = {"clusterName": "edge", "infrastructureRef": {"kind": "VSphereMachine", "name": name}}
    return {
        "apiVersion": API,
        "kind": "Machine",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def controller(ready: int = 0, **spec: Any) -> Items:
    metadata = {"name": "caip", "namespace": "caip-system", "labels": {LABEL: "ipam-in-cluster"}}
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 1, "template": {"spec": spec}},
            "status": {"readyReplicas": ready},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": "caip-1", "creationTimestamp": "2026-06-01T10:00:00Z"},
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [placed]},
        },
    ]


def claim() -> dict[str, Any]:
    return {
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
        "kind": "IPAddressClaim",
        "metadata": {
            "name": "w-9-0-0",
            "namespace": "fleet",
            "ownerReferences": [{"kind": "VSphereVM", "name": "w-9"}],
        },
        "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "edge"}},
    }


def edge(*more: dict[str, Any], ready: int = 0, **spec: Any) -> Items:
    """Return a cluster whose nodes are all control-plane nodes,
    and a Machine that waits for an address.
    """
    items = plain()
    names = [each["metadata"]["name"] for each in items if each["kind"] == "Node"]
    for name in names:
        find(items, "Node", name)["spec"]["taints"] = [
            {"key": CONTROL_PLANE, "effect": "NoSchedule"}
        ]
    own = [machine(f"m-{name}", name) for name in names]
    label = {"cluster.x-k8s.io/deployment-name": "md"}
    late = machine("w-9", owner="MachineSet md-1")
    late["metadata"]["labels"] = label
    deployment = {
        "apiVersion": API,
        "kind": "MachineDeployment",
        "metadata": {"name": "md", "namespace": "fleet"},
    }
    return [*items, *own, late, claim(), deployment, *controller(ready, **spec), *more]


def snapshot(items: Items) -> Snapshot:
    return Snapshot(map(Object, items), ("*",))


def test_a_vm_waits_for_the_node_that_does_not_come() -> None:
    found = stuck(edge() + starting("web", "Scheduling"), "web")

    assert found.reason.startswith(
        "only control-plane nodes are left, and the next node does not come: Machine fleet/w-9"
    )
    assert (
        "IPAddressClaim w-9-0-0 gets no address, because Deployment caip-system/caip does not run"
        in found.reason
    )
    assert '/spec/template/spec/tolerations"' in command_of(found.remedy)
    assert "VM tolerate" not in found.remedy


def test_a_vm_waits_for_a_machine_whose_controllers_run() -> None:
    found = stuck(edge(ready=1) + starting("web", "Scheduling"), "web")

    assert "has no node for" in found.reason
    assert "InfrastructureReady is False: WaitingForIPAddress" in found.reason
    assert found.remedy.startswith(
        "provide what that Machine waits for, unless it goes on: "
        "kubectl describe machines.cluster.x-k8s.io w-9"
    )


def test_no_node_is_on_its_way() -> None:
    items = [each for each in edge() if each["metadata"]["name"] != "w-9"]
    found = stuck(items + starting("web", "Scheduling"), "web")

    assert found.remedy == "add a node, as these are control-plane nodes"


def test_the_upgrade_stops_at_the_pool_without_nodes() -> None:
    result = rehearse(snapshot(edge()), Options())

    assert result.possible is False
    assert [stop.reason.partition(" has no node")[0] for stop in result.stops] == [
        "Machine fleet/w-9"
    ]


def test_the_owner_of_the_nodes_is_named() -> None:
    result = rehearse(snapshot(edge(ready=1)), Options())

    assert result.possible is None
    assert "Machine fleet/w-9 has no node" in result.unseen[0]
    assert (
        "their Machines belong to KubeadmControlPlane cp, and only MachineDeployments are rehearsed"
        in result.unseen[1]
    )


def test_a_toleration_is_added_to_others() -> None:
    items = edge(tolerations=[{"key": "other", "operator": "Exists"}])

    assert (
        '/spec/template/spec/tolerations/-"'
        in stalled_machines.of_cluster(snapshot(items))["fleet/w-9"].remedy
    )


def test_a_controller_that_tolerates_every_taint_has_another_fault() -> None:
    found = stalled_machines.of_cluster(snapshot(edge(tolerations=[{"operator": "Exists"}])))[
        "fleet/w-9"
    ]

    assert "pod caip-1 is not ready: it has no node" in found.why
    assert "tolerate" not in found.why


def test_what_owns_the_deployment_sets_the_toleration() -> None:
    """Cluster API Operator writes a Deployment again."""
    items = edge()
    owner = {"kind": "IPAMProvider", "name": "in-cluster", "controller": True}
    find(items, "Deployment", "caip")["metadata"]["ownerReferences"] = [owner]

    found = stalled_machines.of_cluster(snapshot(items))["fleet/w-9"]
    assert found.remedy.startswith(
        "add that toleration to spec.deployment.tolerations of IPAMProvider in-cluster"
    )


def test_a_machine_of_a_cluster_elsewhere_becomes_no_node_here() -> None:
    other = machine("t-1", owner="MachineSet t")
    other["spec"]["clusterName"] = "tenant"
    found = snapshot(edge(other, ready=1))

    assert [each.machine.name for each in stalled_machines.waiting(found)] == ["w-9"]


def test_a_machine_that_failed_is_told_at_once():
    """An autoscaler deletes it before it is late."""
    made = "2026-06-01T11:59:00Z"
    young, failed = machine("m-2"), machine("m-3")
    for each in (young, failed):
        each["metadata"]["creationTimestamp"] = made
    failed["status"]["failureMessage"] = "quota exceeded"
    here = machine("m-1", "n")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    items = [Object(each) for each in (here, young, failed, node)]
    (found,) = stalled_machines.waiting(Snapshot(items, ["*"], time="2026-06-01T12:00:00Z"))
    assert found.why == "Machine fleet/m-3 has no node for 60 s: quota exceeded"
