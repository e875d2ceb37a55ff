"""Migrations whose reason repeats: the next one is not taken for one that succeeds."""

import time

import pytest

from tests.builders import NAMESPACE, kubevirt, manifest
from tests.forecasts.drain.test_vm_states import BLOCKS, LAUNCHER, MIGRATES, UNKNOWN, row
from tests.forecasts.drain.vm_motion import cluster, failed, vmi

UNSAFE = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=81, Domain=10, Message='Unsafe migration: {}')"
)
NOT_SHARED = UNSAFE.format("Migration without shared storage is unsafe")
CACHED = UNSAFE.format(
    "Migration may lead to data corruption if disks use cache other than none or directsync"
)
ODD = "internal error: cannot parse {} of job 17"


@pytest.mark.parametrize(
    ("reasons", "targets", "outcome"),
    [
        ((ODD.format("status"),) * 2, "bc", UNKNOWN),
        ((ODD.format("status"),) * 2, "bb", UNKNOWN),
        (
            (f"{ODD.format('status')} at b", f"{ODD.format('status')} at c".replace("17", "18")),
            "bc",
            UNKNOWN,
        ),
        ((ODD.format("status"), ODD.format("memory")), "bc", MIGRATES),
        ((ODD.format("status"),), "b", MIGRATES),
        (("connection reset by peer",) * 2, "bb", MIGRATES),
        (("connection reset by peer",) * 2, "bc", UNKNOWN),
        (("Live migration has been aborted",) * 2, "bc", MIGRATES),
    ],
)
def test_a_reason_that_repeats_leaves_the_next_migration_open(reasons, targets, outcome):
    attempts = [
        failed(number, reason, target=target, age=4000 - 500 * number)
        for number, (reason, target) in enumerate(zip(reasons, targets, strict=True))
    ]
    assert row(cluster(vmi(), LAUNCHER, *attempts)).outcome == outcome


def test_a_long_word_costs_no_square_of_its_length():
    said = f"internal error: {'deadbeef' * 5_000}"
    begun = time.process_time()
    assert row(cluster(vmi(), LAUNCHER, *(failed(each, said) for each in (1, 2)))).outcome
    assert time.process_time() - begun < 20


def storage(mode="Filesystem", driver="beegfs.csi.netapp.com"):
    spec = {"accessModes": ["ReadWriteMany"], "volumeMode": mode, "volumeName": "pv-1"}
    claim = manifest("v1", "PersistentVolumeClaim", "disk", NAMESPACE, spec=spec)
    volume = manifest("v1", "PersistentVolume", "pv-1", "", spec={"csi": {"driver": driver}})
    return claim, volume


def guest(*, labels=(), **disk):
    volume = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    domain = {"devices": {"disks": [{"name": "root", **disk}]}, "memory": {"guest": "4Gi"}}
    spec = {"domain": domain, "volumes": [volume]}
    return vmi(spec=spec, metadata={"labels": dict.fromkeys(labels, "")})


def release(version, **migrations):
    status = {"observedKubeVirtVersion": version}
    return kubevirt({"migrations": migrations}, status=status)


def test_a_file_system_that_libvirt_does_not_know_as_shared_blocks_after_one_failure():
    """Source: libvirt:src/qemu/qemu_migration.c#qemuMigrationSrcIsSafe, before anything is sent."""
    found = row(cluster(guest(), LAUNCHER, *storage(), release("v1.4.1"), failed(1, NOT_SHARED)))

    assert found.outcome == BLOCKS
    assert "as the last one did" in found.reason
    assert "claim disk (volumeMode Filesystem, driver beegfs.csi.netapp.com)" in found.reason
    assert "virtctl stop db -n shop" in found.remedy
    assert "update KubeVirt to 1.5.0 or later" in found.remedy
    assert "ReadWriteMany claim of volumeMode Block" in found.remedy
    assert "as a decision, set unsafeMigrationOverride" in found.remedy


