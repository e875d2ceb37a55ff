"""What instance types and preferences change about whether a VM can migrate."""

import pytest

from tests.builders import kubevirt, node
from tests.model.kubevirt.migratability_cases import (
    DEVICES,
    NO_INTERFACE,
    STUCK,
    UNKNOWN,
    YES,
    T,
    judged,
    named,
    no,
    pod_interface,
    vm,
    windows,
)
from virt_admit.model.kubevirt.instances.migratability import BRIDGE_OPT_IN

NO_TSC, CLOCK = "NoTSCFrequencyNotLiveMigratable", T + "domain.features.hyperv.reenlightenment"


def bare(**vm_spec):
    """A VM without networks and interfaces: it gets the cluster's default."""
    return vm({"networks": [], "devices": {"interfaces": []}}, **vm_spec)


def large(spec):
    return named("VirtualMachineClusterInstancetype", "large", spec)


LARGE = {"instancetype": {"name": "large"}}

WINDOWS = {"preference": {"name": "windows"}}


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, YES),
        ({"gpus": [{}]}, no("HostDeviceNotLiveMigratable", "spec.instancetype")),
        ({"hostDevices": [{}]}, no("HostDeviceNotLiveMigratable", "spec.instancetype")),
        ({"launchSecurity": {"snp": {}}}, no("SEVNotLiveMigratable", "spec.instancetype")),
    ],
)
def test_instance_types_count(spec, answer):
    assert judged(vm(**LARGE), large(spec)) == answer


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, YES),
        ({"preferredLaunchSecurity": {"tdx": {}}}, no("TDXNotLiveMigratable", "spec.preference")),
        (
            {"features": {"preferredHyperv": {"reenlightenment": {}}}},
            no("NoTSCFrequencyNotLiveMigratable", "spec.preference"),
        ),
        (
            {"preferredArchitecture": "s390x", "preferredLaunchSecurity": {}},
            no("SecureExecutionNotLiveMigratable", "spec.preference"),
        ),
    ],
)
def test_preferences_count(spec, answer):
    assert judged(vm(**WINDOWS), windows(spec), node("a"), kubevirt()) == answer


INVTSC = {"cpu": {"preferredCPUFeatures": [{"name": "invtsc", "policy": "require"}]}}
REENLIGHTENMENT = {
    "features": {"hyperv": {"reenlightenment": {}}},
    "devices": {"autoattachPodInterface": False},
}


@pytest.mark.parametrize(
    ("own", "preferred", "answer"),
    [
        ([], INVTSC, YES),
        ([{"name": "vmx"}], INVTSC, YES),
        ([{"name": "invtsc", "policy": "disable"}], INVTSC, no(NO_TSC, CLOCK)),
        ([], {}, no(NO_TSC, CLOCK)),
    ],
)
def test_a_preference_that_brings_invtsc_makes_the_frequency_a_need_of_the_boot(
    own, preferred, answer
):
    """pkg/instancetype/preference/apply/cpu.go#applyCPUPreferences adds names that the VM does not
    list.
    """
    domain = REENLIGHTENMENT | {"cpu": {"features": own}}
    machine = vm({"networks": [], "domain": domain}, **WINDOWS)
    assert judged(machine, windows(preferred), node("a"), kubevirt()) == answer
    assert judged(machine, node("a"), kubevirt()) == UNKNOWN


def test_a_preferred_masquerade_fills_gaps_only():
    preference = windows({"devices": {"preferredInterfaceMasquerade": {}}})
    assert judged(vm(pod_interface(), **WINDOWS), preference) == YES
    assert judged(vm(pod_interface(bridge={}), **WINDOWS), preference) == STUCK
    assert judged(bare(**WINDOWS), preference, kubevirt()) == NO_INTERFACE


def test_a_preference_may_forbid_the_default_interface():
    forbids = windows({"devices": {"preferredAutoattachPodInterface": False}})
    assert judged(bare(**WINDOWS), forbids, kubevirt()) == YES


def test_an_opt_in_may_come_from_instance_type_or_preference():
    opts_in = {"annotations": {BRIDGE_OPT_IN: ""}}
    assert judged(vm(pod_interface(bridge={}), **LARGE), large(opts_in)) == YES
    assert judged(vm(pod_interface(bridge={}), **WINDOWS), windows(opts_in)) == YES
    assert judged(bare(**LARGE), large(opts_in), kubevirt()) == YES


@pytest.mark.parametrize("missing", [LARGE, WINDOWS])
def test_what_an_unseen_instance_type_or_preference_may_bring(missing):
    assert judged(vm(**missing)) == UNKNOWN
    assert judged(vm(pod_interface(bridge={}), **missing)) == UNKNOWN
    assert judged(vm(pod_interface(), **missing)) == UNKNOWN
    assert judged(bare(**missing), kubevirt()) == UNKNOWN
    stuck = no("HostDeviceNotLiveMigratable", DEVICES + ".hostDevices")
    assert judged(vm({"devices": {"hostDevices": [{}]}}, **missing)) == stuck
