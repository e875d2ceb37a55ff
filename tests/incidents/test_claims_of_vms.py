"""Claims of VMs that another object owns or uses, or that KubeVirt made by itself."""

import copy

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj

from .machines import claim, event, find, guest

EXISTS = (
    'admission webhook "datavolume-validate.cdi.kubevirt.io" denied the request:  Destination PVC '
    "vms/etl already exists"
)


def restored(*more, minutes=60, owner=None):
    """A VM whose claim was restored without its DataVolume."""
    items = [
        each for each in guest("etl", "w1") if each["kind"] not in ("VirtualMachineInstance", "Pod")
    ]
    vm = find(items, "VirtualMachine", "etl")
    condition = {
        "type": "Failure",
        "status": "True",
        "reason": "FailedCreate",
        "message": (
            f"Error encountered while creating DataVolumes: failed to create DataVolume: {EXISTS}"
        ),
        "lastTransitionTime": ago(minutes=1),
    }
    vm["status"] = {"printableStatus": "Stopped", "conditions": [condition]}
    template = {"metadata": {"name": "etl"}, "spec": {"source": {"blank": {}}}}
    vm["spec"]["dataVolumeTemplates"] = [template]
    vm["spec"]["template"]["spec"]["volumes"] = [{"name": "etl", "dataVolume": {"name": "etl"}}]
    said = f"Error creating DataVolume etl: {EXISTS}"
    warned = event(vm, "FailedDataVolumeCreate", said, "virtualmachine-controller", late=60)
    warned["firstTimestamp"] = ago(minutes=minutes)
    if owner is not None:
        found = find(items, "PersistentVolumeClaim", "etl")
        found["metadata"]["ownerReferences"] = [owner | {"uid": "x", "controller": True}]
    return [*plain((1, 6)), *items, warned, *more]


def test_a_restored_claim_is_named_that_cdi_refuses_to_adopt(ask):
    told = ask(restored(), "explain", "vm/etl", "-n", "vms")
    assert (
        "KubeVirt cannot create its DataVolumes for 60 min: DataVolume etl of its "
        "dataVolumeTemplates does not exist, and CDI refuses it, as claim vms/etl (Bound, 20Gi) "
        "exists already and belongs to no DataVolume"
    ) in told
    assert "it belongs to no DataVolume etl, which CDI refuses to create" in told
    assert 'by annotation cdi.kubevirt.io/allowClaimAdoption: "true" on the template' in told
    scan = ask(restored(), "scan")
    assert "claim vms/etl (Bound, 20Gi) exists already" in scan
    assert "(do not delete the claim: it may hold the data). [vm-start-stuck]" in scan


def test_a_claim_of_another_owner_is_not_to_be_adopted(ask):
    of = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "other"}
    told = ask(restored(owner=of), "explain", "vm/etl", "-n", "vms")
    assert "exists already and belongs to VirtualMachine other" in told
    assert "give that template and the dataVolume of its volume another name" in told
    assert "which belongs to VirtualMachine other" in told
    assert "allowClaimAdoption" not in told


def test_a_claim_that_a_restore_gave_to_the_vm_is_named_in_it(ask):
    of = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "etl"}
    told = ask(restored(owner=of), "explain", "vm/etl", "-n", "vms")
    assert "exists already and belongs to the VM itself" in told
    assert "name the claim in its volume as persistentVolumeClaim" in told
    assert not any(each in told for each in ("another name", "in use", "allowClaimAdoption"))
    held = ask(restored(holder(), owner=of), "scan", "--select", "vm-start-stuck")
    assert "Let VM vms/holder give the claim up first" in held


def holder():
    """A stopped VM that names the claim of the restored one."""
    vm = find(guest("holder", "w2", disks=["etl"]), "VirtualMachine", "holder")
    vm["spec"]["runStrategy"] = "Halted"
    vm["status"] = {"printableStatus": "Stopped"}
    return vm


