"""Claims that request less than their snapshot needs: who makes them decides about the remedy."""

import pytest

from tests.builders import NAMESPACE, manifest
from tests.forecasts.drain.test_lost_sources import kubevirt
from virt_admit.forecasts.drain.control import small_claims
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    "error getting handle for DataSource Type VolumeSnapshot by Name snap: requested volume size "
    "30000000000 is less than the size 30064771072 for the source snapshot snap"
)
RESTORE = {"annotations": {"restore.kubevirt.io/name": "back"}}
IMPORTED = {"ownerReferences": [{"kind": "DataVolume", "name": "dv", "controller": True}]}


def restore(complete=False, failed="False", **metadata):
    status = {"complete": complete, "conditions": [{"type": "Failure", "status": failed}]}
    api = "snapshot.kubevirt.io/v1beta1"
    return manifest(
        api, "VirtualMachineRestore", "back", NAMESPACE, metadata=metadata, status=status
    )


def claim(request="30G", phase="Pending", group="snapshot.storage.k8s.io", **metadata):
    spec = {
        "dataSourceRef": {"apiGroup": group, "kind": "VolumeSnapshot", "name": "snap"},
        "resources": {"requests": {"storage": request}},
    }
    return manifest(
        "v1",
        "PersistentVolumeClaim",
        "disk",
        NAMESPACE,
        metadata=metadata,
        spec=spec,
        status={"phase": phase},
    )


def snapshot(size="28Gi"):
    api = "snapshot.storage.k8s.io/v1"
    return manifest(api, "VolumeSnapshot", "snap", NAMESPACE, status={"restoreSize": size})


def small(of, *objects, said=""):
    return small_claims.of(of, said, Snapshot(objects, ["*"]))


@pytest.mark.parametrize(("objects", "said"), [((snapshot(),), ""), ((), SAID)])
def test_a_claim_smaller_than_its_snapshot_is_always_refused(objects, said):
    found = small(claim(), *objects, said=said)

    assert found.reason.startswith("it requests 30G (30000000000 bytes), less than the ")
    assert "30064771072" in found.reason
    assert "of its VolumeSnapshot snap (restoreSize)" in found.reason


@pytest.mark.parametrize(
    ("metadata", "objects", "way"),
    [
        ({}, (), "delete the claim, which has no volume, and make it again with 28Gi or more"),
        (IMPORTED, (), "make DataVolume dv again with storage of 28Gi or more"),
        (
            RESTORE,
            (kubevirt("v0.53.2"), restore()),
            "update KubeVirt to 0.55.0 or later, then delete",
        ),
        (
            RESTORE,
            (kubevirt("v0.49.1"), restore()),
            "delete that claim, which has no volume: KubeVirt makes",
        ),
        (
            RESTORE,
            (kubevirt("v1.5.0"), restore()),
            "delete that claim, which has no volume: KubeVirt makes",
        ),
    ],
)
def test_the_remedy_depends_on_what_makes_the_claim(metadata, objects, way):
    found = small(claim(**metadata), snapshot(), *objects)

    assert found.remedy.startswith(way)
    assert found.command == "kubectl describe pvc disk -n shop"


@pytest.mark.parametrize(
    "objects",
    [[], [restore(complete=True)], [restore(failed="True")], [restore(deletionTimestamp="2026")]],
)
def test_a_restore_that_has_ended_makes_no_claim_again(objects):
    found = small(claim(**RESTORE), snapshot(), kubevirt("v1.6.0"), *objects)

    assert "make one of its name with 28Gi or more from VolumeSnapshot snap" in found.remedy
    assert "KubeVirt makes none again, as VirtualMachineRestore back does not go on" in found.remedy


def test_a_restore_that_cannot_be_read_may_go_on():
    objects = (claim(**RESTORE), snapshot(), kubevirt("v1.6.0"))
    found = small_claims.of(objects[0], "", Snapshot(objects, ["kubevirts"]))

    assert "unless VirtualMachineRestore back goes on" in found.remedy


@pytest.mark.parametrize(
    ("own", "objects"),
    [
        (claim("28Gi"), (snapshot(),)),
        (claim("30Gi"), (snapshot(),)),
        (claim(group="snapshots.example.com"), (snapshot(),)),
        (claim(phase="Bound"), (snapshot(),)),
        (claim(), (snapshot(None),)),
        (claim("much"), (snapshot(),)),
        (claim(), ()),
    ],
)
def test_a_claim_that_is_large_enough_or_not_known_to_be_small_is_not_blamed(own, objects):
    assert small(own, *objects) is None
