"""What may remediate a node and is not read."""

from types import SimpleNamespace

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.outage.restarts import unattended_vms
from virt_admit.forecasts.remediation import outside_checks
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.node_updates.operators import orphaned_nodes


@pytest.mark.parametrize(("space", "outside"), [("fleet-default", 1), ("fleet-local", 0)])
def test_rancher_manages_its_own_cluster_from_within(space, outside):
    notes = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": space}
    cluster = complete(manifest("v1", "Node", "a", metadata={"annotations": notes}))
    assert len(list(outside_checks.outside("a", cluster))) == outside


def _left_over(cluster_of_machine: str, silent: str = "a") -> Cluster:
    """Silent Nodes whose Machine does not exist, and a healthy one with its Machine."""
    notes = {f"cluster.x-k8s.io/{key}": key for key in ("machine", "cluster-namespace")}
    notes["cluster.x-k8s.io/cluster-name"] = "prod"
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-06-01T11:00:00Z"}
    now = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-06-01T12:00:00Z"}
    machine = manifest(
        *("cluster.x-k8s.io/v1beta2", "Machine", "b"),
        metadata={"namespace": "cluster-namespace"},
        spec={"clusterName": cluster_of_machine},
        status={"nodeRef": {"name": "b"}},
    )
    status = {"conditions": [lost]}
    return complete(
        *(
            manifest("v1", "Node", each, metadata={"annotations": notes}, status=status)
            for each in silent
        ),
        manifest("v1", "Node", "b", status={"conditions": [now]}),
        machine,
    )


@pytest.mark.parametrize(
    ("cluster_of_machine", "outside", "remedy"),
    [("prod", 0, "then delete the Node"), ("another", 1, "create a health check")],
)
def test_no_other_cluster_has_the_machine_of_a_node_that_is_left_over(
    cluster_of_machine, outside, remedy
):
    cluster = _left_over(cluster_of_machine)
    assert len(list(outside_checks.outside("a", cluster))) == outside
    loss, room = SimpleNamespace(cluster=cluster), SimpleNamespace(nowhere={}, fits=None)
    pod, uncovered = SimpleNamespace(full_name="ns/p"), SimpleNamespace(actors=())
    assert remedy in unattended_vms.why_and_remedy("a", pod, loss, uncovered, room, "")[1]


def test_machines_are_gone_through_once_for_all_silent_nodes(monkeypatch):
    cluster, asked, real = _left_over("prod", silent="acde"), [], machine_nodes.node_name
    monkeypatch.setattr(
        machine_nodes, "node_name", lambda machine, seen: asked.append(1) or real(machine, seen)
    )
    assert all(orphaned_nodes.of_node(name, cluster) is not None for name in "acde")
    assert len(asked) == 1
