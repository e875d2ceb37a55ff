"""Why a VM cannot migrate, reason by reason."""

import pytest

from tests.builders import claim, kubevirt, manifest
from tests.for_each import for_each
from tests.model.kubevirt.migratability_cases import (
    DEVICES,
    MASQUERADE,
    NO_INTERFACE,
    PVC_PATH,
    STUCK,
    UNKNOWN,
    YES,
    T,
    judged,
    no,
    pod_interface,
    vm,
    with_volume,
)
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.migratability import BRIDGE_OPT_IN, Migratable, assess


def version(text):
    return kubevirt(status={"observedKubeVirtVersion": text})


HCO = manifest("hco.kubevirt.io/v1", "HyperConverged", "hco", "kubevirt-hyperconverged", spec={})


def cluster_of(*objects):
    return Snapshot(objects)


OPT_IN = {BRIDGE_OPT_IN: ""}

PLUGINS = kubevirt(network={"binding": {"moving": {"migration": {}}, "stuck": {"migration": None}}})


@for_each(
    "spec, annotations, objects, answer",
    [
        (pod_interface(masquerade={}), {}, [], YES),
        (pod_interface(passtBinding={}), {}, [], YES),
        (pod_interface(bridge={}), {}, [], STUCK),
        (pod_interface(bridge={}), OPT_IN, [], YES),
        (pod_interface(bridge={}), {BRIDGE_OPT_IN: "false"}, [], YES),
        (pod_interface(binding={"name": "moving"}), {}, [PLUGINS], YES),
        (pod_interface(binding={"name": "stuck"}), {}, [PLUGINS], STUCK),
        (pod_interface(binding={"name": "other"}), {}, [PLUGINS], STUCK),
        (pod_interface(binding={"name": "moving"}), {}, [], UNKNOWN),
        (pod_interface(sriov={}), {}, [], STUCK),
        (pod_interface(slirp={}), {}, [], STUCK),
        (pod_interface(macvtap={}), {}, [], STUCK),
        (pod_interface(passt={}), {}, [], STUCK),
        (pod_interface(), {}, [], STUCK),
        (pod_interface(masquerade=None), {}, [], STUCK),
        (
            {"networks": [{"name": "lan", "pod": {}}], "devices": {"interfaces": [{"name": "x"}]}},
            {},
            [],
            NO_INTERFACE,
        ),
        ({"networks": [{"name": "lan", "pod": {}}]}, {}, [], YES),
        (
            {"networks": [], "devices": {"interfaces": [{"name": "lan", "bridge": {}}]}},
            {},
            [kubevirt()],
            YES,
        ),
        (
            {"networks": [{"name": "x", "multus": {}}], "devices": {"interfaces": [{"name": "x"}]}},
            {},
            [],
            YES,
        ),
        (
            {
                "networks": [{"name": "lan", "pod": None}],
                "devices": {"interfaces": [{"name": "lan"}]},
            },
            {},
            [],
            YES,
        ),
        ({"devices": {"autoattachPodInterface": False}}, {}, [kubevirt()], YES),
    ],
)
def test_the_interface_on_the_pod_network(spec, annotations, objects, answer):
    assert judged(vm(spec, annotations), *objects) == answer


@pytest.mark.parametrize(
    ("objects", "annotations", "answer"),
    [
        ([], {}, UNKNOWN),
        ([], OPT_IN, YES),
        ([kubevirt()], {}, NO_INTERFACE),
        ([kubevirt()], OPT_IN, YES),
        ([HCO], {}, YES),
        ([kubevirt(network={"defaultNetworkInterface": "masquerade"})], {}, YES),
        ([kubevirt(network={"defaultNetworkInterface": "slirp"})], {}, NO_INTERFACE),
    ],
)
def test_a_vm_without_networks_gets_the_default(objects, annotations, answer):
    spec = {"networks": [], "devices": {"interfaces": []}}
    assert judged(vm(spec, annotations), *objects) == answer


def test_the_opt_in_on_the_vm_itself_has_no_effect():
    misplaced = vm(pod_interface(bridge={}), metadata={"annotations": OPT_IN})
    assert judged(misplaced) == STUCK
    assert "template only" in assess(misplaced, NOTHING).reasons[0].what


