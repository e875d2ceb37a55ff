"""What virt-api says that the cluster lacks: feature gates and settings of KubeVirt."""

import pytest

from tests.for_each import for_each
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import pod_refusals
from virt_admit.model.kubevirt.settings import refused_gates

PVC = "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC"
STORAGE = "EnableVirtioFsStorageVolumes"
AGAIN = "; KubeVirt then tries again by itself, within 17 minutes"
PATH = "/spec/configuration/developerConfiguration/featureGates/-"


def kubevirt(release="v1.5.0", **developer):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"developerConfiguration": developer}},
        "status": {"observedKubeVirtVersion": release},
    }


def hco(version="v1beta1", release="1.18.0", **annotations):
    return {
        "apiVersion": f"hco.kubevirt.io/{version}",
        "kind": "HyperConverged",
        "metadata": {"name": "hco", "namespace": "cnv", "annotations": annotations},
        "status": {"versions": [{"name": "operator", "version": release}]},
    }


def remedy(said, *items):
    return refused_gates.remedy(said, Snapshot(list(map(Object, items)), ["*"]))


@for_each(
    "said, gate",
    [
        (PVC, STORAGE),
        (
            "virtiofs is not allowed: virtiofs feature gate is not enabled for config volumes",
            "EnableVirtioFsConfigVolumes",
        ),
        ("virtiofs feature gate is not enabled in kubevirt-config", "ExperimentalVirtiofsSupport"),
        ("Host Devices feature gate is not enabled in kubevirt-config", "HostDevices"),
        ("sidecar feature gate is not enabled in kubevirt-config, invalid entry x", "Sidecar"),
        (
            "Invalid RunStrategy (WaitAsReceiver), DecentralizedLiveMigration feature gate is not "
            "enabled in kubevirt resource",
            "DecentralizedLiveMigration",
        ),
        (
            "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM",
            "DeclarativeHotplugVolumes",
        ),
        ("disks are not allowed: DownwardMetrics feature gate is not enabled.", "DownwardMetrics"),
        (
            "vmi.spec.domain.devices.gpus contains DRA enabled GPUs but feature gate is not "
            "enabled",
            "GPUsWithDRA",
        ),
        ("specified but the RebootPolicy feature gate is not enabled", "RebootPolicy"),
        ("SomeNewThing feature gate is not enabled in kubevirt-config", "SomeNewThing"),
        ("the feature gate is not enabled", ""),
        ("spec.domain.machine.type is not supported", ""),
    ],
)
def test_the_gate_that_a_refusal_misses(said, gate):
    assert refused_gates.gate_of(said) == gate


def test_the_gate_is_added_to_those_of_kubevirt():
    assert remedy(PVC, kubevirt(featureGates=["Snapshot"])) == (
        f"add {STORAGE} to the featureGates of KubeVirt kubevirt/kubevirt (now Snapshot), which it "
        "requires since 1.5: kubectl patch kubevirt kubevirt -n kubevirt --type=json -p "
        f'\'[{{"op":"add","path":"{PATH}","value":"{STORAGE}"}}]\'{AGAIN}'
    )
    none = remedy(PVC, kubevirt())
    assert "(it has none)" in none
    assert f'"developerConfiguration":{{"featureGates":["{STORAGE}"]}}' in none
    assert remedy(PVC).startswith(f"add {STORAGE} to the featureGates of KubeVirt")


def test_a_gate_that_is_switched_off_is_taken_out_of_that_list():
    found = remedy(
        "Video configuration is specified but the VideoConfig feature gate is not enabled",
        kubevirt("v1.7.0", disabledFeatureGates=["ImageVolume", "VideoConfig"]),
    )
    assert found.startswith("take VideoConfig out of the disabledFeatureGates of KubeVirt")
    assert '"op":"remove"' in found
    assert "/disabledFeatureGates/1" in found


