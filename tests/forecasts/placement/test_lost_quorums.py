"""Nodes that LINSTOR's controller taints: what the taint means, and which volume has no quorum."""

import pytest

from tests.builders import NAMESPACE, complete, manifest
from virt_admit.forecasts.placement.components.linstor import lost_quorums

KEY = "drbd.linbit.com/lost-quorum"
CLAIM = manifest("v1", "PersistentVolumeClaim", "data", NAMESPACE, spec={"volumeName": "pvc-1"})
POD = manifest(
    "v1",
    "Pod",
    "postgres-0",
    NAMESPACE,
    spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
)
ATTACHMENT = manifest(
    "storage.k8s.io/v1",
    "VolumeAttachment",
    "csi-1",
    spec={"source": {"persistentVolumeName": "pvc-1"}},
)
CONTROLLER = manifest(
    "v1",
    "Pod",
    "linstor-controller-x",
    "piraeus-datastore",
    metadata={"labels": {"app.kubernetes.io/component": "linstor-controller"}},
    status={"phase": "Running"},
)


def volume(driver="linstor.csi.linbit.com"):
    bound = {"namespace": NAMESPACE, "name": "data"}
    spec = {"csi": {"driver": driver, "volumeHandle": "pvc-1"}, "claimRef": bound}
    return manifest("v1", "PersistentVolume", "pvc-1", spec=spec)


def said_of(obj):
    about = {"kind": obj.kind, "namespace": obj.namespace, "name": obj.name}
    return manifest(
        "v1",
        "Event",
        "e",
        NAMESPACE,
        type="Warning",
        reason="VolumeWithoutQuorum",
        message="Pod was evicted because attached volume lost quorum",
        involvedObject=about,
    )


@pytest.mark.parametrize("obj", [POD, CLAIM, ATTACHMENT, volume()], ids=lambda each: each.kind)
def test_an_event_names_the_volume_without_quorum(obj):
    known = {each.full_name: each for each in (CLAIM, POD, ATTACHMENT, volume())}.values()
    found = lost_quorums.of_taint(KEY, complete(*known, said_of(obj), CONTROLLER))

    assert (
        "no quorum on the node (pvc-1 of claim shop/data), and it keeps all pods off"
        in found.reason
    )
    assert found.command == (
        "kubectl exec linstor-controller-x -n piraeus-datastore -- linstor resource list"
    )


def test_a_volume_of_another_storage_has_no_part_in_it():
    found = lost_quorums.of_taint(KEY, complete(CLAIM, POD, volume("nfs.csi.k8s.io"), said_of(POD)))

    assert "no quorum on the node, and it keeps all pods off" in found.reason
    assert found.command == ""


def test_other_taints_mean_something_else():
    assert lost_quorums.of_taint("drbd.linbit.com/force-io-error", complete()) is None