GPU = {"devices": {"gpus": [{"name": "a", "deviceName": "example.com/vgpu"}]}}

GATE = {"developerConfiguration": {"featureGates": ["VGPULiveMigration"]}}

MDEV = {"permittedHostDevices": {"mediatedDevices": [{"resourceName": "example.com/vgpu"}]}}

STUCK_GPU = no("HostDeviceNotLiveMigratable", DEVICES + ".gpus")


@for_each(
    "spec, objects, answer",
    [
        (
            {"devices": {"hostDevices": [{}]}},
            [],
            no("HostDeviceNotLiveMigratable", DEVICES + ".hostDevices"),
        ),
        ({"devices": {"hostDevices": []}}, [], YES),
        ({"devices": {"gpus": GPU["devices"]["gpus"] * 2}}, [kubevirt(**GATE, **MDEV)], STUCK_GPU),
        (GPU, [kubevirt(**GATE, **MDEV)], YES),
        (GPU, [kubevirt(status={"observedKubeVirtVersion": "v1.7.0"}, **GATE, **MDEV)], STUCK_GPU),
        (GPU, [kubevirt(status={"observedKubeVirtVersion": "v1.8.4"}, **GATE, **MDEV)], STUCK_GPU),
        (GPU, [kubevirt(status={"observedKubeVirtVersion": "v1.9.0"}, **GATE, **MDEV)], YES),
        (GPU, [kubevirt(**GATE)], STUCK_GPU),
        (GPU, [kubevirt(**MDEV)], STUCK_GPU),
        (GPU, [], STUCK_GPU),
        (
            {"devices": {"gpus": [{"name": "a", "claimName": "x"}]}},
            [kubevirt(**GATE, **MDEV)],
            STUCK_GPU,
        ),
    ],
)
def test_host_devices(spec, objects, answer):
    assert judged(vm(spec), *objects) == answer


@pytest.mark.parametrize(
    ("objects", "what", "remedy"),
    [
        (
            [kubevirt(status={"observedKubeVirtVersion": "v1.8.2"}, **MDEV)],
            "before KubeVirt 1.9.0",
            "update KubeVirt to 1.9.0",
        ),
        (
            [kubevirt(**MDEV)],
            "VGPULiveMigration is off",
            "switch on feature gate VGPULiveMigration",
        ),
        (
            [kubevirt(status={"observedKubeVirtVersion": "v1.8.2"}, **GATE)],
            "not a mediated device",
            "remove it",
        ),
    ],
)
def test_a_vgpu_waits_for_a_release_and_a_gate_and_a_whole_gpu_never_migrates(
    objects, what, remedy
):
    (reason,) = assess(vm(GPU), cluster_of(*objects)).reasons
    assert what in reason.what
    assert reason.remedy.startswith(remedy)


SECURITY = T + "domain.launchSecurity"


@for_each(
    "security, architecture, objects, reasons",
    [
        ({"sev": {}}, "amd64", [], ["SEV"]),
        ({"snp": {}}, "amd64", [], ["SEV"]),
        ({"tdx": {}}, "amd64", [], ["TDX"]),
        ({"sev": {}, "tdx": {}}, "amd64", [], ["SEV"]),
        ({"tdx": {}}, None, [], ["TDX"]),
        ({}, "s390x", [], ["SecureExecution"]),
        ({}, None, [kubevirt(status={"defaultArchitecture": "s390x"})], ["SecureExecution"]),
        ({}, None, [kubevirt()], []),
        ({}, "amd64", [], []),
        (None, "s390x", [], []),
    ],
)
def test_encrypted_guests(security, architecture, objects, reasons):
    spec = {"architecture": architecture, "domain": {"launchSecurity": security}}
    spec["domain"]["devices"] = {"interfaces": MASQUERADE["interfaces"]}
    found = assess(vm(spec | {"networks": MASQUERADE["networks"]}), cluster_of(*objects))
    assert [reason.name for reason in found.reasons] == [
        f"{name}NotLiveMigratable" for name in reasons
    ]
    assert all(str(reason.path) == SECURITY for reason in found.reasons)
    assert found.migratable is (Migratable.NO if reasons else Migratable.YES)


