"""A Node names its Machine itself; provider ids are compared only where it does not."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes.cluster import Snapshot

NAME, SPACE = "cluster.x-k8s.io/machine", "cluster.x-k8s.io/cluster-namespace"


@pytest.mark.parametrize(
    ("notes", "id_of_node", "own"),
    [
        ({}, "metal3:///m1", True),
        ({}, "metal3:///other", False),
        ({}, None, True),
        ({NAME: "m1", SPACE: "fleet"}, "baremetal:///n1", True),
        ({NAME: "m1"}, "baremetal:///n1", True),
        ({NAME: "m1", SPACE: "other"}, "metal3:///m1", False),
        ({NAME: "m2", SPACE: "fleet"}, "metal3:///m1", False),
    ],
)
def test_the_node_of_a_machine(notes: dict[str, str], id_of_node: str | None, own: bool) -> None:
    machine = manifest("cluster.x-k8s.io/v1beta1", "Machine", "m1", "fleet", spec={"providerID": "metal3:///m1"})
    machine.data["status"] = {"nodeRef": {"name": "n1"}}
    node = manifest("v1", "Node", "n1", metadata={"annotations": notes}, spec={"providerID": id_of_node})

    assert machine_nodes.node_name(machine, Snapshot([machine, node], ("*",))) == ("n1" if own else "")
