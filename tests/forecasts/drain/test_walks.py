"""What is asked for each VM goes through the objects of a kind once, however many VMs there are."""

from tests.builders import manifest
from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.external import external_movers
from virt_admit.forecasts.drain.guests import frozen_guests
from virt_admit.model.kubernetes.cluster import Snapshot

CAPK = "capk.cluster.x-k8s.io/kubevirt-machine-"
GROUP = "cluster.x-k8s.io/v1beta1"


class Walked(Snapshot):
    """Counts how often the objects of a kind are looked up."""

    def __init__(self, *objects):
        super().__init__(objects, complete=["*"], time="2026-11-01T12:00:00Z")
        self.walks = {}

    def known(self, kind, namespace=None):
        self.walks[kind.kind] = self.walks.get(kind.kind, 0) + 1
        return super().known(kind, namespace)


def worker(name):
    labels = {f"{CAPK}name": name, f"{CAPK}namespace": "tenants"}
    conditions = [{"type": "Ready", "status": "True"}]
    disk = {"name": "root", "persistentVolumeClaim": {"claimName": name}}
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        "tenants",
        metadata={"labels": labels},
        spec={"evictionStrategy": "External", "volumes": [disk]},
        status={"phase": "Running", "fsFreezeStatus": "frozen", "conditions": conditions},
    )


def machine(name):
    spec = {"clusterName": "c", "infrastructureRef": {"name": name}}
    return manifest(GROUP, "Machine", f"m-{name}", "tenants", spec=spec)


def snapshot(name):
    group, spec = "snapshot.storage.k8s.io/v1", {"source": {"persistentVolumeClaimName": name}}
    created = {"creationTimestamp": "2026-11-01T11:59:00Z"}
    return manifest(group, "VolumeSnapshot", f"s-{name}", "tenants", metadata=created, spec=spec)


NAMES = [f"w-{number}" for number in range(20)]
VMIS = [worker(name) for name in NAMES]


def walked():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return Walked(
        *VMIS,
        *map(machine, NAMES),
        *map(snapshot, NAMES),
        manifest(GROUP, "Cluster", "c", "tenants", spec={"paused": False}),
        manifest("apps/v1", "Deployment", "capi-provider", "tenants", status={"readyReplicas": 1}),
        manifest("v1", "Pod", "capk-controller-manager-1", "capk-system", status=ready),
    )


def test_the_pods_of_a_provider():
    cluster = walked()
    said = [vmi_evictions.reaction(vmi, cluster).reason for vmi in VMIS]

    assert all("its pod capk-system/capk-controller-manager-1 is ready" in each for each in said)
    assert cluster.walks["Pod"] == 1


def test_the_machines_and_deployments_of_a_provider():
    cluster = walked()

    assert {external_movers.working(vmi, cluster) for vmi in VMIS} == {
        "Deployment tenants/capi-provider"
    }
    assert (cluster.walks["Machine"], cluster.walks["Deployment"]) == (1, 1)


def test_the_copies_of_frozen_guests():
    cluster = walked()

    for vmi in VMIS:
        assert f"VolumeSnapshot s-{vmi.name}" in frozen_guests.words(vmi, cluster)
    assert cluster.walks["VolumeSnapshot"] == 1
