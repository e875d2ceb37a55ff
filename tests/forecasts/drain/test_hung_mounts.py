"""Pods that have ended and stay, because the server of their network file system is gone."""

import pytest

from tests.builders import endpoint_slice, manifest
from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.states import hung_mounts
from virt_admit.model.kubernetes.cluster import Snapshot

NOON, GONE = "2026-01-01T12:00:00Z", "10.43.171.24"
NODE = manifest(
    "v1",
    "Node",
    "w2",
    status={"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": NOON}]},
)
CLAIM = manifest("v1", "PersistentVolumeClaim", "data", "web", spec={"volumeName": "pv-1"})
DNS = manifest("v1", "Service", "dns", "kube-system", spec={"clusterIP": "10.43.0.10"})


RANGE = manifest(
    "networking.k8s.io/v1", "ServiceCIDR", "kubernetes", spec={"cidrs": ["10.43.0.0/16"]}
)


def pod(*, state="terminated", **volume):
    volumes = [volume or {"persistentVolumeClaim": {"claimName": "data"}}]
    ended = {"deletionTimestamp": "2026-01-01T11:00:00Z", "deletionGracePeriodSeconds": 30}
    status = {"phase": "Running", "containerStatuses": [{"name": "app", "state": {state: {}}}]}
    return manifest(
        "v1",
        "Pod",
        "app",
        "web",
        metadata=ended,
        spec={"nodeName": "w2", "volumes": volumes},
        status=status,
    )


def share(server=GONE, **more):
    return manifest(
        "v1", "PersistentVolume", "pv-1", spec={"nfs": {"server": server, "path": "/x"}, **more}
    )


def by_driver(driver):
    return manifest(
        "v1",
        "PersistentVolume",
        "pv-1",
        spec={"csi": {"driver": driver, "volumeAttributes": {"server": "192.168.1.5"}}},
    )


def service(address, name="nfs"):
    return manifest("v1", "Service", name, "storage", spec={"clusterIP": address})


def cluster(*objects, complete=("*",)):
    return Snapshot([NODE, CLAIM, DNS, *objects], complete=list(complete), time=NOON)


def test_a_server_without_a_service_is_gone():
    own = pod()
    (blocker,) = pod_evictions.of_node(cluster(own, share(), RANGE), "w2").lasting
    assert blocker.reason == (
        "it should have ended 60 min ago, but the kubelet of w2 cannot unmount its volume pv-1 "
        f"(claim data): its NFS server {GONE} is gone (no Service has this address)"
    )
    assert blocker.remedy == (
        "Reboot w2 once its VMs have left, because a hung NFS mount does not end otherwise, or let "
        f"a server answer at {GONE} again: kubectl describe persistentvolume pv-1"
    )


@pytest.mark.parametrize(
    ("volume", "more", "why"),
    [
        (share(), (service(GONE),), "Service storage/nfs has no ready endpoint"),
        (share("nfs.storage.svc.cluster.local"), (), "Service storage/nfs does not exist"),
    ],
)
def test_a_server_whose_service_does_not_answer(volume, more, why):
    found = hung_mounts.of_pod(pod(), cluster(volume, *more))
    assert f"is gone ({why})" in found.reason


def test_the_server_of_a_storage_class_is_named():
    parameters = {"nfsServerName": "own", "nfsServerNamespace": "web"}
    storage = manifest("storage.k8s.io/v1", "StorageClass", "nfs", parameters=parameters)
    objects = (share(storageClassName="nfs"), storage)
    missing = (
        "no Service has this address, and NFSServer web/own of StorageClass nfs does not exist"
    )
    assert missing in hung_mounts.of_pod(pod(), cluster(*objects)).reason
    server = manifest("nfs.rook.io/v1alpha1", "NFSServer", "own", "web")
    assert "NFSServer" not in hung_mounts.of_pod(pod(), cluster(*objects, server)).reason


@pytest.mark.parametrize(
    "objects",
    [
        (share("192.168.1.5"),),
        (share("nas.example.com"),),
        (share("nas.storage.svc.example.com"),),
        (by_driver("nfs.csi.k8s.io"),),
    ],
)
def test_a_server_outside_is_not_called_gone(objects):
    found = hung_mounts.of_pod(pod(), cluster(*objects))
    assert "gone" not in found.reason
    assert "does not answer" in found.reason
    assert found.remedy.startswith("see whether w2 reaches")


def test_an_address_near_those_of_services_may_be_a_host():
    found = hung_mounts.of_pod(pod(), cluster(share()))
    assert found.reason.endswith(
        "does not answer; no Service has this address: if it was that of one, that is gone"
    )
    assert found.remedy.startswith("see whether w2 reaches")


def static_pod(*command, name="kube-apiserver-m1", namespace="kube-system"):
    return manifest("v1", "Pod", name, namespace, spec={"containers": [{"command": list(command)}]})


@pytest.mark.parametrize(
    "flag",
    [
        ("kube-apiserver", "--service-cluster-ip-range=10.43.0.0/16"),
        ("kube-apiserver", "--service-cluster-ip-range=fd00:10:96::/112,10.43.0.0/16"),
        ("kube-apiserver", "--service-cluster-ip-range", "10.43.0.0/16"),
    ],
)
def test_the_flag_of_the_control_plane_names_the_range(flag):
    found = hung_mounts.of_pod(pod(), cluster(share(), static_pod(*flag)))
    assert f"its NFS server {GONE} is gone (no Service has this address)" in found.reason


@pytest.mark.parametrize(
    ("objects", "gone"),
    [
        (
            (static_pod("kube-controller-manager", "--service-cluster-ip-range=10.43.0.0/24"),),
            False,
        ),
        # only a hint
        ((static_pod("x", "--service-cluster-ip-range=10.43.0.0/16", namespace="web"),), True),
        ((static_pod("kube-apiserver", "--service-cluster-ip-range=none"),), False),
    ],
)
def test_an_address_outside_of_the_range_is_that_of_a_host(objects, gone):
    found = hung_mounts.of_pod(pod(), cluster(share(), *objects))
    assert "does not answer" in found.reason
    assert ("gone" in found.reason) is gone


def test_a_pod_may_name_the_server_itself():
    found = hung_mounts.of_pod(pod(nfs={"server": GONE, "path": "/x"}), cluster(RANGE))
    assert f"cannot unmount its volume: its NFS server {GONE} is gone" in found.reason
    assert "kubectl" not in found.remedy


def test_services_that_are_not_known_hide_nothing():
    found = hung_mounts.of_pod(pod(), cluster(share(), complete=("nodes", "persistentvolumes")))
    assert "gone" not in found.reason


def test_a_server_that_answers_is_not_called_gone():
    endpoint = {"conditions": {"ready": True}, "nodeName": "w1"}
    slices = endpoint_slice("nfs", "storage", endpoint)
    assert "gone" not in hung_mounts.of_pod(pod(), cluster(share(), service(GONE), slices)).reason


@pytest.mark.parametrize(
    ("own", "objects"),
    [
        (pod(state="running"), (share(),)),
        (pod(emptyDir={}), ()),
        (pod(), (by_driver("smb.csi.k8s.io"),)),
    ],
    ids=["it still runs", "no claim", "another volume"],
)
def test_other_pods(own, objects):
    assert hung_mounts.of_pod(own, cluster(own, *objects)) is None