def test_an_empty_launch_security_on_an_unknown_architecture():
    spec = {"domain": {"launchSecurity": {}, "devices": {"interfaces": MASQUERADE["interfaces"]}}}
    assert judged(vm(spec | {"networks": MASQUERADE["networks"]})) == UNKNOWN


PASSTHROUGH = no("HypervPassthroughNotLiveMigratable", T + "domain.features.hypervPassthrough")


@pytest.mark.parametrize(
    ("state", "answer"),
    [({}, PASSTHROUGH), ({"enabled": True}, PASSTHROUGH), ({"enabled": False}, YES), (None, YES)],
)
def test_hyperv_passthrough(state, answer):
    domain = {
        "features": {"hypervPassthrough": state},
        "devices": {"interfaces": MASQUERADE["interfaces"]},
    }
    assert judged(vm({"domain": domain, "networks": MASQUERADE["networks"]})) == answer


BY_CLAIM = with_volume(persistentVolumeClaim={"claimName": "root"})


@pytest.mark.parametrize(
    ("modes", "answer"),
    [
        (["ReadWriteMany"], YES),
        (["ReadWriteOnce", "ReadWriteMany"], YES),
        (["ReadWriteOnce"], no("DisksNotLiveMigratable", PVC_PATH)),
        (["ReadOnlyMany"], no("DisksNotLiveMigratable", PVC_PATH)),
        (["ReadWriteOncePod"], no("DisksNotLiveMigratable", PVC_PATH)),
        ([], UNKNOWN),
    ],
)
def test_claims(modes, answer):
    assert judged(BY_CLAIM, claim("root", *modes)) == answer


def test_claims_out_of_sight_and_claims_that_come_later():
    assert judged(BY_CLAIM) == UNKNOWN
    assert judged(BY_CLAIM, complete=["*"]) == UNKNOWN
    assert judged(with_volume(persistentVolumeClaim={}), complete=["*"]) == UNKNOWN
    assert judged(with_volume(persistentVolumeClaim={"claimName": ""})) == no(
        "DisksNotLiveMigratable", PVC_PATH
    )
    assert (
        judged(
            BY_CLAIM,
            manifest("v1", "PersistentVolumeClaim", "root", "other", spec={"accessModes": ["x"]}),
        )
        == UNKNOWN
    )


@pytest.mark.parametrize(
    ("host_disk", "answer"),
    [
        ({"path": "/a", "shared": True}, YES),
        ({"path": "/a", "shared": False}, no("DisksNotLiveMigratable", T + "volumes[2].hostDisk")),
        ({}, no("DisksNotLiveMigratable", T + "volumes[2].hostDisk")),
    ],
)
def test_host_disks(host_disk, answer):
    assert judged(with_volume(hostDisk=host_disk)) == answer


@for_each(
    "source",
    [
        "containerDisk",
        "cloudInitNoCloud",
        "cloudInitConfigDrive",
        "emptyDisk",
        "ephemeral",
        "sysprep",
        "configMap",
        "secret",
        "serviceAccount",
        "downwardAPI",
        "downwardMetrics",
        "memoryDump",
        "containerPath",
    ],
)
def test_volumes_that_never_block(source):
    assert (
        judged(
            with_volume(**{source: {"persistentVolumeClaim": {"claimName": "x"}, "claimName": "x"}})
        )
        == YES
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": {"disks": [{"lun": {"reservation": True}}]}},
        {"devices": {"tpm": {"persistent": True}}},
        {"devices": {"filesystems": [{"name": "x", "virtiofs": {}}]}},
        {
            "devices": {
                "autoattachVSOCK": True,
                "clientPassthrough": {},
                "disks": [{"cache": "none", "io": "native"}],
            }
        },
        {
            "domain": {
                "cpu": {"dedicatedCpuPlacement": True, "numa": {}, "realtime": {}},
                "devices": MASQUERADE,
            }
        },
        {"domain": {"memory": {"hugepages": {"pageSize": "1Gi"}}, "devices": MASQUERADE}},
        {
            "domain": {
                "firmware": {"bootloader": {"efi": {"persistent": True}}},
                "devices": MASQUERADE,
            }
        },
    ],
)
def test_devices_that_never_block(spec):
    assert (
        judged(vm(spec | {"networks": MASQUERADE["networks"]} if "domain" in spec else spec)) == YES
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"devices": {"hostDevices": [{"deviceName": "a"}]}},
            {"devices": {"hostDevices": [{"deviceName": "b"}]}},
        ),
        ({"devices": {"gpus": [{"deviceName": "a"}]}}, {"devices": {"gpus": [{"claimName": "a"}]}}),
        ({"domain": {"launchSecurity": {"sev": {}}}}, {"domain": {"launchSecurity": {"snp": {}}}}),
        ({"volumes": [{"hostDisk": {"path": "/a"}}]}, {"volumes": [{"hostDisk": {"path": "/b"}}]}),
    ],
)
def test_another_offender_is_another_reason(one, other):
    """So that it is refused on an update where the old one was let through."""
    assert assess(vm(one), NOTHING).reasons != assess(vm(other), NOTHING).reasons


