"""Target pods that lack the annotation from which a network binding plugin learns its device."""

import pytest

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher import missing_network_info

FAILED = "socket,path=/var/run/kubevirt/vhostuser/net1: Failed to bind socket: No such file"
INFO = {"kubevirt.io/network-info": "{}"}


def pod(name, annotations, **labels):
    annotations = {"k8s.v1.cni.cncf.io/network-status": '[{"device-info": {}}]', **annotations}
    labels = {"kubevirt.io/created-by": "u1", **labels}
    metadata = {"annotations": annotations, "labels": labels}
    return manifest("v1", "Pod", name, "shop", metadata=metadata)


def told(said=FAILED, release="v1.6.2", binding="device-info", annotations=None, status=None):
    interface = {"name": "net1", "binding": {"name": "vhostuser"}}
    vmi = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        "shop",
        metadata={
            "uid": "u1",
            "ownerReferences": [{"kind": "VirtualMachine", "name": "db", "controller": True}],
        },
        spec={"domain": {"devices": {"interfaces": [interface]}}},
    )
    network = {"binding": {"vhostuser": {"downwardAPI": binding}}}
    kubevirt = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"configuration": {"network": network}},
        status={"observedKubeVirtVersion": release},
    )
    job = {"kubevirt.io/migrationJobUID": "m"}
    target = pod("target", annotations or {}, **job)
    if status is not None:
        target.data["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = status
    return missing_network_info.problem(
        vmi, said, Snapshot([kubevirt, pod("source", INFO), target])
    )


def test_the_annotation_its_plugin_and_the_release_that_writes_it():
    found = told()
    assert found.reason == (
        "KubeVirt 1.6.2 gives no target pod the annotation kubevirt.io/network-info (missing in "
        "target), which network binding vhostuser of interface net1 needs (downwardAPI: "
        f"device-info), so no node and no retry helps: {FAILED}"
    )
    assert found.remedy == (
        "update KubeVirt to 1.6.3 or later; until then the VM leaves its node by a restart alone, "
        "which shuts its guest down: virtctl restart db -n shop"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"release": "v1.6.3"},
        {"release": "v1.7.0"},
        {"release": ""},
        {"said": "Failed to bind socket of net10"},
        {"binding": ""},
        {"annotations": INFO},
        {"status": "[]"},
    ],
)
def test_a_failure_of_another_cause(other):
    assert told(**other) is None
