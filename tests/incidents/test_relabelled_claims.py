"""Guests whose files have the label of another pod that mounts the same claim."""

import copy

import pytest

from tests.healthy.parts import ago, obj

from .machines import find, launcher_of
from .paused import stopped_by_storage

LEVEL = "s0:c3,c4"


def shared(*, level=LEVEL, owner=None):
    items = copy.deepcopy(stopped_by_storage())
    vmi = find(items, "VirtualMachineInstance", "db")
    vmi["status"]["selinuxContext"] = "system_u:object_r:container_file_t:s0:c1,c2"
    find(items, "PersistentVolumeClaim", "db")["spec"]["volumeMode"] = "Filesystem"
    own = launcher_of(items, "db")
    own["status"]["startTime"] = ago(days=3)
    other = copy.deepcopy(own)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "dump", "uid": "x"}
    other["metadata"] = {
        "name": "dump-x",
        "namespace": "vms",
        "uid": "dump-x",
        "ownerReferences": [(owner or reference) | {"controller": True}],
    }
    other["spec"]["containers"] = [{"name": "dump", "image": "x"}]
    other["spec"]["securityContext"] = {"seLinuxOptions": {"level": level}}
    other["status"]["startTime"] = ago(minutes=58)
    return [*items, other]


def test_the_pod_is_named_with_both_levels(ask):
    told = ask(shared(), "explain", "vm/db", "-n", "vms")
    words = (
        "pod vms/dump-x with another SELinux level (s0:c3,c4, its launcher has s0:c1,c2) mounts "
        "claim db on its node too, since"
    )
    notes = told.partition("\nNotes\n")[2]
    assert words in notes
    assert "It goes on only after that pod has ended and the VM is restarted" in notes
    to_do = told.partition("\nTo do\n")[2].partition("\n\n")[0]
    first = (
        "suspend Job vms/dump for this time (whose pods lose their work): kubectl patch job dump"
    )
    assert first in to_do
    assert "; once its pod has ended, restart the VM (virtctl restart db -n vms)" in to_do
    assert words in ask(shared(), "scan")


def test_a_pod_with_the_level_of_the_launcher_is_not_accused(ask):
    told = ask(shared(level="s0:c1,c2"), "explain", "vm/db", "-n", "vms")
    assert "dump-x" not in told
    assert "nothing that was read says why" in told


def test_the_controller_of_a_job_is_named(ask):
    of = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    job = obj("Job", "batch/v1", "dump", "vms", metadata={"ownerReferences": [of | {"uid": "y"}]})
    told = ask([*shared(), job], "scan", "--select", "vmi-paused-by-io-error")
    assert "(whose pods lose their work; CronJob nightly may start it again)" in told


def test_a_pod_without_a_level_may_have_another_one(ask):
    items = shared()
    items[-1]["spec"]["securityContext"] = {}
    told = ask(items, "scan", "--select", "vmi-paused-by-io-error")
    assert "its files may have the label of another pod: pod vms/dump-x, which may have" in told
    assert "See why the storage of claim db does not answer" in told
    assert "kubectl describe vmi db -n vms" in told
    assert not any(each in told for each in ("suspend", "restart", "probably"))


def unlabelled(items):
    find(items, "VirtualMachineInstance", "db")["status"].pop("selinuxContext")


def off(items):
    find(items, "VirtualMachineInstance", "db")["status"]["selinuxContext"] = "none"


def before(items):
    items[-1]["status"]["startTime"] = ago(days=2)


def share(items):
    volume = find(items, "PersistentVolume", "pvc-vms-db")
    volume["spec"]["csi"]["driver"] = "nfs.csi.k8s.io"


def unbound(items):
    items.remove(find(items, "PersistentVolume", "pvc-vms-db"))


@pytest.mark.parametrize("change", [unlabelled, off, before, share, unbound])
@pytest.mark.parametrize("sets", [True, False])
def test_no_label_is_blamed_that_is_not_known_to_differ(ask, change, sets):
    items = shared()
    change(items)
    if not sets:
        items[-1]["spec"]["securityContext"] = {}
    told = ask(items, "explain", "vm/db", "-n", "vms")
    assert "dump-x" not in told
    assert "nothing that was read says why" in told


def test_the_restart_waits_for_the_taint_that_each_node_has(ask):
    items = shared()
    for each in items:
        if each["kind"] == "Node":
            each["spec"]["taints"] = [{"key": "example.com/hold", "effect": "NoSchedule"}]
    told = ask(items, "explain", "vm/db", "-n", "vms")
    assert (
        "which labels the files for its launcher again, but not before taint example.com/hold is "
        "off the nodes, as it would stay Pending. Back up"
    ) in told
