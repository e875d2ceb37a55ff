"""A volume that cannot be mapped on a node, as a fence that was set for another node names it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.forecasts.placement.starts.started_pods import StartFault
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Object

RBD = "rook-ceph.rbd.csi.ceph.com"
CUT_OFF = "rbd: map failed: (108) Cannot send after transport endpoint shutdown"


def node(name: str, address: str, ready: str) -> dict:
    conditions = [{"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-11-01T12:00:00Z"}]
    status = {"addresses": [{"type": "InternalIP", "address": address}], "conditions": conditions}
    return manifest("v1", "Node", name, status=status)


def start(error: str = CUT_OFF, driver: str = RBD) -> StartFault:
    """Return why a pod on ``a`` does not start, whose address is in the fence of ``b``."""
    spec = {
        "nodeName": "a",
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}],
    }
    event = {
        "type": "Warning",
        "reason": "FailedMapVolume",
        "lastTimestamp": "2026-11-01T11:59:00Z",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "vms"},
        "message": f'MapVolume.SetUpDevice failed for volume "pv" : {error}',
    }
    created = {"creationTimestamp": "2026-11-01T11:50:00Z"}
    pending = {"phase": "Pending"}
    csi = {"driver": driver, "volumeHandle": "x"}
    fence = {"driver": RBD, "cidrs": ["10.0.0.1/32"], "fenceState": "Fenced"}
    objects = [
        manifest("v1", "Pod", "p", "vms", metadata=created, spec=spec, status=pending),
        manifest("v1", "Event", "e", "vms", **event),
        node("a", "10.0.0.1", "True"),
        node("b", "10.0.0.2", "Unknown"),
        manifest("v1", "PersistentVolumeClaim", "disk", "vms", spec={"volumeName": "pv"}),
        manifest("v1", "PersistentVolume", "pv", spec={"csi": csi}),
        manifest("ceph.rook.io/v1", "CephCluster", "c", "rook-ceph"),
        manifest(
            "csiaddons.openshift.io/v1alpha1",
            "NetworkFence",
            "b-rbd-rook-ceph",
            spec=fence,
            status={"result": "Succeeded"},
        ),
    ]
    cluster = Snapshot(objects, complete=["*"])
    fault = pod_starts.fault(next(iter(cluster.known(POD))), cluster)
    assert fault is not None
    return fault


def test_a_fence_of_a_lost_node_names_the_next_one() -> None:
    fault = start()

    assert fault.brief == (
        "NetworkFence b-rbd-rook-ceph (spec.fenceState Fenced, spec.cidrs 10.0.0.1/32) cuts a off "
        "from this storage instead of b (10.0.0.2), for which Rook has set it"
    )
    assert fault.words.endswith(f"{CUT_OFF}. {fault.brief}")
    assert fault.of_node
    assert fault.remedy.startswith(
        "lift the fence once b is off for certain, as this fence does not cut it off: kubectl "
        "patch networkfence b-rbd-rook-ceph --type=merge -p "
    )
    assert "see that ceph osd blocklist ls does not name 10.0.0.1/32" in fault.remedy
    assert fault.remedy.endswith("so taint a lost node only once it is off for certain")


@pytest.mark.parametrize(
    ("error", "driver"),
    [("rbd: map failed: (2) No such file", RBD), (CUT_OFF, "other.rbd.csi.ceph.com")],
    ids=["another error", "another storage"],
)
def test_what_the_fence_does_not_explain(error: str, driver: str) -> None:
    fault = start(error, driver)

    assert "NetworkFence" not in f"{fault.words} {fault.remedy}"
    assert fault.remedy.startswith("see what driver")


def test_fences_of_whole_networks_are_not_looked_up_in_all_nodes() -> None:
    asked: list[Kind] = []

    class Counted(Snapshot):
        def known(self, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
            asked.append(kind)
            return super().known(kind, namespace)

    spec = {"driver": RBD, "cidrs": ["10.0.0.0/24"], "fenceState": "Fenced"}
    fence = manifest("csiaddons.openshift.io/v1alpha1", "NetworkFence", "site", spec=spec)
    ceph = manifest("ceph.rook.io/v1", "CephCluster", "c", "rook-ceph")
    own = node("a", "10.0.0.1", "True")
    cluster = Counted([own, ceph, fence], complete=["*"])
    assert not list(network_fences.wrong(own, "", cluster))
    assert asked
    assert NODE not in asked
