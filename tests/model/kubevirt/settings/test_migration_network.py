"""A virt-handler without an address on the network of migrations, and one that ends for another
reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import complete, kubevirt, manifest
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import migration_network

NAD = manifest(
    *("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "fast", "kubevirt"),
    spec={"config": '{"type": "macvlan", "master": "ens2f1"}'},
)
KUBEVIRT = kubevirt(migrations={"network": "fast"})


def handler(name: str, *, ready: bool = False, ips: tuple[str, ...] = (), **ended: Any) -> Object:
    """Return a virt-handler; ``ended``: how its container ended."""
    said = [{"name": "kubevirt/fast", "interface": "migration0", "ips": list(ips)}]
    annotations = {
        "k8s.v1.cni.cncf.io/networks": "fast@migration0",
        "k8s.v1.cni.cncf.io/network-status": json.dumps(said),
    }
    container = {
        "name": "virt-handler",
        "restartCount": 0 if ready else 9,
        "lastState": {"terminated": ended},
    }
    return manifest(
        *("v1", "Pod", name, "kubevirt"),
        metadata={"labels": {"kubevirt.io": "virt-handler"}, "annotations": annotations},
        status={
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        },
    )


@pytest.mark.parametrize(
    ("ended", "blamed"),
    [
        ({"exitCode": 2}, True),
        ({"exitCode": 137, "reason": "OOMKilled"}, False),
        ({"exitCode": 143}, False),
    ],
)
def test_only_a_handler_that_ended_by_itself_lacks_an_address(
    ended: dict[str, Any], blamed: bool
) -> None:
    sick = handler("a", **ended)
    found = migration_network.fault(sick, complete(KUBEVIRT, NAD, sick))
    assert (found is not None and "has no ipam" in found.reason) is blamed


def test_a_network_whose_routers_give_addresses_is_not_blamed() -> None:
    sick, works = handler("a", exitCode=2), handler("b", ready=True)
    assert migration_network.fault(sick, complete(KUBEVIRT, NAD, sick, works)) is None
    given = handler("b", ready=True, ips=("10.9.0.2",))  # from an ipam that it had
    assert migration_network.fault(sick, complete(KUBEVIRT, NAD, sick, given)) is not None
