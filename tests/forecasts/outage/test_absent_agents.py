"""Nodes on which the agent of Self Node Remediation does not run."""

from tests.forecasts.outage.losses import lose, manifest, nhc, node, snapshot, vm

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
