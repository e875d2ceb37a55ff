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


GROWN = (
    "failed to verify data source: size of target volume (10737418240 bytes) is different than "
    "size of source volume (21474836480 bytes)"
)


def source(size):
    spec, status = {"resources": {"requests": {"storage": size}}}, {"capacity": {"storage": size}}
    return manifest("v1", "PersistentVolumeClaim", "root", NAMESPACE, spec=spec, status=status)


def taken(size="10Gi"):
    spec, status = {"source": {"persistentVolumeClaimName": "root"}}, {"restoreSize": size}
    api = "snapshot.storage.k8s.io/v1"
    return manifest(api, "VolumeSnapshot", "snap", NAMESPACE, spec=spec, status=status)


@pytest.mark.parametrize(
    ("metadata", "way"),
    [
        ({}, "delete the claim, which has no volume, and make it again with 20Gi"),
        (IMPORTED, "make DataVolume dv again with storage of 20Gi"),
        (
            {"annotations": {"restore.harvesterhci.io/name": "back"}},
            "end VirtualMachineRestore back, make a claim of 20Gi from VolumeSnapshot snap under",
        ),
        (RESTORE, "end VirtualMachineRestore back, make a claim of 20Gi from VolumeSnapshot snap"),
    ],
)
def test_a_source_that_was_expanded_after_its_snapshot(metadata, way):
    found = small(claim("10Gi", **metadata), taken(), source("20Gi"), said=GROWN)

    assert found.reason == (
        "it requests 10Gi, the restoreSize of VolumeSnapshot snap, as a copy of claim root, which "
        "has 20Gi now (expanded after the snapshot). Its provisioner copies only into a volume of "
        "the same size, so this does not end by itself"
    )
    assert found.brief == "the claim requests 10Gi as a copy of claim root, which has 20Gi now"
    assert found.remedy.startswith(way)
    assert found.remedy.endswith("; or restore a snapshot that was taken after the expansion")


@pytest.mark.parametrize("objects", [[], [taken()], [taken(), source("30Gi")], [source("20Gi")]])
def test_a_source_of_another_size_is_told_in_the_words_of_the_storage(objects):
    reason = small(claim("10Gi"), *objects, said=GROWN).reason

    assert "as a copy of the source volume, which has 21474836480 now" in reason
    assert "claim root" not in reason


def test_a_clone_of_a_claim_in_another_size():
    data = {"kind": "PersistentVolumeClaim", "name": "root"}
    spec = {"dataSource": data, "resources": {"requests": {"storage": "10Gi"}}}
    status = {"phase": "Pending"}
    own = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec=spec, status=status)

    found = small(own, source("20Gi"), said=GROWN)
    assert found.reason.startswith("it requests 10Gi as a copy of claim root, which has 20Gi now.")
    assert "snapshot" not in found.remedy


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (claim("20Gi"), GROWN),
        (claim("10Gi", phase="Bound"), GROWN),
        (claim("10Gi", group="snapshots.example.com"), GROWN),
        (claim("10Gi"), "no space is left"),
    ],
    ids=["made again in the right size", "has its volume", "another source", "another error"],
)
def test_a_source_of_the_same_size_is_not_blamed(own, said):
    assert small(own, taken(), source("20Gi"), said=said) is None
