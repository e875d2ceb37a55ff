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
    machine = manifest(
        "cluster.x-k8s.io/v1beta1", "Machine", "m1", "fleet", spec={"providerID": "metal3:///m1"}
    )
    machine.data["status"] = {"nodeRef": {"name": "n1"}}
    node = manifest(
        "v1", "Node", "n1", metadata={"annotations": notes}, spec={"providerID": id_of_node}
    )

    assert machine_nodes.node_name(machine, Snapshot([machine, node], ("*",))) == (
        "n1" if own else ""
    )


@pytest.mark.parametrize(
    ("other", "drained"),
    [
        ({}, True),
        ({"namespace": "tenant"}, False),
        ({"of": "tenant"}, False),
        ({"name": "m3"}, False),
        ({"on": "n2"}, False),
    ],
    ids=["", "another namespace", "another cluster", "another Machine", "another node"],
)
def test_a_node_that_was_installed_again_is_drained_for_its_old_machine(
    other: dict[str, str], drained: bool
) -> None:
    """Source: machine_controller.go#drainNode goes by the name of the Node."""
    space = other.get("namespace", "fleet")
    new = manifest(
        CAPI,
        "Machine",
        other.get("name", "m2"),
        space,
        spec={"clusterName": other.get("of", "local")},
    )
    new.data["status"] = {"nodeRef": {"name": other.get("on", "n1")}}
    metadata = {"deletionTimestamp": "2026-06-01T09:00:00Z"}
    old = manifest(CAPI, "Machine", "m1", "fleet", metadata=metadata, spec={"clusterName": "local"})
    old.data["status"] = {"nodeRef": {"name": "n1"}}
    node = manifest("v1", "Node", "n1", metadata={"annotations": {NAME: "m2", SPACE: space}})
    found = Snapshot([old, new, node], ("*",))

    assert machine_nodes.node_name(old, found) == ""
    assert machine_nodes.emptied_node(old, found) == ("n1" if drained else "")


CAPI = "cluster.x-k8s.io/v1beta1"
