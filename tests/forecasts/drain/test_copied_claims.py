"""What can be copied while a VM uses the claim that a data volume copies."""

import pytest

from tests.builders import complete, manifest, partial
from virt_admit.forecasts.drain.starts import waiting_disks
from virt_admit.forecasts.drain.starts.waiting_disks import CopySource

DRIVER = "csi.example.com"
CLASS = manifest("storage.k8s.io/v1", "StorageClass", "fast", provisioner=DRIVER)
CLAIM = manifest("v1", "PersistentVolumeClaim", "golden", "vms", spec={"storageClassName": "fast"})


def snapshot_class(driver):
    return manifest("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "s", driver=driver)


def profile(**status):
    return manifest("cdi.kubevirt.io/v1beta1", "StorageProfile", "fast", status=status)


NONE = f"copy a claim that nothing uses ({DRIVER} has no VolumeSnapshotClass)"
SNAPSHOT = "copy from a VolumeSnapshot instead"


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        (complete(CLASS, CLAIM), NONE),
        (complete(CLASS, CLAIM, snapshot_class("other.example.com")), NONE),
        (complete(CLASS, CLAIM, snapshot_class(DRIVER)), SNAPSHOT),
        (complete(CLASS, CLAIM, profile(snapshotClass="s")), SNAPSHOT),
        (complete(CLAIM), f"{SNAPSHOT}, if its driver makes any"),  # the class is gone
        (partial(CLAIM), f"{SNAPSHOT}, if its driver makes any"),
        (partial(CLASS, CLAIM), f"{SNAPSHOT}, if {DRIVER} makes any"),
    ],
)
def test_a_snapshot_is_named_only_where_one_is_possible(cluster, says):
    found = waiting_disks._other_source(CopySource("vms", "golden", ()), cluster)

    assert found == says
