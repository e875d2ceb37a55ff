"""Reports whose cause was shortened into its contrary, or out of the text:
what remains is true on its own.
"""

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj

from .machines import event, find, launcher_of
from .starts import importing, pending, starting

CALL = "rpc error: code = {} desc = {}"
GONE = 'failed to find VirtualMachine for node:"worker-7". Error: node wasn\'t found'
MOUNTED = (
    'MapVolume.MapPodDevice failed for volume "pvc-84ae6f06-9eca-5e01-8740-7d6c35c1b8cd" : '
    + CALL.format("FailedPrecondition", "it appears dev is already mounted at ")
    + (
        "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/"
        "pvc-84ae6f06-9eca-5e01-8740-7d6c35c1b8cd/43ab, "
    )
    + (
        "should be "
        "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-84ae6f06/block_device"
    )
)


def on_w2():
    """Return a VM whose pod is on w2 and has not started for an hour."""
    items = starting("db", "Scheduling")
    pod = launcher_of(items, "db")
    pod["spec"]["nodeName"] = "w2"
    pod["status"] = {"phase": "Pending"}
    find(items, "PersistentVolumeClaim", "db")["spec"]["accessModes"] = ["ReadWriteOnce"]
    return items, pod


def attachment(items, node, **metadata):
    volume = find(items, "PersistentVolumeClaim", "db")["spec"]["volumeName"]
    status = {"attached": True, "detachError": {"message": CALL.format("Internal", GONE)}}
    spec = {
        "attacher": "csi.example.com",
        "nodeName": node,
        "source": {"persistentVolumeName": volume},
    }
    found = obj(
        "VolumeAttachment", "storage.k8s.io/v1", f"csi-{'e016ab15' * 8}", spec=spec, status=status
    )
    found["metadata"] |= metadata
    return found


def warning(text):
    return next(line for line in text.splitlines() if "[vm-start-stuck]" in line)


def test_a_volume_of_a_node_that_is_gone_still_exists(ask):
    items, _ = on_w2()
    items = plain((1, 6)) + items + [attachment(items, "worker-7", deletionTimestamp=ago(hours=2))]

    said = warning(ask(items, "scan"))
    assert (
        "claim db is still attached to worker-7, which does not exist: its VolumeAttachment is "
        "in deletion"
    ) in said
    assert "Error: node wasn't found. Check the controller of driver" in said
    told = ask(items, "explain", "vm/db", "-n", "vms")
    assert (
        "its VolumeAttachment is in deletion for 2 h, but the detach fails: failed to find "
        "VirtualMachine"
    ) in told
    assert "node wasn't found\n" in told


def test_a_volume_that_arrives_is_not_accused(ask):
    items, _ = on_w2()
    items = plain((1, 6)) + items + [attachment(items, "w2")]

    assert "vm-start-stuck" not in ask(items, "scan")


def test_the_answer_of_a_driver_stays(ask):
    items, pod = on_w2()
    items = plain((1, 6)) + items + [event(pod, "FailedMapVolume", MOUNTED, "kubelet")]

    assert "FailedPrecondition: it appears dev is already mounted at" in warning(ask(items, "scan"))
    told = ask(items, "explain", "vm/db", "-n", "vms")
    assert (
        "FailedPrecondition: it appears dev is already mounted at /var/…/43ab, should be "
        "/var/…/block_device"
    ) in told


def test_a_claim_that_is_pending_is_named_with_its_cause(ask):
    items = importing("data-volume-of-a-long-name", "ImportInProgress")
    name = "data-volume-of-a-long-name-scratch"
    static = obj(
        "StorageClass",
        "storage.k8s.io/v1",
        "local-storage",
        provisioner="kubernetes.io/no-provisioner",
    )
    items = [each for each in items if each["metadata"]["name"] != name] + [
        pending(name, "local-storage"),
        static,
    ]

    said = warning(ask(plain((1, 6)) + items, "scan"))
    assert f"claim {name} is Pending: class local-storage has no provisioner" in said
    assert "…" not in said


def test_the_volume_of_scratch_space_has_to_be_next_to_the_disk(ask):
    items = importing("disk", "ImportInProgress")
    static = obj(
        "StorageClass",
        "storage.k8s.io/v1",
        "local-storage",
        provisioner="kubernetes.io/no-provisioner",
    )
    volume = find(
        items,
        "PersistentVolume",
        find(items, "PersistentVolumeClaim", "disk")["spec"]["volumeName"],
    )
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["w3"]}
    volume["spec"]["nodeAffinity"] = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    }
    known = [each for each in plain((1, 6)) if each["kind"] != "StorageClass"]

    told = ask(
        known + items + [pending("disk-scratch", "local-storage"), static],
        "explain",
        "vm/disk",
        "-n",
        "vms",
    )
    assert "To do\n  create a class that has a provisioner" in told
    assert "; or create a PersistentVolume of 10Gi of class local-storage on node w3\n" in told
