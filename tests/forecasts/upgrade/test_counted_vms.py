"""VMIs that have ended and that a Job of Harvester still counts on its node."""

import pytest

from tests.builders import manifest
from tests.forecasts.upgrade.test_standing_nodes import NOW, job, node, run, upgrade
from virt_admit.forecasts.upgrade.operators import counted_vms
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def ended(phase="Succeeded", on="a", since="2027-03-01T08:00:00Z"):
    entered = [{"phase": phase, "phaseTransitionTimestamp": since}]
    status = {"phase": phase, "nodeName": on, "phaseTransitionTimestamps": entered}
    metadata = {"labels": {"kubevirt.io/nodeName": on}}
    of = "kubevirt.io/v1"
    return manifest(
        of, "VirtualMachineInstance", "off", "shop", metadata=metadata, spec={}, status=status
    )


def counting(version, kind="pre-drain"):
    found = job(kind)
    image = {"name": "apply", "image": f"rancher/harvester-upgrade:{version}"}
    found.data["spec"] = {"template": {"spec": {"containers": [image]}}}
    return found


@pytest.mark.parametrize(
    ("version", "vmi"), [("v1.2.1", ended()), ("v1.4.0", ended("Failed"))], ids=["old", "failed"]
)
def test_a_job_counts_a_vmi_that_has_ended(version, vmi):
    result, (order,) = run(upgrade("Pre-draining"), counting(version), vmi)

    (stop,) = result.stops
    assert (result.possible, stop.node) == (False, "a")
    assert "its Job hvst-pre-drain-a waits for VMI shop/off: its phase is" in stop.reason
    assert "for 4 h, but its label kubevirt.io/nodeName is a" in stop.reason
    assert order.remedy.endswith("kubectl delete vmi off -n shop")
    assert result.progress.in_flight[0].waits_for == "VMI shop/off"


def of_vm(vmi, name="off", kind="VirtualMachine"):
    owner = {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "controller": True}
    metadata = {**vmi.data["metadata"], "name": name, "ownerReferences": [owner]}
    return Object({**vmi.data, "metadata": metadata})


def vm(strategy, name="off"):
    spec = {"runStrategy": strategy, "template": {"spec": {}}}
    return manifest("kubevirt.io/v1", "VirtualMachine", name, "shop", spec=spec)


DELETE, HALT = "kubectl delete vmi off -n shop", "kubectl patch vm off -n shop --type=merge"


@pytest.mark.parametrize(
    ("objects", "command", "words"),
    [
        ([vm("Always")], DELETE, "with run strategy Always KubeVirt may then start its VM"),
        ([vm("Once")], HALT, "Do not delete it yourself: with run strategy Once KubeVirt then"),
        ([vm("WaitAsReceiver")], DELETE, "KubeVirt then makes it again, for its migration"),
        ([vm("Manual")], DELETE, "Delete that VMI, which has ended: kubectl"),
        ([], DELETE, "Delete that VMI, which has ended: kubectl"),  # its VM is gone
        ([vm("Once"), of_vm(ended("Failed"), "on")], HALT, "; then delete shop/on"),
        (
            [vm("Manual"), of_vm(ended("Failed"), "on"), vm("Once", "on")],
            DELETE,
            "; then set runStrategy Halted of the VMs of shop/on",
        ),
    ],
    ids=["Always", "Once", "receiver", "Manual", "no VM", "Once and another", "another, of Once"],
)
def test_a_vmi_that_has_ended_is_not_deleted_where_its_vm_would_run_again(objects, command, words):
    vmi = of_vm(ended("Failed"))
    _, (order,) = run(upgrade("Pre-draining"), counting("v1.4.0"), vmi, *objects)

    assert f": {command}" in order.remedy
    assert (DELETE in order.remedy) is (command is DELETE)
    assert words in order.remedy


@pytest.mark.parametrize(
    ("vmi", "words"),
    [
        (of_vm(ended("Failed")), "Unless the run strategy of its VM is Once, delete that VMI"),
        (of_vm(ended("Failed")), "whether its VM then starts cannot be determined"),
        (
            of_vm(ended("Failed"), kind="VirtualMachineInstanceReplicaSet"),
            "(VirtualMachineInstanceReplicaSet off, which owns it, may then make it again)",
        ),
    ],
    ids=["VMs unread", "VMs unread, as said", "another owner"],
)
def test_a_vmi_that_has_ended_and_whose_vm_is_not_known(vmi, words):
    objects = [upgrade("Pre-draining"), counting("v1.4.0"), vmi]
    cluster = Snapshot([node("a", cordoned="2027-03-01T06:30:00Z"), *objects], [], time=NOW)
    found = counted_vms.of_job(*objects[:2], "a", cluster)

    assert words in found.remedy


@pytest.mark.parametrize(("first", "does"), [("Manual", "so for"), ("Once", "delete")])
def test_another_vmi_whose_vm_was_not_read(first, does):
    vmis = [of_vm(ended("Failed")), of_vm(ended("Failed"), "on")]
    objects = [upgrade("Pre-draining"), counting("v1.4.0"), vm(first), *vmis]
    cluster = Snapshot([node("a", cordoned="2027-03-01T06:30:00Z"), *objects], [], time=NOW)
    found = counted_vms.of_job(*objects[:2], "a", cluster)

    says = f"; then, unless the run strategy of its VM is Once, {does} shop/on (not read)"
    assert found.remedy.endswith(says)


@pytest.mark.parametrize(
    ("given", "vmi"),
    [
        (counting("v1.2.2"), ended()),
        (counting("v1.2.1", "post-drain"), ended()),
        (counting("v1.2.1"), ended(on="b")),
        (counting("v1.2.1"), ended("Running")),
        (counting("v1.2.1"), ended(since="2027-03-01T11:58:00Z")),
    ],
    ids=["a later release", "after the drain", "elsewhere", "it runs", "just now"],
)
def test_vmis_that_hold_no_job(given, vmi):
    _, orders = run(upgrade("Pre-draining"), given, vmi)

    assert "shop/off" not in " ".join(each.reason for each in orders)
