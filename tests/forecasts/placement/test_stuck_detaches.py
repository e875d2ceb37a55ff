"""What ends the detach of a volume that fails again and again."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
LINSTOR = "linstor.csi.linbit.com"
CONTROLLER = manifest(
    "v1",
    "Pod",
    "linstor-0",
    "piraeus",
    metadata={"labels": {"app.kubernetes.io/component": "linstor-controller"}},
    spec={"nodeName": "b"},
    status={"phase": "Running"},
)


def node(ready="True", used=()):
    beat = {"lastHeartbeatTime": NOW, "lastTransitionTime": "2026-11-26T10:00:00Z"}
    status = {"conditions": [{"type": "Ready", "status": ready, **beat}]}
    return manifest("v1", "Node", "a", status=status | {"volumesInUse": list(used)})


def attachment(error, driver=LINSTOR, since="2026-11-26T11:20:00Z"):
    return manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-1",
        metadata={"deletionTimestamp": since, "finalizers": ["external-attacher/x"]},
        spec={"attacher": driver, "nodeName": "a", "source": {"persistentVolumeName": "pv"}},
        status={"attached": True, "detachError": {"message": error}},
    )


def remedy(found, *others, complete=("*",)):
    driver = found.at("spec", "attacher").text
    csi = {"driver": driver, "volumeHandle": "pvc-7"}
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": csi})
    claim = manifest("v1", "PersistentVolumeClaim", "disk", "shop", spec={"volumeName": "pv"})
    items = [found, volume, claim, *(others or [node()])]
    return volume_attachments.detach_remedy(found, Snapshot(items, complete, time=NOW))


def test_linstor_is_asked_before_the_finalizer_goes():
    words = remedy(attachment("failed for pvc-7: 404 Not Found"), node(), CONTROLLER)

    assert words.startswith("once LINSTOR shows no user of it on a, remove, as a decision, the fin")
    assert "VolumeAttachment csi-1" in words
    assert "update linstor-csi" in words
    assert words.endswith("exec linstor-0 -n piraeus -- linstor resource list -r pvc-7")


def test_another_driver():
    words = remedy(attachment("volume pvc-7 not found", "block.example.com"))

    assert words.startswith("once the storage of driver block.example.com shows no user of it on a")
    assert words.endswith("kubectl edit volumeattachments.storage.k8s.io csi-1")


CONTROLLER_OF_CSI = manifest(
    "v1",
    "Pod",
    "linstor-csi-controller-0",
    "piraeus",
    metadata={
        "ownerReferences": [
            {"kind": "StatefulSet", "name": "linstor-csi-controller", "controller": True}
        ]
    },
    status={"phase": "Running"},
)
USER = manifest(
    "v1",
    "Pod",
    "guest",
    "shop",
    spec={"nodeName": "a", "volumes": [{"persistentVolumeClaim": {"claimName": "disk"}}]},
    status={"phase": "Running"},
)


@pytest.mark.parametrize(
    ("found", "others", "words"),
    [
        (attachment("404 Not Found"), [node(), USER], "end pod shop/guest first"),
        (attachment("404 Not Found"), [node(used=[f"kubernetes.io/csi/{LINSTOR}^pvc-7"])],
         "see why the kubelet of a does not unmount it"),
        (attachment("404 Not Found"), [node("Unknown")], "see whether a still uses it"),
        (attachment("busy"), [], "repair the driver"),
        (attachment("node a not found"), [], "repair the driver"),
        (attachment("404 Not Found", since="2026-11-26T11:58:00Z"), [], "repair the driver"),
    ],
    ids=["pod", "kubelet", "silent", "other error", "machine", "young"],
)  # fmt: skip
def test_no_finalizer_goes_while_the_volume_may_be_in_use(found, others, words):
    said = remedy(found, *others)

    assert said.startswith(words)
    assert "finalizer" not in said


@pytest.mark.parametrize(
    "error",
    [
        '"csi-secret" of pvc-7: secrets "csi-secret" not found',
        "pvc-7: 404 page not found",
        "404 Not Found",
        'pvc-7: backend "iscsi-1" does not exist',
        'Post "https://api/v1/volumes/pvc-7/detach": 404 Not Found',
        "pvc-7: 404 Not Found: project does not exist",
        "volume pvc-7: compute i-123 does not exist",
        'volume pvc-7: could not get VM "w1": 404',
        'volume pvc-7: could not get VM "w1": rpc error: code = NotFound desc = 404 Not Found',
        "volume pvc-7: hypervisor w1 not found",
        "pvc-7: Resource not found: [DELETE https://nova/servers/i-1/os-volume_attachments/pvc-7]",
        'pvc-7: "code": 404, "message": "Instance i-1 could not be found."',
        "volume group vg0 not found",
        "storage pool of volume pvc-7 not found",
        'failed to get token: project "x" not found',
    ],
)
def test_another_object_that_is_absent_is_not_the_volume(error):
    assert remedy(attachment(error)).startswith("repair the driver")
    assert "what the controller of driver" in remedy(attachment(error), node(), CONTROLLER_OF_CSI)


@pytest.mark.parametrize(
    "error",
    [
        "rpc error: code = Internal desc = ControllerpublishVolume failed for pvc-7: 404 Not Found",
        "rpc error: code = NotFound desc = volume not found",
        "cannot detach pvc-7 from node a: volume does not exist",
        "volume pvc-7 not found on node a",
        "pv does not exist",
    ],
)
def test_the_volume_itself_is_absent(error):
    assert "the finalizers of VolumeAttachment csi-1" in remedy(attachment(error))


def test_pods_that_could_not_be_read_may_use_it():
    known = ["nodes", "persistentvolumes", "persistentvolumeclaims"]

    assert "finalizer" not in remedy(attachment("404 Not Found"), complete=known)
