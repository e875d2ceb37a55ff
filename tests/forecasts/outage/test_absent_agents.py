"""Nodes on which the agent of Self Node Remediation does not run."""

import pytest

from tests.forecasts.outage.losses import lose, manifest, nhc, node, snapshot, vm
from virt_admit.model.kubernetes.nodes import WORKER
from virt_admit.reports.outage.text import text

AGENT = {"app.kubernetes.io/name": "self-node-remediation", "app.kubernetes.io/component": "agent"}


def agents(*nodes):
    """The agents of Self Node Remediation on some nodes, and their DaemonSet."""
    spec = {"template": {"metadata": {"labels": AGENT}, "spec": {}}}
    daemon = manifest("apps/v1", "DaemonSet", "agent", "medik8s", spec=spec)
    pods = [
        manifest(
            "v1",
            "Pod",
            f"agent-{name}",
            "medik8s",
            metadata={"labels": AGENT},
            spec={"nodeName": name},
        )
        for name in nodes
    ]
    return [daemon, *pods]


def test_a_node_without_an_agent_is_not_freed_by_another_limit():
    nodes = [node("n1"), node("n2"), node("n3")]
    taint = {"key": "dedicated", "value": "desktop", "effect": "NoSchedule"}
    nodes[0]["spec"] = {"taints": [taint]}
    for each in nodes:
        each["metadata"]["annotations"] = {
            "is-reboot-capable.self-node-remediation.medik8s.io": "true"
        }
    lost = lose(snapshot(nodes, vm("db", "n1"), nhc(minimum="51%"), agents("n2", "n3")), "n1", "n2")
    assert lost.outages[0].vms[0].outcome == "never restarts"
    assert (
        "cannot remediate it: no SelfNodeRemediation agent runs there"
        in lost.outages[0].vms[0].reason
    )
    assert "minHealthy" not in lost.outages[0].vms[0].remedy
    well = lose(snapshot(nodes, vm("db", "n1"), nhc(), agents("n1", "n2", "n3")), "n1")
    assert well.outages[0].vms[0].outcome == "restarts"


@pytest.mark.parametrize(
    ("release", "workers", "survives"),
    [
        ("v0.9.0", (), False),
        ("v0.9.0", ("n1",), False),  # its only peer would be itself
        ("v0.9.0", ("n2",), True),
        ("v0.11.1", (), True),  # reboots without asking
        ("latest", (), None),
    ],
)
def test_a_node_without_peers_may_go_on_running_its_vms(release, workers, survives):
    nodes = [node("n1"), node("n2"), node("n3")]
    for each in nodes:
        each["metadata"]["annotations"] = {
            "is-reboot-capable.self-node-remediation.medik8s.io": "true"
        }
        if each["metadata"]["name"] not in workers:
            del each["metadata"]["labels"][WORKER]
    daemon, *pods = agents("n1", "n2", "n3")
    image = f"quay.io/medik8s/self-node-remediation-operator:{release}"
    daemon["spec"]["template"]["spec"] = {"containers": [{"name": "manager", "image": image}]}
    every = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    check = nhc(selector=every)
    lost = lose(snapshot(nodes, vm("db", "n1"), check, [daemon, *pods]), "n1")
    assert lost.survives is survives
    if survives is False:
        assert "1 VM runs twice, with the same disks, if the node is not off" in lost.because[0]
        assert "every VM runs again, perhaps twice" in text(lost)
        plain = " ".join(sorted({"n1", "n2", "n3"}.difference(workers)))
        assert f"kubectl label node {plain} {WORKER}=" in text(lost)
    elif survives is None:
        assert "whether n1 reboots where it is cut off" in lost.because[0]
