"""A CSI driver crashes on the drained node: pods with its volumes do not end."""

import pytest

from tests.builders import manifest, node
from tests.forecasts.placement.test_unstarted_drivers import DRIVER, LONG_AGO, NOW, looping, running
from virt_admit.forecasts.drain import pod_evictions
from virt_admit.model.kubernetes.cluster import Snapshot


def consumer(name="db-0", claim="data", on="a", **metadata):
    owner = {"kind": metadata.pop("owner", "StatefulSet"), "name": "db", "controller": True}
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": claim}}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]
    return manifest(
        *("v1", "Pod", name, "shop"),
        metadata={"ownerReferences": [owner]},
        spec={"nodeName": on, "containers": [{"name": "db"}], "volumes": [volume]},
        status={"phase": "Running", "conditions": ready},
    )


def blockers(*objects, driver=DRIVER):
    volume = manifest(
        *("v1", "PersistentVolume", "pv"), spec={"csi": {"driver": driver, "volumeHandle": "1"}}
    )
    claim = manifest(*("v1", "PersistentVolumeClaim", "data", "shop"), spec={"volumeName": "pv"})
    registered = [
        manifest("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [{"name": DRIVER}]})
        for name in "ab"
    ]
    nodes = [node(name, runs_vms=False) for name in "ab"]
    cluster = Snapshot([*nodes, *registered, volume, claim, *objects], ["*"], time=NOW)
    return pod_evictions.of_node(cluster, "a").blockers


def test_pods_whose_volumes_are_not_unmounted_do_not_end():
    (found,) = blockers(looping("main"), consumer(), consumer("db-1"))
    assert found.reason == (
        f"CSI driver {DRIVER} does not work on a (pod disks-csi-node-a is not ready for 60 min: "
        "CrashLoopBackOff), so its volumes are not unmounted, and evicted pods that use them do "
        "not end: shop/db-0 and 1 more pod"
    )
    assert (found.kind, found.name, found.now) == ("Pod", "disks-csi-node-a", True)
    assert "kubectl " in found.remedy


@pytest.mark.parametrize(
    "objects",
    [
        [running(), consumer()],
        [looping("main")],
        [looping("main"), consumer(claim="other")],
        [looping("main"), consumer(owner="DaemonSet")],
        [looping("main", on="b"), consumer()],
    ],
    ids=["works", "unused", "other-claim", "not-evicted", "elsewhere"],
)
def test_pods_that_end(objects):
    assert list(blockers(*objects)) == []


def test_volumes_of_another_driver_are_unmounted():
    assert list(blockers(looping("main"), consumer(), driver="slow.disks.io")) == []
