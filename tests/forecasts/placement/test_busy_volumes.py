"""A volume that a second node cannot open: where it is open, and what its storage lacks."""

import pytest

from tests.builders import NAMESPACE, complete, manifest
from tests.forecasts.drain.test_target_pods import warning
from virt_admit.forecasts.placement import pod_starts
from virt_admit.forecasts.placement.components import busy_volumes

ERROR = "MapVolume.MapPodDevice failed: cannot open /dev/x: Device or resource busy"
LINSTOR = "linstor.csi.linbit.com"


def pod(name, on, image="", owner="", namespace=NAMESPACE):
    metadata = {"ownerReferences": [{"kind": "DaemonSet", "name": owner, "controller": True}]} if owner else {}
    spec = {"nodeName": on, "containers": [{"name": "csi", "image": image}]}
    return manifest("v1", "Pod", name, namespace, metadata=metadata, spec=spec)


def plugin(release="v0.18.0"):
    return pod(
        "plugin",
        "b",
        f"quay.io/piraeusdatastore/piraeus-csi:{release}",
        "linstor-csi-node",
        "piraeus",
    )


def busy(*objects, driver=LINSTOR, error=ERROR, on="a", parameters=()):
    spec = {"csi": {"driver": driver, "volumeHandle": "handle"}, "storageClassName": "two"}
    kind = manifest("storage.k8s.io/v1", "StorageClass", "two", provisioner=driver, parameters=dict(parameters))
    cluster = complete(manifest("v1", "PersistentVolume", "pv", spec=spec), kind, *objects)
    return busy_volumes.of("pv", "b", error, [pod("guest", on)], cluster)


def test_a_class_of_linstor_allows_one_primary():
    found = busy(plugin())

    assert found.lasts
    assert found.words == (
        "the volume is open on a, where pod guest uses it, and DRBD has one primary, because "
        "class two does not set "
        "DrbdOptions/Net/allow-two-primaries and linstor-csi 0.18.0 does not set it for a "
        "migration, as 0.22.0 and later do"
    )
    assert "set-property handle DrbdOptions/Net/allow-two-primaries yes" in found.remedy


@pytest.mark.parametrize(
    ("change", "objects"),
    [
        ({}, [plugin("v0.22.0")]),
        ({}, []),  # its release is not known
        ({"parameters": [("DrbdOptions/Net/allow-two-primaries", "yes")]}, [plugin()]),
        ({"driver": "csi.example"}, [plugin()]),
    ],
)
def test_another_cause_is_not_guessed(change, objects):
    found = busy(*objects, **change)

    assert not found.lasts
    assert (
        found.words
        == "the volume is open on a, where pod guest uses it, and its storage does not let b open it as well"
    )
    assert found.remedy.startswith(
        "see what the driver logs about it on b, and whether its storage lets two nodes open"
    )


@pytest.mark.parametrize("change", [{"error": "no such device"}, {"on": "b"}])
def test_a_volume_that_is_open_nowhere_else_is_not_busy(change):
    assert busy(plugin(), **change) is None


@pytest.mark.parametrize(
    ("volume", "called"), [("pv-of-a-long-name", "claim disk (volume pv-of-a-long-name)"), ("ca", 'volume "ca"')]
)
def test_a_long_error_keeps_the_names_of_its_volume(volume, called):
    guest = pod("guest", "b")
    guest.data["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    bound = {"volumeName": "pv-of-a-long-name"}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec=bound)
    error = f'MapVolume.MapPodDevice failed for volume "{volume}" : {"first words " * 20}: the last ones'
    cluster = complete(guest, claim, warning(guest, "FailedMapVolume", error))

    said = pod_starts.failure(guest, cluster)

    assert said.startswith(f"MapVolume.MapPodDevice failed for {called}: first words")
    assert said.endswith("the last ones")
