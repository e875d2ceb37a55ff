"""Networks of a VM whose NetworkAttachmentDefinition does not exist."""

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.instances import networks

LAN = {"name": "lan", "multus": {"networkName": "vlan7"}}


@pytest.mark.parametrize(
    ("kind", "state", "status", "found"),
    [
        ("VirtualMachine", "up", {}, "shop/vlan7"),
        ("VirtualMachine", "absent", {}, ""),
        ("VirtualMachineInstance", "absent", {}, ""),
        ("VirtualMachineInstance", "absent", {"phase": "Running"}, "shop/vlan7"),
    ],
    ids=["plugged", "unplugged", "as the VM would start", "not unplugged yet"],
)
def test_an_unplugged_network_does_not_count_for_the_next_start(kind, state, status, found):
    spec = {
        "networks": [LAN],
        "domain": {"devices": {"interfaces": [{"name": "lan", "bridge": {}, "state": state}]}},
    }
    spec = {"template": {"spec": spec}} if kind == "VirtualMachine" else spec
    obj = manifest("kubevirt.io/v1", kind, "db", "shop", spec=spec, status=status)

    assert networks.missing(obj, Snapshot([obj], complete=["*"])) == found
