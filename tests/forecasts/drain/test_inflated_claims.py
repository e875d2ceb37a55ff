"""Claims that request more than their snapshot gives, where the storage takes only that size."""

import pytest

from tests.builders import NAMESPACE, manifest
from virt_admit.forecasts.drain.control import small_claims
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = "requested size 22310128 is larger than the size 20971520 of the source snapshot"
LABEL = {"cdi.kubevirt.io/applyStorageProfile": "true"}
RESTORE = {"restore.kubevirt.io/name": "back"}
SAVED = manifest(
    "snapshot.storage.k8s.io/v1", "VolumeSnapshot", "s", NAMESPACE, status={"restoreSize": "20Mi"}
)
CDI = manifest("cdi.kubevirt.io/v1beta1", "CDI", "cdi", spec={"config": {}})


def config(share="0.06"):
    status = {"filesystemOverhead": {"global": "0.06", "storageClass": {"san": share}}}
    return manifest("cdi.kubevirt.io/v1beta1", "CDIConfig", "config", status=status)


def claim(request="22310128", *, labels=LABEL, phase="Pending", **spec):
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    spec = {
        "dataSourceRef": source,
        "resources": {"requests": {"storage": request}},
        "storageClassName": "san",
    } | spec
    metadata = {"labels": labels, "annotations": RESTORE}
    api = ("v1", "PersistentVolumeClaim", "disk", NAMESPACE)
    return manifest(*api, metadata=metadata, spec=spec, status={"phase": phase})


def of(obj, *objects, said=SAID):
    return small_claims.of(obj, said, Snapshot([SAVED, CDI, *objects], ["*"]))


@pytest.mark.parametrize(
    ("request_", "said"), [("22310128", SAID), ("22229812", SAID.replace("22310128", "22229812"))]
)
def test_cdi_has_added_the_overhead_of_file_systems(request_, said):
    """Of the whole claim before, of the disk now."""
    found = of(claim(request_), config(), said=said)

    assert f"it requests {request_}, more than the 20Mi (20971520 bytes)" in found.reason
    assert "cdi-api-pvc-mutate added the overhead of file systems (0.06 for class san)" in (
        found.reason
    )
    first, _, last = found.remedy.partition(". Or, only while no other disk of class san is made")
    assert first.startswith("use CDI 1.64 or later")
    assert "KubeVirt makes it again with 20Mi" in first
    assert '"filesystemOverhead":{"storageClass":{"san":"0"}}' in last
    assert found.command.startswith("kubectl describe pvc disk")


@pytest.mark.parametrize(
    ("obj", "objects"),
    [
        (claim(), []),
        (claim(labels={}), [config()]),
        (claim(), [config("0.02")]),
        (claim(volumeMode="Block"), [config()]),
    ],
    ids=["share not known", "no label", "another share", "a block device"],
)
def test_nothing_is_said_of_cdi_without_evidence(obj, objects):
    found = of(obj, *objects)

    assert f"which its provisioner refuses ({SAID})" in found.reason
    assert "CDI" not in found.reason + found.remedy
    assert found.remedy.startswith("end VirtualMachineRestore back, make a claim of 20Mi from")


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (claim(), ""),
        (claim(), "no space: 22310128 bytes are not free"),
        (claim(), "requested size 5 is larger than the size 4 of the source snapshot"),
        (claim(), "ResourceExhausted: size 22310128 is larger than the free space for a snapshot"),
        (claim(), "OutOfRange: requested size 22310128 exceeds the quota of the tenant"),
        (claim(), "22310128 bytes: pool san-1 has no room, max free extent exceeds limit"),
        (claim(), "requested size 22310128 is larger than the pool"),
        (claim("20Mi"), "requested size 20971520 is larger than the free space"),
        (claim(phase="Bound"), SAID),
    ],
    ids=[
        "no refusal",
        "another refusal",
        "other numbers",
        "space",
        "quota",
        "room",
        "pool",
        "the same size",
        "bound",
    ],
)
def test_a_larger_claim_is_normal_unless_its_size_is_refused(obj, said):
    assert of(obj, config(), said=said) is None
