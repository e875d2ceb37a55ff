"""Start-up taints that nothing removes, on many nodes."""

from tests.builders import manifest
from virt_admit.forecasts.placement.components import left_taints
from virt_admit.model.kubernetes.cluster import Snapshot

KEY = "node.cilium.io/agent-not-ready"


def node(name, *taints):
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return manifest("v1", "Node", name, metadata=metadata, spec={"taints": list(taints)})


def commands(number):
    tainted = [node(f"n{each:02}", {"key": KEY, "effect": "NoSchedule"}) for each in range(number)]
    cluster = Snapshot([*tainted, node("other")], ["*"], time="2026-02-01T00:00:00Z")
    return [found.command for each in tainted for _, found in left_taints.of_node(each, cluster)]


def test_a_command_names_the_node_alone_where_there_are_many():
    assert commands(2) == [f"kubectl taint nodes n00 n01 {KEY}-"] * 2
    assert commands(11)[3] == f"kubectl taint nodes n03 {KEY}-"