def test_all_reasons_are_listed_and_certain_beats_unknown():
    domain = {"launchSecurity": {"sev": {}}, "devices": {"hostDevices": [{}], "gpus": [{}, {}]}}
    spec = {
        "domain": domain,
        "networks": [],
        "volumes": [{"hostDisk": {}}, {"dataVolume": {"name": "later"}}],
    }
    found = assess(vm(spec), NOTHING)
    assert found.migratable is Migratable.NO
    assert [reason.name.removesuffix("NotLiveMigratable") for reason in found.reasons] == [
        "HostDevice",
        "HostDevice",
        "SEV",
        "Disks",
    ]
    assert found.unseen == ("kubevirts.kubevirt.io", "persistentvolumeclaims shop/later")


@pytest.mark.parametrize(
    ("spec", "old", "new", "answer"),
    [
        (
            {"devices": {"filesystems": [{"virtiofs": {}}]}},
            "v1.4.9",
            "v1.5.0",
            no("VirtIOFSNotLiveMigratable", DEVICES + ".filesystems[0]"),
        ),
        (
            {"devices": {"disks": [{"lun": {"reservation": True}}]}},
            "v1.8.2",
            "v1.9.0",
            no("PersistentReservationNotLiveMigratable", DEVICES + ".disks[0].lun.reservation"),
        ),
        ({"devices": {"tpm": {"persistent": True}}}, "v1.3.0", "v1.4.0", UNKNOWN),
    ],
)
def test_older_releases_could_do_less(spec, old, new, answer):
    assert judged(vm(spec), version(old)) == answer
    assert judged(vm(spec), version(new)) == YES
    assert judged(vm(spec)) == YES


def vmi(status, reason="", message=""):
    condition = {"type": "LiveMigratable", "status": status, "reason": reason, "message": message}
    data = vm({"volumes": [{"hostDisk": {}}]}).data["spec"]["template"]["spec"]
    metadata = {"name": "db", "namespace": "shop"}
    head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
    return Object(head | {"spec": data, "status": {"conditions": [condition]}})


def test_a_running_vmi_knows_best():
    assert judged(vmi("True")) == YES
    assert judged(vmi("Unknown")) == no("DisksNotLiveMigratable", "spec.volumes[0].hostDisk")
    refused = vmi("False", "CPUModeLiveMigratable", "no host model")
    refused.data["spec"]["volumes"] = []
    assert judged(refused) == no("CPUModeLiveMigratable", "spec")
    assert assess(refused, NOTHING).reasons[0].what == "no host model"


def test_the_condition_of_another_kind_says_nothing():
    stranger = vm()
    stranger.data["status"] = vmi("False").data["status"]
    assert judged(stranger) == YES


def test_a_running_vmi_whose_volume_is_migrated():
    subject = vmi("Unknown")
    subject.data["spec"]["volumes"] = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "root"}}
    ]
    blocked = no("DisksNotLiveMigratable", "spec.volumes[0].persistentVolumeClaim.claimName")
    assert judged(subject, claim("root", "ReadWriteOnce")) == blocked
    subject.data["status"] |= {"migratedVolumes": [{"volumeName": "root"}]}
    assert judged(subject, claim("root", "ReadWriteOnce")) == YES