@pytest.mark.parametrize(
    "known",
    [kubevirt(featureGates=[STORAGE]), kubevirt("v1.9.0")],
    ids=["it is set", "the release has it always"],
)
def test_a_refusal_from_before_the_gate_was_there(known):
    gate = STORAGE if known["spec"]["configuration"]["developerConfiguration"] else "VideoConfig"
    said = PVC if gate == STORAGE else f"the {gate} feature gate is not enabled"
    assert remedy(said, known).startswith("wait for the next try, as KubeVirt kubevirt/kubevirt")


def test_a_feature_that_the_release_has_removed_is_no_matter_of_its_gate():
    assert remedy("Macvtap feature gate is not enabled", kubevirt("v1.5.0")) == ""
    assert "add Macvtap to" in remedy("Macvtap feature gate is not enabled", kubevirt("v1.2.0"))


def test_hyperconverged_writes_the_gates():
    said = "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled."
    own = remedy(said, kubevirt("v1.8.0"), hco())
    assert own.startswith("enable feature gate downwardMetrics of HyperConverged cnv/hco, which")
    assert '\'{"spec":{"featureGates":{"downwardMetrics":true}}}\'' in own
    assert "kubectl edit hyperconverged hco -n cnv" in remedy(said, kubevirt("v1.8.0"), hco("v1"))
    patched = remedy(PVC, kubevirt("v1.8.0"), hco())
    assert "kubectl annotate hyperconverged hco -n cnv --overwrite" in patched
    key = {"kubevirt.kubevirt.io/jsonpatch": '[{"op":"remove","path":"/spec/x"}]'}
    more = remedy(PVC, kubevirt("v1.8.0"), hco(**key))
    assert 'jsonpatch=[{"op":"remove","path":"/spec/x"},{"op":"add"' in more
    assert "kubectl edit" in remedy(PVC, kubevirt("v1.8.0"), hco(**dict.fromkeys(key, "?")))


def test_the_chart_of_harvester_writes_its_kubevirt():
    own = kubevirt()
    own["metadata"]["namespace"] = "harvester-system"
    bridge = "Bridge on pod network configuration is not enabled under kubevirt-config"
    for said in (PVC, bridge):
        found = remedy(said, own)
        assert "in spec.values of ManagedChart harvester, which writes it" in found
        assert "kubectl edit managedchart harvester -n fleet-local" in found
        assert "kubectl patch" not in found


def test_a_setting_that_is_off():
    said = "Bridge on pod network configuration is not enabled under kubevirt-config"
    assert remedy(said, kubevirt()) == (
        "set spec.configuration.network.permitBridgeInterfaceOnPodNetwork of KubeVirt "
        "kubevirt/kubevirt to true: kubectl patch kubevirt kubevirt -n kubevirt --type=merge -p "
        '\'{"spec":{"configuration":{"network":{"permitBridgeInterfaceOnPodNetwork":true}}}}\''
    )
    assert "HyperConverged cnv/hco, which writes it" in remedy(said, kubevirt(), hco())
    assert "kubectl get kubevirt -A" in remedy(said)


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (PVC, f"add {STORAGE} to"),
        ("Slirp interface is not enabled in kubevirt-config", "allow in the configuration of Kube"),
        ("Macvtap feature gate is not enabled", "correct in the VM what KubeVirt rejects"),
        ("the name is too long", "correct in the VM what KubeVirt rejects"),
    ],
)
def test_the_vm_is_right_where_the_cluster_lacks_something(said, begins):
    vm = Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "db", "namespace": "shop"},
        }
    )
    cluster = Snapshot([Object(kubevirt())], ["*"])
    begin = 'admission webhook "virtualmachineinstances-create-validator.kubevirt.io" denied the'
    assert pod_refusals.remedy(vm, f"{begin} request: {said}", cluster).startswith(begins)
    other = f'admission webhook "gates.example.com" denied the request: {said}'
    assert "example.com accept it in shop" in pod_refusals.remedy(vm, other, cluster)
