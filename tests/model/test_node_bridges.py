"""Bridges that nodes do not have: which resource stands for one,
and the policy that was to make it.
"""

import pytest

from tests.builders import manifest
from virt_admit.model import node_bridges
from virt_admit.model.kubernetes.cluster import Snapshot

LONG = (
    "error reconciling NodeNetworkConfigurationPolicy on node w2:\nTraceback\n"
    "NmstateError: InvalidArgument: no port ens4f1"
)


def policy(*bridges):
    interfaces = [{"name": each, "type": "linux-bridge"} for each in bridges]
    return manifest(
        "nmstate.io/v1",
        "NodeNetworkConfigurationPolicy",
        "lan",
        spec={"desiredState": {"interfaces": interfaces}},
    )


def enactment(node, failing, message=LONG):
    labels = {"nmstate.io/node": node, "nmstate.io/policy": "lan"}
    condition = {"type": "Failing", "status": failing, "message": message}
    status = {"conditions": [condition]}
    kind = "NodeNetworkConfigurationEnactment"
    return manifest(
        "nmstate.io/v1beta1", kind, f"{node}.lan", metadata={"labels": labels}, status=status
    )


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("bridge.network.kubevirt.io/br1", "br1"),
        ("ovs-cni.network.kubevirt.io/br-ex", "br-ex"),
        ("nvidia.com/A100", ""),
        ("devices.kubevirt.io/kvm", ""),
    ],
)
def test_resources_that_stand_for_a_bridge(resource, name):
    assert node_bridges.bridge(resource) == name


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        ((), "make bridge br1 on w2 or w3"),
        ((policy("other"), enactment("w2", "True")), "make bridge br1 on w2 or w3"),
        (
            (policy("br1"), enactment("w2", "False")),
            "make bridge br1 on w2 or w3 (NodeNetworkConfigurationPolicy lan makes it elsewhere)",
        ),
        (
            (
                policy("bond0", "br1"),
                enactment("w1", "True"),
                enactment("w3", "True", ""),
                enactment("w2", "True"),
            ),
            (
                "make bridge br1 on w2 or w3, and correct NodeNetworkConfigurationPolicy lan (it "
                "failed on w2, w3: InvalidArgument: no port ens4f1)"
            ),
        ),
    ],
)
def test_how_another_node_gets_a_bridge(objects, remedy):
    assert node_bridges.remedy("br1", ("w3", "w2"), Snapshot(list(objects), ["*"])) == remedy
