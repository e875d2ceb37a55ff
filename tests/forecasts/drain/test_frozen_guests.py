"""A guest that a running backup has frozen is not to be thawed by hand; one that stays frozen
is."""

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.guests import frozen_guests
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "db", "namespace": "shop"},
    "spec": {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]},
    "status": {"fsFreezeStatus": "frozen"},
}


def copied(*, since, claim="disk", ready=False):
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": "cut", "namespace": "shop", "creationTimestamp": since},
        "spec": {"source": {"persistentVolumeClaimName": claim}},
        "status": {"readyToUse": ready},
    }


def backup(phase="InProgress", **spec):
    return {
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": {"name": "nightly", "namespace": "velero"},
        "spec": spec,
        "status": {"phase": phase},
    }


def words(*items, **status):
    vmi = {**VMI, "status": {**VMI["status"], **status}}
    return frozen_guests.words(Object(vmi), Snapshot(map(Object, (vmi, *items)), ["*"], time=ago()))


def test_a_backup_that_runs_names_itself_and_no_command():
    said = words(copied(since=ago(seconds=28)), backup(includedNamespaces=["shop"]))

    assert "frozen for Backup velero/nightly, VolumeSnapshot cut" in said
    assert "That ends by itself" in said
    assert "virtctl" not in said


def test_a_snapshot_of_the_vm_itself():
    snapshot = {
        "apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot",
        "metadata": {"name": "now", "namespace": "shop", "creationTimestamp": ago(minutes=1)},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "db"}},
        "status": {"phase": "InProgress"},
    }

    assert "frozen for VirtualMachineSnapshot now" in words(snapshot)
    others = (copied(since=ago(seconds=9)), backup())
    assert "frozen for VirtualMachineSnapshot now, so its" in words(snapshot, *others)


def test_a_copy_that_does_not_end():
    said = words(copied(since=ago(hours=2)))

    assert "cannot write. VolumeSnapshot cut is not complete after 2 h. Once no copy" in said
    assert "virtctl" not in words(copied(since=ago(hours=2)), backup())
    assert said.endswith("virtctl unfreeze db -n shop")


def test_an_old_copy_that_failed_is_no_cause():
    broken = copied(since=ago(minutes=2))
    broken["status"]["error"] = {"message": "timeout"}
    for old in (copied(since=ago(hours=2000)), broken):
        assert "nightly, cannot" not in (said := words(old, backup()))
        assert "frozen for Backup velero/nightly, so" in said
        assert "VolumeSnapshot" not in words(old)


def test_namespaces_of_a_backup_may_be_patterns():
    assert "velero/nightly" in words(backup(includedNamespaces=["shop*"]))
    assert "velero/nightly" not in words(
        backup(includedNamespaces=["*"], excludedNamespaces=["s?op"])
    )


def test_copies_of_others_say_nothing():
    others = (
        copied(since=ago(seconds=28), claim="other"),
        copied(since=ago(seconds=28), ready=True),
        backup("Completed"),
        backup(excludedNamespaces=["shop"]),
        backup(includedNamespaces=["bank"]),
    )

    assert words(*others).endswith(
        "If they stay frozen, and no backup of it runs: virtctl unfreeze db -n shop"
    )


def test_a_guest_that_is_not_frozen():
    assert words(copied(since=ago(seconds=28)), fsFreezeStatus=None) == ""
