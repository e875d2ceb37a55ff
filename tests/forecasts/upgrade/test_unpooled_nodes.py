"""Nodes that no MachineDeployment replaces are named, as an estimate leaves them out."""

from tests.builders import complete
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
