"""Copies of volumes that libvirt refuses, as virt-launcher does not say that it copies disks."""

import pytest

from tests import builders
from virt_admit.forecasts.drain.failed_migrations import remedies
from virt_admit.forecasts.outage.storage import lost_storage

SAID = (
    "Operation not supported: use of 'VIR_MIGRATE_PARAM_MIGRATE_DISKS' requires use of "
    "'VIR_MIGRATE_NON_SHARED_DISK' or 'VIR_MIGRATE_NON_SHARED_INC' flag"
)
"""The words of libvirt in issue 12811."""


def cluster(release):
    return builders.complete(builders.kubevirt(status={"observedKubeVirtVersion": release}))


def copying(method="LiveMigration", changes="True", labels=()):
    moved = {
        "volumeName": "root",
        "sourcePVCInfo": {"claimName": "old"},
        "destinationPVCInfo": {"claimName": "new"},
    }
    status = {
        "migrationMethod": method,
        "migratedVolumes": [moved],
        "conditions": [{"type": "VolumesChange", "status": changes}],
    }
    owner = builders.owned_by("VirtualMachine")
    return builders.vmi(metadata={"labels": dict(labels), "ownerReferences": owner}, status=status)


def test_a_release_that_does_not_tell_libvirt():
    found = remedies.lasting(copying(), SAID, cluster("v1.3.1"))
    assert found is not None
    assert found.reason.startswith("KubeVirt 1.3.1 lets libvirt copy claim old to new without")
    assert "status.migrationMethod of the VMI is LiveMigration" in found.reason
    assert "name the former claim old for volume root in the VM again" in found.remedy
    assert "update KubeVirt to 1.4.0 or later" in found.remedy


def test_a_launcher_of_a_former_release():
    old = copying(labels={"kubevirt.io/outdatedLauncherImage": ""})
    found = remedies.lasting(old, SAID, cluster("v1.4.0"))
    assert found is not None
    assert "update KubeVirt" not in found.remedy
    assert "restart into a new virt-launcher" in found.remedy


@pytest.mark.parametrize(
    ("vmi", "said", "release"),
    [
        (copying(), SAID, "v1.4.0"),  # it tells libvirt
        (copying(), SAID, ""),  # unknown
        (copying("BlockMigration"), SAID, "v1.3.1"),  # it told libvirt
        (copying(changes="False"), SAID, "v1.3.1"),  # the former claims are named again
        (copying(), "Unsafe migration: x", "v1.3.1"),
    ],
)
def test_another_cause(vmi, said, release):
    assert remedies.lasting(vmi, said, cluster(release)) is None


def test_no_device_is_to_be_removed():
    assert "device" not in remedies.of(SAID)


@pytest.mark.parametrize(
    ("release", "says", "when"),
    [
        ("v1.3.1", "KubeVirt 1.3.1 would start it from the copy", "before it stops"),
        # the condition comes after the next VMI
        ("v1.4.0", "KubeVirt 1.4.0 would start it from the copy", "before it stops"),
        ("v1.4.1", "KubeVirt starts no VM from such a copy", "once a node can use it"),
        ("", "KubeVirt before 1.4.1 starts it from the copy", "before it stops"),
    ],
)
def test_what_starts_after_a_loss(release, says, when):
    there = cluster(release)
    assert says in lost_storage.unfinished(copying(), there)
    assert when in lost_storage.recovery(copying(), there)
