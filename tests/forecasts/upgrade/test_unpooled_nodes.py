"""Nodes that no MachineDeployment replaces are named, as an estimate leaves them out."""

import pytest

from tests.builders import complete, manifest
from tests.forecasts.upgrade.test_replacement_times import cluster
from virt_admit.forecasts.upgrade.pools import unpooled_nodes


def test_nodes_of_a_control_plane_are_not_rehearsed():
    control = cluster((0, 16, "cp"), owner="KubeadmControlPlane")

    assert list(unpooled_nodes.not_rehearsed(control)) == [
        "the nodes of MachineDeployments alone: KubeadmControlPlane cp replaces n0 besides, which "
        "is not rehearsed"
    ]
    assert not list(unpooled_nodes.not_rehearsed(cluster((0, 16, "new"))))
    assert not list(unpooled_nodes.not_rehearsed(complete()))


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        (("v1.33.11", "v1.33.10"), "cp still replaces n1 besides"),
        (("v1.33.11", "v1.33.11"), "cp replaces n0, n1 besides"),
    ],
    ids=["a roll-out goes on", "none does"],
)
def test_a_roll_out_leaves_its_new_machines_as_they_are(versions, says):
    def machine(number, version):
        owner = {"kind": "KubeadmControlPlane", "name": "cp", "controller": True}
        status, metadata = {"nodeRef": {"name": f"n{number}"}}, {"ownerReferences": [owner]}
        kind, spec = ("cluster.x-k8s.io/v1beta1", "Machine"), {"version": version}
        name = f"m{number}"
        return manifest(*kind, name, "lm", metadata=metadata, spec=spec, status=status)

    of = ("controlplane.cluster.x-k8s.io/v1beta1", "KubeadmControlPlane", "cp", "lm")
    found = complete(
        manifest(*of, spec={"version": "v1.33.11"}),
        *(machine(number, version) for number, version in enumerate(versions)),
        *(manifest("v1", "Node", f"n{number}") for number in range(2)),
    )
    (said,) = unpooled_nodes.not_rehearsed(found)

    assert says in said
