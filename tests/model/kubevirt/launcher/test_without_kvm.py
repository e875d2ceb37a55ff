"""Nodes whose host has no KVM."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubevirt.launcher import without_kvm

OFFERS_NONE = {without_kvm.KVM: "0", "devices.kubevirt.io/tun": "1k"}


def complete(*objects):
    return Snapshot(objects, ["*"], time=ago())


def node(allocatable=OFFERS_NONE, annotations=None, minutes=11, **labels):
    metadata = {
        "labels": {SCHEDULABLE: "true", **labels},
        "annotations": annotations or {},
        "creationTimestamp": minutes and ago(minutes=minutes),
    }
    return manifest("v1", "Node", "b", metadata=metadata, status={"allocatable": allocatable})


def kubevirt(**developer):
    spec = {"configuration": {"developerConfiguration": developer}}
    return manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", spec=spec)


@pytest.mark.parametrize(
    ("objects", "is_off"),
    [
        ([node(), kubevirt()], True),
        ([node(), kubevirt(useEmulation=True)], False),
        ([node({without_kvm.KVM: "1k"}), kubevirt()], False),
        ([node({"cpu": "8"}), kubevirt()], False),
        ([node({without_kvm.KVM: "0"}), kubevirt()], False),
        ([node(minutes=9), kubevirt()], False),
        ([node(minutes=None), kubevirt()], False),
        ([node()], False),
        ([node(**{SCHEDULABLE: "false"}), kubevirt()], False),
        ([node(**{"cpu-model.node.kubevirt.io/Haswell": "true"}), kubevirt()], False),
        ([node(annotations={"node-labeller.kubevirt.io/skip-node": ""}), kubevirt()], False),
    ],
    ids=[
        "off",
        "emulation",
        "offered",
        "unknown",
        "no device",
        "new",
        "of unknown age",
        "KubeVirt unseen",
        "no virt-handler",
        "labelled",
        "left alone",
    ],
)
def test_virtualization_is_off(objects, is_off):
    cluster = complete(*objects)
    assert without_kvm.is_off("b", cluster) is is_off
    assert without_kvm.found(cluster) == (("b",) if is_off else ())


@pytest.mark.parametrize(
    ("minutes", "time", "seems"), [(9, ago(), False), (11, ago(), True), (9, None, True)]
)
def test_at_admission_only_a_recorded_time_tells_a_new_node(minutes, time, seems):
    cluster = Snapshot([node(minutes=minutes), kubevirt()], ["*"], time=time)
    assert without_kvm.seems_off("b", cluster) is seems


def test_one_cause_instead_of_what_comes_from_it():
    causes = f"machine type q35; CPU feature ssbd; {without_kvm.KVM}: 1 missing"
    cluster = complete(node(), kubevirt())

    fits = f"{without_kvm.OFF}, then see whether its CPU fits"
    assert without_kvm.told(causes) == fits
    assert without_kvm.told(f"cordoned; {causes}") == f"{fits}; cordoned"
    assert without_kvm.told(f"{without_kvm.KVM}: 1 missing") == without_kvm.OFF
    assert without_kvm.told(f"machine type q35; {without_kvm.KVM}: 1 missing") == without_kvm.OFF
    assert without_kvm.opened({"b": causes, "c": causes}, cluster) == ("b",)
    assert without_kvm.opened({"b": f"cordoned; {causes}"}, cluster) == ()


@pytest.mark.parametrize(("arch", "named"), [("amd64", True), ("arm64", False), (None, False)])
def test_the_modules_of_kvm_are_those_of_amd64(arch, named):
    labels = {"kubernetes.io/arch": arch} if arch else {}
    assert ("kvm_intel" in without_kvm.way(["b"], complete(node(**labels)))) is named
