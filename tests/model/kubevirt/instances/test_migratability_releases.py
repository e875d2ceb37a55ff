"""The order of the reasons, volume migrations, and settings that do not apply."""

import pytest

from tests.builders import claim, kubevirt, manifest
from tests.model.kubevirt.migratability_cases import (
    PVC_PATH,
    UNKNOWN,
    YES,
    judged,
    no,
    pod_interface,
    vm,
    with_volume,
)
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.migratability import assess

BY_CLAIM = with_volume(persistentVolumeClaim={"claimName": "root"})


@pytest.mark.parametrize(
    ("release", "names"),
    [
        ("v1.5.2", ["Disks", "Interface", "SEV", "PersistentReservation", "HypervPassthrough"]),
        ("v1.6.0", ["Interface", "SEV", "PersistentReservation", "HypervPassthrough", "Disks"]),
        ("v1.9.0", ["Interface", "SEV", "HypervPassthrough", "Disks"]),
    ],
)
def test_the_order_of_the_reasons_is_that_of_the_release(release, names):
    interfaces = pod_interface(bridge={})
    domain = {
        "launchSecurity": {"sev": {}},
        "features": {"hypervPassthrough": {"enabled": True}},
        "devices": interfaces["devices"] | {"disks": [{"lun": {"reservation": True}}]},
    }
    subject = vm(
        {"networks": interfaces["networks"], "domain": domain, "volumes": [{"hostDisk": {}}]}
    )
    found = assess(subject, Snapshot([kubevirt(status={"observedKubeVirtVersion": release})]))
    assert [reason.name.removesuffix("NotLiveMigratable") for reason in found.reasons] == names


MIGRATED = {"migratedVolumes": [{"volumeName": "root"}]}


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ({}, no("DisksNotLiveMigratable", PVC_PATH)),
        (
            {
                "volumeUpdateState": {
                    "volumeMigrationState": {"migratedVolumes": [{"volumeName": "data"}]}
                }
            },
            None,
        ),
        ({"volumeUpdateState": {"volumeMigrationState": MIGRATED}}, YES),
        (MIGRATED, None),
    ],
)
def test_a_volume_migration_moves_claims_that_are_not_shared(status, answer):
    subject = Object(BY_CLAIM.data | {"status": status})
    subject.data["spec"] = subject.data["spec"] | {"updateVolumesStrategy": "Migration"}
    assert judged(subject, claim("root", "ReadWriteOnce")) == (
        answer or no("DisksNotLiveMigratable", PVC_PATH)
    )


def test_networks_from_resource_claims_do_not_block():
    claimed = {"name": "fast", "resourceClaim": {"claimName": "nic", "requestName": "vf"}}
    devices = {"interfaces": [{"name": "fast", "sriov": {}}]}
    assert judged(vm({"networks": [claimed], "devices": devices}), kubevirt()) == YES


@pytest.mark.parametrize(
    "network",
    [{"defaultNetworkInterface": "Masquerade"}, {"defaultNetworkInterface": "masquerade"}],
)
def test_an_invalid_configuration_of_kubevirt_says_nothing(network):
    invalid = kubevirt(network=network, developerConfiguration={"memoryOvercommit": -1})
    assert judged(vm({"networks": [], "devices": {"interfaces": []}}), invalid) == UNKNOWN


TPM = {"devices": {"tpm": {"persistent": True}}}
TPM_PATH = "spec.template.spec.domain.devices.tpm.persistent"


def profile(name, mode):
    sets = [{"volumeMode": mode, "accessModes": ["ReadWriteMany"]}]
    status = {"claimPropertySets": sets}
    return manifest("cdi.kubevirt.io/v1beta1", "StorageProfile", name, status=status)


def test_the_claim_of_the_state_decides_before_1_4():
    old = kubevirt(status={"observedKubeVirtVersion": "v1.3.1"})
    alone = claim("persistent-state-for-db", "ReadWriteOnce")
    shared = claim("persistent-state-for-db", "ReadWriteMany")
    assert judged(vm(TPM), old) == UNKNOWN
    assert judged(vm(TPM), old, shared) == YES
    assert judged(vm(TPM), old, alone) == no("DisksNotLiveMigratable", TPM_PATH)
    assert judged(vm(), old, alone) == YES
    new = kubevirt(status={"observedKubeVirtVersion": "v1.4.0"})
    assert judged(vm(TPM), new, alone) == YES


def test_the_claim_of_the_state_is_named_with_a_class_that_is_shared():
    known = [
        kubevirt(status={"observedKubeVirtVersion": "v1.3.1"}),
        claim("persistent-state-for-db", "ReadWriteOnce"),
        profile("fast", "Block"),
        profile("files", "Filesystem"),
    ]
    (found,) = assess(vm(TPM), Snapshot(known)).reasons
    assert "ReadWriteOnce claim 'persistent-state-for-db' of its vTPM or EFI state" in found.what
    assert "to files instead of another class" in found.remedy
    (found,) = assess(vm(TPM), Snapshot(known[:3])).reasons
    assert found.remedy == "update KubeVirt to 1.4"
