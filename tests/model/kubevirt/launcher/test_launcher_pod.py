"""The launcher pod that KubeVirt would create: what it requests, and the traps of where it may run.

``tests/e2e/test_launcher_pods.py`` compares random pods with KubeVirt's own.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import complete, kubevirt, manifest, node, partial
from tests.for_each import for_each
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import launcher_pod, launcher_resources

MI = 2**20
OLD = {"observedKubeVirtVersion": "v1.7.0"}
MODEL = {"host-model-cpu.node.kubevirt.io/Skylake": "true"}
NEEDS = {"host-model-required-features.node.kubevirt.io/vmx": "true"}
VENDOR = {"cpu-vendor.node.kubevirt.io/Intel": "true"}
INTEL = MODEL | NEEDS | VENDOR
FREQUENCY = {"status": {"nodeName": "a", "topologyHints": {"tscFrequency": 2500}}}


def vmi(
    domain: dict[str, Any] | None = None, metadata: Any = None, status: Any = None, **spec: Any
) -> Object:
    spec = {"domain": {"memory": {"guest": "1Gi"}} | (domain or {}), **spec}
    fields = {"spec": spec, "status": status or {"nodeName": "a"}}
    return manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", "web", "shop", metadata=metadata or {}, **fields
    )


def source_pod(selector: dict[str, str]) -> Object:
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "web"}
    spec = {"nodeName": "a", "nodeSelector": selector}
    return manifest(
        "v1",
        "Pod",
        "source",
        "shop",
        metadata={"labels": labels},
        spec=spec,
        status={"phase": "Running"},
    )


def requests(obj: Object, *cluster: Object) -> dict[str, int]:
    seen = complete(*(cluster or (kubevirt(),)))
    return dict(launcher_resources.pod(expand(obj, seen), seen).requests)


def limits(obj: Object, *cluster: Object) -> dict[str, int]:
    seen = complete(*cluster)
    return dict(launcher_resources.pod(expand(obj, seen), seen).limits)


def selector(obj: Object, *cluster: Object, moves: bool = False) -> dict[str, str]:
    return dict(
        candidates.pod_to_place(
            obj, complete(*(cluster or (kubevirt(),))), moves=moves
        ).node_selector
    )


# --- requests -------------------------------------------------------------------------------------


def test_a_plain_vmi() -> None:
    """The console log is a restartable init container and counts;
    the overhead has no page table without a request.
    """
    assert requests(vmi()) == {
        "cpu": 105,
        "memory": 1024 * MI + (220 + 8 + 8 + 32) * MI + 35_000_000,
        "ephemeral-storage": 50_000_000,
        "devices.kubevirt.io/kvm": 1,
        "devices.kubevirt.io/tun": 1,
        "devices.kubevirt.io/vhost-net": 1,
    }


def test_an_ordinary_init_container_can_dominate() -> None:
    large = {
        "type": "container-disk",
        "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "8Gi"}},
    }
    disk = {"volumes": [{"name": "root", "containerDisk": {"image": "fedora"}}]}
    images = kubevirt(
        developerConfiguration={"featureGates": ["ImageVolume"]}, supportContainerResources=[large]
    )

    assert requests(vmi(**disk), images)["memory"] == 8 * 1024 * MI + 35_000_000


def test_dedicated_cpus_with_an_isolated_emulator_thread() -> None:
    cpu = {"cores": 4, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}

    assert requests(vmi({"cpu": cpu}))["cpu"] == 5000 + 15
    even = {"annotations": {"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""}}
    assert requests(vmi({"cpu": cpu}, metadata=even))["cpu"] == 6000 + 15


def test_overcommit_and_cpu_ratio_are_those_of_kubevirt() -> None:
    sparse = kubevirt(developerConfiguration={"memoryOvercommit": 200, "cpuAllocationRatio": 4})

    found = requests(vmi({"cpu": {"cores": 2}}), sparse)

    assert found["cpu"] == 500 + 5
    assert found["memory"] == 512 * MI + (220 + 16 + 8 + 32) * MI + 35_000_000


def test_huge_pages_leave_only_the_overhead_as_memory() -> None:
    found = requests(vmi({"memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}}))

    assert found["hugepages-2Mi"] == 1024 * MI
    assert found["memory"] == (220 + 8 + 8 + 32) * MI + 35_000_000


def test_a_quota_on_limits_gives_the_pod_limits() -> None:
    quota = manifest(
        "v1",
        "ResourceQuota",
        "q",
        "shop",
        spec={"hard": {"limits.cpu": "9", "limits.memory": "9Gi"}},
    )
    plain = limits(vmi(), kubevirt())
    limited = limits(vmi(), kubevirt(), quota)

    assert (plain["cpu"], plain["memory"]) == (15, 60_000_000)
    assert limited["cpu"] == 1000 + 15
    assert limited["memory"] == 2 * (1024 + 268) * MI + 60_000_000


def test_devices_networks_and_gpus_are_extended_resources() -> None:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": "intel.com/vf"}
    network = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "fast", "shop")
    network = Object(
        network.data
        | {"metadata": {"name": "fast", "namespace": "shop", "annotations": annotations}}
    )
    devices = {
        "interfaces": [{"name": "fast", "sriov": {}}],
        "gpus": [
            {"name": "a", "deviceName": "nvidia.com/A100"},
            {"name": "b", "deviceName": "nvidia.com/A100"},
        ],
    }
    fast = [{"name": "fast", "multus": {"networkName": "fast"}}]

    found = requests(vmi({"devices": devices}, networks=fast), kubevirt(), network)

    assert found["intel.com/vf"] == 1
    assert found["nvidia.com/A100"] == 2


def test_instance_type_decides_where_the_vm_says_nothing() -> None:
    given = {"cpu": {"guest": 6}, "memory": {"guest": "4Gi", "overcommitPercent": 50}}
    kind = "VirtualMachineClusterInstancetype"
    instancetype = manifest("instancetype.kubevirt.io/v1beta1", kind, "large", spec=given)
    template = {"spec": {"domain": {"devices": {}}}}
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "web",
        "shop",
        spec={"instancetype": {"name": "large"}, "template": template},
    )

    found = requests(vm, kubevirt(), instancetype)

    half = 2 * 1024 * MI
    page_table = -(-half // 1000) * 1000 // 512
    assert found["cpu"] == 600 + 5
    assert found["memory"] == half + page_table + (220 + 48 + 8 + 32) * MI + 35_000_000


@for_each(
    "broken", ["", "many", [], {"a": 1}, None, -5, "-1Gi", True, "1e999999", 10**400, -(10**400)]
)
def test_broken_values_never_fail(broken: object) -> None:
    domain = {
        "cpu": {"cores": broken, "features": broken},
        "memory": {"guest": broken, "hugepages": broken},
        "resources": {"requests": {"cpu": broken, "memory": broken}, "limits": broken},
        "devices": {"gpus": broken, "interfaces": broken, "tpm": broken},
        "ioThreads": {"supplementalPoolThreadCount": broken},
    }
    hooks = {"annotations": {"hooks.kubevirt.io/hookSidecars": broken}}
    strange = kubevirt(
        cpuRequest=broken,
        additionalGuestMemoryOverheadRatio=broken,
        supportContainerResources=broken,
    )

    found = requests(vmi(domain, metadata=hooks, volumes=broken, networks=broken), strange)

    assert all(value >= 0 for value in found.values())


def test_unseen_names_what_may_change_the_requests() -> None:
    attached = vmi(networks=[{"name": "fast", "multus": {"networkName": "other/fast"}}])
    dark, light = partial(), complete(kubevirt())

    unseen = list(launcher_resources.unseen(expand(attached, dark), dark))

    assert len(unseen) == 2
    assert "other/fast" in unseen[1]
    assert list(launcher_resources.unseen(expand(attached, light), light)) == []


# --- traps of the node selector -------------------------------------------------------------------


def test_host_model_is_the_default_and_binds_the_target() -> None:
    found = selector(vmi(), kubevirt(), node("a", INTEL), moves=True)

    assert found["cpu-model-migration.node.kubevirt.io/Skylake"] == "true"
    assert found["cpu-feature.node.kubevirt.io/vmx"] == "true"


@pytest.mark.parametrize(
    ("selected", "kept"),
    [
        (
            {"cpu-model-migration.node.kubevirt.io/Old": "true"},
            "cpu-model-migration.node.kubevirt.io/Old",
        ),
        ({"cpu-feature.node.kubevirt.io/aes": "true"}, "cpu-feature.node.kubevirt.io/aes"),
    ],
)
def test_labels_of_an_earlier_migration_stay_and_the_node_adds_none(
    selected: dict[str, str], kept: str
) -> None:
    found = selector(vmi(), kubevirt(), node("a", INTEL), source_pod(selected), moves=True)

    assert found[kept] == "true"
    assert "cpu-model-migration.node.kubevirt.io/Skylake" not in found
    assert "cpu-feature.node.kubevirt.io/vmx" not in found


def test_a_fresh_pod_has_no_labels_of_the_node() -> None:
    found = selector(vmi(), kubevirt(), node("a", INTEL))

    assert not [
        key for key in found if key.startswith(("cpu-model-migration", "cpu-feature", "cpu-vendor"))
    ]


def test_a_named_model_binds_and_the_host_model_does_not() -> None:
    found = selector(vmi({"cpu": {"model": "Haswell"}}), kubevirt(), node("a", INTEL), moves=True)

    assert found["cpu-model.node.kubevirt.io/Haswell"] == "true"
    assert "cpu-model-migration.node.kubevirt.io/Skylake" not in found


def test_the_vendor_binds_a_target_since_1_8() -> None:
    assert "cpu-vendor.node.kubevirt.io/Intel" in selector(
        vmi(), kubevirt(), node("a", INTEL), moves=True
    )
    assert "cpu-vendor.node.kubevirt.io/Intel" not in selector(
        vmi(), kubevirt(status=OLD), node("a", INTEL), moves=True
    )


def test_a_vendor_that_the_vmi_selects_is_not_overruled() -> None:
    found = selector(
        vmi(nodeSelector={"cpu-vendor.node.kubevirt.io/AMD": "true"}),
        kubevirt(),
        node("a", INTEL),
        moves=True,
    )

    assert "cpu-vendor.node.kubevirt.io/AMD" in found
    assert "cpu-vendor.node.kubevirt.io/Intel" not in found


def test_the_machine_type_of_the_status_wins_while_it_runs() -> None:
    machine = {"machine": {"type": "q35"}}
    alias, running = (f"machine-type.node.kubevirt.io/{kind}" for kind in ("q35", "pc-q35-rhel9.4"))
    obj = vmi(machine, status={"nodeName": "a", "machine": {"type": "pc-q35-rhel9.4"}})

    assert alias in selector(vmi(machine))
    assert {alias, running}.intersection(selector(obj, moves=True)) == {running}
    assert {alias, running}.intersection(selector(obj)) == {alias}


@pytest.mark.parametrize(
    ("release", "demanded", "not_demanded"),
    [
        ("v1.7.4", "cpumanager", "kubevirt.io/cpumanager"),
        ("v1.8.0", "kubevirt.io/cpumanager", "cpumanager"),
        ("", "kubevirt.io/cpumanager", "cpumanager"),
    ],
)
def test_dedicated_cpus_demand_the_label_of_the_running_release(
    release, demanded, not_demanded
) -> None:
    running = kubevirt(status={"observedKubeVirtVersion": release})
    found = selector(vmi({"cpu": {"dedicatedCpuPlacement": True}}), running)

    assert found[demanded] == "true"
    assert not_demanded not in found


@pytest.mark.parametrize(
    ("release", "demands"), [("v1.5.3", False), ("v1.6.0", True), ("v1.9.0", True)]
)
def test_no_node_has_labels_of_machine_types_before_1_6(release, demands) -> None:
    running = kubevirt(status={"observedKubeVirtVersion": release})
    found = selector(vmi({"machine": {"type": "q35"}}), running)

    assert ("machine-type.node.kubevirt.io/q35" in found) is demands


def test_hyperv_binds_only_with_its_gate() -> None:
    guest = vmi({"features": {"hyperv": {"synic": {}, "reset": {"enabled": False}}}})
    strict = kubevirt(developerConfiguration={"featureGates": ["HypervStrictCheck"]})

    assert "hyperv.node.kubevirt.io/synic" not in selector(guest)
    assert "hyperv.node.kubevirt.io/synic" in selector(guest, strict)
    assert "hyperv.node.kubevirt.io/reset" not in selector(guest, strict)


def test_the_frequency_binds_only_guests_that_need_it() -> None:
    label = "scheduling.node.kubevirt.io/tsc-frequency-2500"
    invtsc = {"cpu": {"features": [{"name": "invtsc", "policy": "require"}]}}
    reenlightenment = {"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}

    assert label not in selector(vmi(**FREQUENCY))
    assert label in selector(vmi(invtsc, **FREQUENCY))
    assert label in selector(vmi(reenlightenment, **FREQUENCY))


def test_secure_execution_binds_on_s390x() -> None:
    assert "kubevirt.io/s390-pv" in selector(vmi({"launchSecurity": {}}, architecture="s390x"))
    assert "kubevirt.io/s390-pv" not in selector(vmi({"launchSecurity": {}}, architecture="amd64"))


def test_the_namespace_has_a_node_selector_of_its_own() -> None:
    annotations = {"openshift.io/node-selector": "pool=vms, zone=a"}
    namespace = manifest("v1", "Namespace", "shop", metadata={"annotations": annotations})

    found = selector(vmi(), kubevirt(), namespace)

    assert (found["pool"], found["zone"]) == ("vms", "a")


# --- forbidden labels, labels, claims -------------------------------------------------------------


def test_an_obsolete_host_model_and_forbidden_features_are_refused() -> None:
    features = {"cpu": {"features": [{"name": "vmx", "policy": "forbid"}]}}

    assert set(
        candidates.pod_to_place(vmi(features), complete(kubevirt()), moves=False).forbidden_labels
    ) == {"node-labeller.kubevirt.io/obsolete-host-model", "cpu-feature.node.kubevirt.io/vmx"}
    passthrough = {"cpu": {"model": "host-passthrough"}}
    assert not candidates.pod_to_place(
        vmi(passthrough), complete(kubevirt()), moves=False
    ).forbidden_labels


def test_an_empty_term_matches_once_kubevirt_adds_a_forbidden_label() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    affinity = {"affinity": {"nodeAffinity": required}}

    def matches(domain: dict[str, Any]) -> bool:
        pod = candidates.pod_to_place(vmi(domain, **affinity), complete(kubevirt()), moves=False)
        assert pod.node_affinity is not None
        return pod.node_affinity.matches("b", {})

    assert matches({})
    assert not matches({"cpu": {"model": "host-passthrough"}})


def test_labels_of_a_long_name() -> None:
    long = Object(
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
        | {"metadata": {"name": "x" * 70}}
    )

    labels = launcher_pod.pod_labels(long)

    assert labels["vm.kubevirt.io/name"] == "x" * 63
    assert len(labels["vmi.kubevirt.io/id"]) == 63
    assert labels["vmi.kubevirt.io/id"] != labels["vm.kubevirt.io/name"]


def test_claims_of_volumes_but_not_of_hotplugged_ones() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "b", "dataVolume": {"name": "data"}},
        {"name": "c", "dataVolume": {"name": "plugged", "hotpluggable": True}},
        {"name": "d", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}},
        {"name": "e", "containerDisk": {"image": "disk"}},
    ]

    assert candidates.pod_to_place(
        vmi(volumes=volumes), complete(kubevirt()), moves=False
    ).claims == ("claim", "data", "base")