@pytest.mark.parametrize("by", ["persistentVolumeClaim", "dataVolume", "VMI"])
def test_a_claim_that_another_vm_names_is_in_use(ask, by):
    other = holder()
    if by == "dataVolume":
        other["spec"]["template"]["spec"]["volumes"] = [{"name": "a", by: {"name": "etl"}}]
    if by == "VMI":
        other = find(guest("holder", "w2", disks=["etl"]), "VirtualMachineInstance", "holder")
    told = ask(restored(other), "scan", "--select", "vm-start-stuck")
    assert f"and {'VMI' if by == 'VMI' else 'VM'} vms/holder uses it" in told
    assert "Give that template and the dataVolume of its volume another name" in told
    assert "allowClaimAdoption" not in told
    elsewhere = holder()
    elsewhere["metadata"]["namespace"] = "other"
    told = ask(restored(elsewhere), "scan", "--select", "vm-start-stuck")
    assert "name the claim in its volume as persistentVolumeClaim" in told


def test_a_claim_whose_users_could_not_be_read_is_only_looked_at(ask):
    told = ask(restored(), "explain", "vm/etl", "-n", "vms", unreadable=["pods"])
    assert "see which pods and VMs use the claim" in told
    assert "kubectl describe pvc etl -n vms" in told
    assert not any(each in told for each in ("allowClaimAdoption", "remove that template"))


@pytest.mark.parametrize(
    ("phase", "says"),
    [("Pending", "name the claim in its volume"), ("Lost", "See why the claim is Lost")],
)
def test_a_claim_that_is_not_bound_is_not_adopted(ask, phase, says):
    items = restored()
    find(items, "PersistentVolumeClaim", "etl")["status"] = {"phase": phase}
    told = ask(items, "scan", "--select", "vm-start-stuck")
    assert says in told
    assert "allowClaimAdoption" not in told


def test_a_claim_with_its_data_volume_is_not_accused(ask):
    volume = obj("DataVolume", "cdi.kubevirt.io/v1beta1", "etl", "vms", spec={})
    volume["status"] = {"phase": "Succeeded"}
    assert "belongs to no" not in ask(restored(volume), "explain", "vm/etl", "-n", "vms")
    of = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "etl"}
    assert "belongs to" not in ask(restored(owner=of), "explain", "vm/etl", "-n", "vms")


def test_a_new_failure_is_none(ask):
    assert "vm-start-stuck" not in ask(restored(minutes=2), "scan")


@pytest.mark.parametrize(
    ("release", "says"), [((1, 3), "it is not ReadWriteMany"), ((1, 6), "Bound ReadWriteOnce")]
)
def test_the_claim_of_the_state_is_a_volume_of_the_vm(ask, release, says):
    name = "persistent-state-for-win"
    items = copy.deepcopy([*plain(release), *guest("win", "w1", release)])
    items += claim(name, modes=("ReadWriteOnce",), volume_mode="Filesystem")
    for kind in ("VirtualMachineInstance", "VirtualMachine"):
        spec = find(items, kind, "win")["spec"]
        spec = spec.get("template", {}).get("spec") or spec
        spec["domain"]["devices"]["tpm"] = {"persistent": True}
    vmi = find(items, "VirtualMachineInstance", "win")
    if release < (1, 4):
        condition = next(
            each for each in vmi["status"]["conditions"] if each["type"] == "LiveMigratable"
        )
        condition |= {"status": "False", "reason": "DisksNotLiveMigratable", "message": "not RWX"}
    told = ask(items, "explain", "vm/win", "-n", "vms")
    row = next(line for line in told.splitlines() if line.lstrip().startswith(name))
    assert says in row
    assert ("ReadWriteMany" in row) == (release < (1, 4))
    drained = ask(items, "drain", "w1")
    assert (f"claim '{name}' of its vTPM or EFI state" in drained) == (release < (1, 4))