@pytest.mark.parametrize(
    ("labels", "restarts"), [((), False), (["kubevirt.io/outdatedLauncherImage"], True)]
)
def test_a_launcher_of_before_the_update_is_restarted(labels, restarts):
    """Source: kubevirt/kubevirt#13713."""
    objects = (guest(labels=labels), LAUNCHER, *storage(), release("v1.6.0"))
    remedy = row(cluster(*objects, failed(1, NOT_SHARED))).remedy

    assert "update KubeVirt" not in remedy
    assert ("since KubeVirt 1.5.0 a new virt-launcher" in remedy) is restarts


def test_a_check_that_is_off_by_now_says_nothing_of_the_next_migration():
    objects = (guest(), LAUNCHER, *storage(), release("v1.4.1", unsafeMigrationOverride=True))
    assert row(cluster(*objects, failed(1, NOT_SHARED))).outcome == MIGRATES


def test_a_block_volume_is_not_named_as_a_file_system():
    found = row(cluster(guest(), LAUNCHER, *storage("Block"), failed(1, NOT_SHARED)))
    assert "claim disk" not in found.reason


@pytest.mark.parametrize(
    ("disk", "reason", "remedy"),
    [
        ({"cache": "writeback"}, "disk root has cache writeback", "remove that cache setting"),
        ({"cache": "none"}, "storage has no O_DIRECT", "storage that supports O_DIRECT"),
    ],
)
def test_a_cache_with_which_libvirt_moves_no_disk_is_named(disk, reason, remedy):
    found = row(cluster(guest(**disk), LAUNCHER, *storage(), failed(1, CACHED)))

    assert found.outcome == BLOCKS
    assert reason in found.reason
    assert remedy in found.remedy


SMALL = (
    "Volume migration cannot be performed because the destination volume is smaller then the "
    "source volume: virError(Code=1, Domain=10, Message='internal error')"
)


def copying(has="100Gi", grown=None, expands=True, mode="Block"):
    """Return a VMI whose disk of 101Gi is copied to claim ``new``, with what belongs to it."""
    moved = {
        "volumeName": "root",
        "sourcePVCInfo": {"claimName": "old", "capacity": {"storage": "101Gi"}},
        "destinationPVCInfo": {
            "claimName": "new",
            "capacity": {"storage": has},
            "volumeMode": mode,
            "filesystemOverhead": "0.06",
        },
    }
    status = {"capacity": {"storage": grown or has}}
    spec = {"storageClassName": "array", "accessModes": ["ReadWriteMany"]}
    claim = manifest("v1", "PersistentVolumeClaim", "new", NAMESPACE, spec=spec, status=status)
    kind = manifest("storage.k8s.io/v1", "StorageClass", "array", allowVolumeExpansion=expands)
    return vmi(migratedVolumes=[moved]), claim, kind


def test_no_node_takes_a_copy_to_a_claim_that_is_too_small():
    tries = [failed(number, SMALL, target=to) for number, to in ((1, "b"), (2, "c"), (3, "b"))]
    found = row(cluster(*copying(), LAUNCHER, *tries, nodes=("a", "b", "c", "d")))

    assert found.outcome == BLOCKS
    assert "fail on every node" in found.reason
    assert "claim new has 100Gi, and the disk on old 101Gi" in found.reason
    assert "expand claim new to at least 101Gi: kubectl patch pvc new" in found.remedy
    assert "or name old in the VM again" in found.remedy
    assert {"b", "c"} <= set(found.placement.candidates)  # the claim is at fault, not a node


@pytest.mark.parametrize(
    ("copy", "outcome"),
    [
        (copying(grown="101Gi"), MIGRATES),  # expanded since
        (copying(expands=False), BLOCKS),
        (copying(has="101Gi"), MIGRATES),  # the failure is of a former copy
        (copying(has="101Gi", mode="Filesystem"), BLOCKS),
        (copying(has="108Gi", mode="Filesystem"), MIGRATES),
        ((vmi(), *copying()[1:]), MIGRATES),  # its former claims are set again
    ],
)
def test_a_claim_that_was_expanded_since_takes_the_copy(copy, outcome):
    found = row(cluster(*copy, LAUNCHER, failed(1, SMALL)))

    assert found.outcome == outcome
    assert "kubectl patch pvc" not in found.remedy
